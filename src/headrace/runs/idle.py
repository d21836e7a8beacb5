"""Maintenance by itself while a pipeline runs: when landing keeps up, between builds, a bounded step at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Lock, Thread

from headrace.errors import LockedError, UnavailableError
from headrace.runs.landing import Session
from headrace.runs.maintaining import Keeper, Maintained, list_work, maintain_table, maintaining
from headrace.services.embedded import Report
from headrace.tables.away import away_if_broken
from headrace.tables.catalog import open_catalog
from headrace.tables.spark_catalog import open_spark_catalog

_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
_MB = 1024 * 1024


class Idleness:
    """Whether landing keeps up, and whose turn it is: a round of builds, or a step of maintenance."""

    def __init__(self) -> None:
        self._turn = Lock()
        self.behind = 0

    def turn(self) -> AbstractContextManager[object]:
        return self._turn


@contextmanager
def maintained(session: Session, idleness: Idleness, *, report: Report) -> Iterator[None]:
    """Looks after the pipeline's tables while the block runs; those that others maintain or erase from are left to them."""
    stop, settings = Event(), session.settings
    # Opened here and not in the thread, where nobody would be told that there is no catalog.
    keeper = Keeper(settings, open_catalog(settings), idleness.turn, stop, most_bytes=settings.maintain_target_file_mb * _MB)
    thread = Thread(target=_follow, args=(session, keeper, idleness, report), name="maintenance", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _follow(session: Session, keeper: Keeper, idleness: Idleness, report: Report) -> None:
    settings, pipeline, stop = session.settings, session.pipeline, keeper.stop
    spark = open_spark_catalog(session.spark, settings)
    work = list_work(settings, [pipeline])
    while not stop.wait(settings.maintain_every_minutes * 60):
        for owner, target in work:
            _wait_until_idle(idleness, stop)
            if stop.is_set():
                return
            try:
                with maintaining(settings, owner, patience=_PATIENCE_SECONDS), away_if_broken():
                    done = maintain_table(keeper, spark, owner, target)
            except LockedError:
                continue
            except UnavailableError as error:
                report(f"maintenance: {error.what}; the rest is left for the next time")
                break
            except Exception as error:  # landing and builds go on, and what is wrong with the table they find out themselves
                report(f"{target.name}: maintenance ended with {type(error).__name__}: {str(error).splitlines()[:1]}")
                continue
            if done and done.changed:
                report(describe(done))


def describe(done: Maintained) -> str:
    """Gives back what maintenance did to a table, in a line."""
    before, after = done.before, done.after
    parts = [f"{before.files:,} files are {after.files:,}"] if before.files != after.files else []
    parts += [f"{before.snapshots:,} snapshots are {after.snapshots:,}"] if before.snapshots > after.snapshots else []
    parts += [f"{before.manifests:,} manifests are {after.manifests:,}"] if before.manifests > after.manifests else []
    parts += [f"{len(done.orphans.gone):,} files that nothing needs are deleted"] if done.orphans.gone else []
    return f"{done.name}  maintained: {', '.join(parts) or 'as it was'}  {done.seconds:.2f} s"


def _wait_until_idle(idleness: Idleness, stop: Event) -> None:
    while idleness.behind and not stop.is_set():
        stop.wait(_LOOK_SECONDS)
