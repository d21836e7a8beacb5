"""Tracebacks without messages: a row that an exception quotes stays out of what leaves the machine."""

from __future__ import annotations

import traceback

from headrace.logs.traces import without_messages


def trace_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def fail() -> None:
    try:
        int("alice@example.com")
    except ValueError as error:
        raise RuntimeError("row 7:\n  alice@example.com\nalice") from error


def test_without_messages_keeps_frames_and_types_of_the_whole_chain() -> None:
    try:
        fail()
    except RuntimeError as error:
        trace = trace_of(error)
    stripped = without_messages(trace)
    assert "alice" in trace
    assert [line for line in stripped.splitlines() if not line.startswith("  ")] == [
        "Traceback (most recent call last):",
        "ValueError",
        "The above exception was the direct cause of the following exception:",
        "Traceback (most recent call last):",
        "RuntimeError",
    ]
    assert stripped.count("in fail") == 2
    assert "row 7" not in stripped.replace('raise RuntimeError("row 7', "")


def test_without_messages_keeps_the_module_of_a_type() -> None:
    assert without_messages("Traceback (most recent call last):\n  File x\na.b.Bad: secret: more\n") == (
        "Traceback (most recent call last):\n  File x\na.b.Bad"
    )


def test_without_messages_leaves_nothing_of_a_text_that_is_no_traceback() -> None:
    assert without_messages("alice\n  alice") == ""
