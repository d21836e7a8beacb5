"""The mistakes of a pipeline folder: each with its file and line, all reported at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from headrace.errors import SpecError

_WHERE = re.compile(r"(?P<file>.*?):(?P<line>\d+)(:\d+)?")
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A file as errors show it, and the argument that makes `headrace check` read it again."""

    label: str
    argument: str

    def error(self, what: str, *, line: int, fix: str, column: int | None = None) -> SpecError:
        """Return the error for a line or a column in it. `fix` says what to do, without a full stop."""
        where = f"{self.label}:{line}" if column is None else f"{self.label}:{line}:{column}"
        return SpecError(what, where=where, next_step=f"{fix}, then run: headrace check {self.argument}")


@dataclass
class Problems:
    """The errors collected so far, so that a check continues after the first one."""

    errors: list[SpecError] = field(default_factory=list)

    def attempt(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return the result of `read`, or None if it raised a SpecError, which is collected."""
        try:
            return read(*args, **kwargs)
        except SpecError as error:
            self.errors.append(error)
            return None

    @contextmanager
    def without_follow_ons(self, causes: Collection[str]) -> Iterator[None]:
        """Drop errors raised in the block that mention one of `causes`: names whose own mistake is already reported."""
        before = len(self.errors)
        yield
        if causes:
            mentioned = re.compile("|".join(rf"(?<![\w.]){re.escape(cause)}(?![\w.])" for cause in sorted(causes)))
            self.errors[before:] = [error for error in self.errors[before:] if not mentioned.search(error.what)]

    def in_reading_order(self) -> tuple[SpecError, ...]:
        """Return the errors without duplicates, by file in the order of first appearance, then by line."""
        files: dict[str, int] = {}
        errors = list({(error.where, error.what): error for error in self.errors}.values())
        for error in errors:
            files.setdefault(_file_and_line(error)[0], len(files))
        return tuple(sorted(errors, key=lambda error: (files[_file_and_line(error)[0]], _file_and_line(error)[1])))


def show_path(path: Path, *, folder: Path) -> str:
    """Return the path relative to the working folder if it lies inside it, else the absolute path."""
    try:
        return path.relative_to(folder).as_posix()
    except ValueError:
        return path.as_posix()


def suggest(word: str, known: Iterable[str], *, plural: str) -> str:
    """Return `Did you mean "topic"?` for a close match, else a list of all options."""
    options = list(known)
    close = difflib.get_close_matches(word, options, n=1)
    if close:
        return f'Did you mean "{close[0]}"?'
    return f"{plural} are: {', '.join(options)}." if options else f"No {plural.lower()} are defined here."


def _file_and_line(error: SpecError) -> tuple[str, int]:
    match = _WHERE.fullmatch(error.where)
    return (match["file"], int(match["line"])) if match else (error.where, 0)
