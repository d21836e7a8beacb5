"""Which place of a file a character of expanded SQL comes from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Piece:
    """A part of expanded SQL and the offset in the file that it comes from.

    A piece with a `macro` stands for the call at `start`; any other piece is a copy of the file from `start` on.
    """

    text: str
    start: int
    macro: str = ""


@dataclass(frozen=True)
class Location:
    """A place in a file, counted from 1, and the macro whose body is meant there."""

    line: int
    column: int
    macro: str = ""

    @property
    def note(self) -> str:
        """What an error adds where the mistake may be in a macro's body."""
        return f" (in {self.macro})" if self.macro else ""


@dataclass(frozen=True)
class SourceMap:
    """The file's text as it was written, and the pieces that the expanded SQL consists of."""

    written: str
    pieces: tuple[Piece, ...]

    @cached_property
    def _starts(self) -> Sequence[int]:
        return list(accumulate((len(piece.text) for piece in self.pieces), initial=0))[:-1]

    @property
    def breaks(self) -> tuple[tuple[int, int], ...]:
        """Where line breaks stand that only keep later lines in their places."""
        starts = zip(self._starts, self.pieces, strict=True)
        return tuple((start, start + len(piece.text)) for start, piece in starts if piece.macro and not piece.text.strip("\n"))

    def locate(self, offset: int) -> Location:
        """Return the place of a character of the expanded SQL: for one of a macro's body, where the call begins."""
        if not self.pieces:
            return locate(self.written, offset)
        index = max(0, bisect_right(self._starts, offset) - 1)
        piece = self.pieces[index]
        return locate(
            self.written, piece.start if piece.macro else piece.start + offset - self._starts[index], macro=piece.macro
        )


def locate(text: str, offset: int, *, macro: str = "") -> Location:
    """Return the line and column of a character of a text."""
    return Location(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset), macro)
