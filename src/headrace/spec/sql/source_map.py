"""Map characters of SQL with expanded macros to locations in the file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Piece:
    """A part of expanded SQL and its offset in the file.

    A piece with a `macro` replaces the call at `start`. Any other piece is a copy of the file from `start` on.
    """

    text: str
    start: int
    macro: str = ""


@dataclass(frozen=True)
class Location:
    """A 1-based location in a file, and the macro whose body is expanded there."""

    line: int
    column: int
    macro: str = ""

    @property
    def note(self) -> str:
        """The suffix of an error that may be in a macro's body."""
        return f" (in {self.macro})" if self.macro else ""


@dataclass(frozen=True)
class SourceMap:
    """The file's original text, and the pieces of the expanded SQL."""

    written: str
    pieces: tuple[Piece, ...]

    @cached_property
    def _starts(self) -> Sequence[int]:
        return list(accumulate((len(piece.text) for piece in self.pieces), initial=0))[:-1]

    @property
    def breaks(self) -> tuple[tuple[int, int], ...]:
        """The spans of line breaks that only preserve the numbers of later lines."""
        starts = zip(self._starts, self.pieces, strict=True)
        return tuple((start, start + len(piece.text)) for start, piece in starts if piece.macro and not piece.text.strip("\n"))

    def locate(self, offset: int) -> Location:
        """Return the location of a character of the expanded SQL. For a macro's body, it is the start of the call."""
        if not self.pieces:
            return locate(self.written, offset)
        index = max(0, bisect_right(self._starts, offset) - 1)
        piece = self.pieces[index]
        return locate(
            self.written, piece.start if piece.macro else piece.start + offset - self._starts[index], macro=piece.macro
        )


def locate(text: str, offset: int, *, macro: str = "") -> Location:
    """Return the location of a character in a text."""
    return Location(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset), macro)
