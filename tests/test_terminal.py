"""Data on a terminal: escapes, markup and emoji codes are printed as they are, and nothing in them is obeyed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli import shared
from headrace.cli.render.results import show_rows
from headrace.printable import one_line, printable
from headrace.serving.values import print_json
from headrace.terminal import TerminalConsole, data_text

HOSTILE = {
    "clear the screen": "\x1b[2J",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://example.com\x1b\\text\x1b]8;;\x1b\\",
    "8-bit CSI": "\x9b31m",
    "over the line": "good\rbad",
    "backspace": "abc\b\b\bxyz",
    "turned around": "invoice\u202efdp.exe",
    "isolate": "\u2066a\u2069",
    "delete": "\x7f",
    "tag": "\U000e0041",
    "paragraph": "a\u2029b",
}
AS_THEY_ARE = (
    "a:x:b",
    ":warning:",
    "[red]x[/red]",
    "[/]",
    "[link=http://example.com]x[/link]",
    "\\[b]",
    "\u0645\u06cc\u200c\u062e\u0648",
    "👩\u200d👧",
    "é\u00a0!",
)


def on_a_terminal(print_to: Callable[[Console], None], kind: type[Console] = TerminalConsole) -> str:
    file = io.StringIO()
    print_to(kind(file=file, force_terminal=True, color_system=None, width=200))
    return file.getvalue()


def unsafe(text: str) -> list[str]:
    return [character for character in text if character != "\n" and printable(character, keep="") != character]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_terminal_would_obey_is_escaped(name: str) -> None:
    text = HOSTILE[name]
    table = Table("column")
    table.add_row(text)
    table.add_row(Text(text, style="bold"))
    assert unsafe(on_a_terminal(lambda console: console.print(Text(text), soft_wrap=True))) == []
    for shown in (
        on_a_terminal(lambda console: console.print(text)),
        on_a_terminal(lambda console: console.print(table)),
        on_a_terminal(lambda console: show_rows(console, pa.table({text: [text]}))),
        on_a_terminal(lambda console: show_rows(console, pa.table({text: [text]})), Console),
    ):
        assert unsafe(shown) == []
        assert "\\u" in shown or "\\r" in shown


@pytest.mark.parametrize("text", AS_THEY_ARE)
def test_markup_and_emoji_codes_are_printed_as_they_are(text: str) -> None:
    table = Table("column")
    table.add_row(text)
    assert on_a_terminal(lambda console: console.print(text)) == f"{text}\n"
    assert text in on_a_terminal(lambda console: console.print(table))
    assert text in on_a_terminal(lambda console: show_rows(console, pa.table({text: [text]})))
    assert text in on_a_terminal(lambda console: show_rows(console, pa.table({text: [text]})), Console)


def test_row_of_an_answer_is_one_line() -> None:
    shown = on_a_terminal(lambda console: show_rows(console, pa.table({"x": ["a\nb\tc"]})))
    assert "a\\nb\\tc" in shown
    assert data_text("a\nb").plain == "a\\nb"


def test_every_command_prints_to_a_console_that_escapes() -> None:
    assert isinstance(shared.out, TerminalConsole)
    assert isinstance(shared.err, TerminalConsole)


def test_json_is_exact_and_has_nothing_that_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"value": text, text: 1} for text in (*HOSTILE.values(), *AS_THEY_ARE)]
    print_json(rows)
    out = capsys.readouterr().out
    assert json.loads(out) == rows
    assert unsafe(out) == []


@given(st.text())
def test_safe_text_has_no_unsafe_character_and_keeps_all_others(text: str) -> None:
    assert unsafe(one_line(text)) == []
    assert "\n" not in one_line(text)
    assert printable(text.replace("\\", "")).count("\n") == text.count("\n")
    if not unsafe(text) and "\n" not in text:
        assert one_line(text) == text
