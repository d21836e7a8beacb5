"""The terminal as commands write to it: a text is printed as it is, whatever is in it.

Rich would take `[red]` for markup and `:x:` for an emoji, and pass escape sequences on to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from headrace.printable import one_line, printable


class TerminalConsole(Console):
    """A console without markup and emoji codes, whose texts can't control the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and not renderable.plain.isprintable():
            renderable = _printable_text(renderable)
        return super().render(renderable, options)


def data_text(text: str) -> Text:
    """Return a value from data for a cell of a table: in one line, with its escapes, and without markup in any console."""
    return Text(one_line(text))


def _printable_text(text: Text) -> Text:
    """Return a text whose unsafe characters are escaped; where there are any, the styles of its parts are lost."""
    plain = printable(text.plain)
    if plain == text.plain:
        return text
    return Text(plain, style=text.style, justify=text.justify, overflow=text.overflow, no_wrap=text.no_wrap, end=text.end)
