"""Run pipelines live in the background of a `with` block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from headrace.background import in_background

if TYPE_CHECKING:
    from headrace.app.display import Display
    from headrace.errors import HeadraceError
    from headrace.settings import Settings
    from headrace.spec.model.pipeline import Pipeline


class Run:
    """A run of pipelines. `failed` are the errors of the pipelines that could not be started."""

    def __init__(self, pipelines: tuple[str, ...], failed: tuple[HeadraceError, ...], stop: Event) -> None:
        self.pipelines = pipelines
        self.failed = failed
        self._stop = stop
        self._ended = Event()

    @property
    def is_running(self) -> bool:
        """Whether the run goes on: nothing has stopped it, and it has not failed."""
        return not self._ended.is_set() and not self._stop.is_set()

    def stop(self) -> None:
        """End the run after the current batches and builds."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the run ends, at most `seconds`, and return whether it ended. The `with` block raises its error."""
        return self._ended.wait(seconds)


@contextmanager
def run_pipelines(settings: Settings, pipelines: Sequence[Pipeline], *, display: Display, take_over: bool) -> Iterator[Run]:
    """Yield a run, and end it with the block. An error of the block is raised before one of the run."""
    from headrace.app.application import live_pipelines
    from headrace.app.live import run_live

    errors: list[BaseException] = []
    with (
        live_pipelines(settings, pipelines, report=display.report, take_over=take_over) as (live, failed),
        display.live(f"{', '.join(started.pipeline.name for started in live)}, live") as (board, stop),
    ):
        run = Run(tuple(started.pipeline.name for started in live), failed, stop)

        def work() -> None:
            try:
                run_live(live, stop=stop, board=board)
            except BaseException as error:
                errors.append(error)
            finally:
                run._ended.set()

        with in_background(work, name="run", end=stop.set):
            yield run
    for error in (*errors, *failed):
        raise error
