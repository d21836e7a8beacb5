"""How an application shows its progress: on a terminal, or as lines through any function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from headrace.app.board import Board, lines


class Display(Protocol):
    """Shows messages before and after the work, and a board with an event that ends it while it runs."""

    @property
    def report(self) -> Callable[[str], None]: ...

    def live(self, title: str) -> AbstractContextManager[tuple[Board, Event]]: ...


@dataclass(frozen=True)
class LineDisplay:
    """Passes each message and each step to `report` as one line. Nothing sets its event."""

    report: Callable[[str], None]

    @contextmanager
    def live(self, title: str) -> Iterator[tuple[Board, Event]]:
        yield lines(self.report), Event()
