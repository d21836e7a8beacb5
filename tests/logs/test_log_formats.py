"""Text and JSON: the same content, each on one line, without secrets."""

from __future__ import annotations

import json
import logging
import sys

from headrace.logs import log_fields
from headrace.logs.formats import JsonFormat, TextFormat

MOMENT = 1_790_000_000.25


def hide(text: str) -> str:
    return text.replace("hush", "***")


def record_of(message: str, *arguments: object, fails: bool = False, **fields: str | int | float) -> logging.LogRecord:
    record = logging.getLogger("headrace.build").makeRecord(
        "headrace.build", logging.INFO, "", 0, message, arguments, sys.exc_info() if fails else None, extra=log_fields(**fields)
    )
    record.created = MOMENT
    return record


def failed() -> logging.LogRecord:
    try:
        raise KeyError("hush")
    except KeyError:
        return record_of("it failed", fails=True)


def test_json_format_writes_one_object_with_utc_microseconds_and_fields() -> None:
    line = JsonFormat(hide).format(record_of("built\n%s", "a table", pipeline="payments", build=7, seconds=0.25))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-09-21T14:13:20.250000Z",
        "level": "INFO",
        "logger": "headrace.build",
        "message": "built\na table",
        "pipeline": "payments",
        "build": 7,
        "seconds": 0.25,
    }


def test_json_format_keeps_a_traceback_on_the_same_line() -> None:
    line = JsonFormat(hide).format(failed())
    assert "\n" not in line
    assert json.loads(line)["traceback"].splitlines()[0] == "Traceback (most recent call last):"


def test_text_format_writes_fields_after_the_message() -> None:
    line = TextFormat(hide).format(record_of("built a table", pipeline="payments", build=7))
    assert line == "2026-09-21T14:13:20.250000Z INFO headrace.build: built a table pipeline=payments build=7"


def test_text_format_quotes_values_that_would_run_into_the_next_field() -> None:
    line = TextFormat(hide).format(record_of("x", table="a b", other='c="d"', empty="", escape="\x1b[2J"))
    assert line.endswith(r' x table="a b" other="c=\"d\"" empty="" escape="\u001b[2J"')


def test_text_format_keeps_a_message_on_its_line_and_its_escapes_from_the_terminal() -> None:
    assert TextFormat(hide).format(record_of("one\ntwo\x1b[2J")).endswith(r": one\ntwo\u001b[2J")


def test_formats_hide_secrets_in_messages_fields_and_tracebacks() -> None:
    for form in (TextFormat(hide), JsonFormat(hide)):
        said = form.format(record_of("hush", where="a hush b")) + form.format(failed())
        assert "hush" not in said
        assert said.count("***") == 4
