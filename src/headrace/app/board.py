"""Show the progress of a run: a live board on a terminal, otherwise one line per batch and build."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from headrace.iceberg.ledgers.build import BuildLedger
from headrace.landing.landed import Batch
from headrace.plurals import count_of
from headrace.servers.embedded import Report
from headrace.serving.entity_notes import describe_largest, describe_weights
from headrace.serving.publish.publish import Published
from headrace.sessions.building import Outcome
from headrace.spec.model.layers import OnFailure

_RATE_SECONDS = 10.0


@dataclass
class _Row:
    rows: int = 0
    quarantined: int = 0
    warnings: int = 0
    checkpoint_id: int = 0
    seconds: float = 0.0
    newest_change: float | None = None
    recent: deque[tuple[float, int]] = field(default_factory=deque)

    def rate(self, now: float) -> float:
        while self.recent and now - self.recent[0][0] > _RATE_SECONDS:
            self.recent.popleft()
        return sum(rows for _, rows in self.recent) / _RATE_SECONDS

    def freshness(self, now: float) -> str:
        """Return how long ago the table's newest change landed; empty if none has landed in this run."""
        return "" if self.newest_change is None else describe_age(now - self.newest_change)


@dataclass(frozen=True)
class Board:
    """The callbacks through which a run reports progress.

    `report` takes a message, `landed` a batch, `built` and `published` a table; `idle` refreshes the display.
    """

    report: Report
    landed: Callable[[Batch], None]
    built: Callable[[Outcome], None]
    published: Callable[[Published], None]
    idle: Callable[[], None]


@contextmanager
def live_board(console: Console, *, title: str) -> Iterator[Board]:
    """Yield a board that redraws live, with messages above it; without a terminal, one that prints plain lines."""
    if not console.is_terminal:
        yield lines(lambda sentence: console.print(sentence, highlight=False, markup=False, soft_wrap=True))
        return
    rows: dict[str, _Row] = {}
    behind: dict[str, int] = {}

    def say(sentence: str) -> None:
        console.print(sentence, highlight=False, markup=False)

    def built(outcome: Outcome) -> None:
        now, label = time.monotonic(), str(outcome.table.table)
        if label in rows and outcome.newest_change is not None:
            rows[label].newest_change = outcome.newest_change
        if outcome.built:
            row = rows.setdefault(label, _Row(newest_change=outcome.newest_change))
            row.rows += outcome.built.rows
            row.quarantined += count_failed(outcome.built.entry, "quarantine")
            row.warnings += count_failed(outcome.built.entry, "warn")
            row.checkpoint_id = outcome.built.entry.build_id
            row.seconds = outcome.built.seconds
            row.recent.append((now, outcome.built.rows))
            live.update(_draw(rows, behind, title))
        for sentence in describe(outcome, only_trouble=True):
            say(sentence)

    def published(done: Published) -> None:
        row = rows.setdefault(f"Postgres {done.table.name}", _Row())
        row.rows += done.rows
        row.checkpoint_id, row.seconds = done.build_id, done.seconds
        row.recent.append((time.monotonic(), done.rows))
        live.update(_draw(rows, behind, title))

    def landed(batch: Batch) -> None:
        now = time.monotonic()
        behind.update({part.label.split(".")[0]: batch.behind for part in batch.landed})
        for part in batch.landed:
            row = rows.setdefault(f"stream {part.label}", _Row())  # a table may have the same name
            row.rows += part.rows
            row.quarantined += part.bad
            row.checkpoint_id = part.checkpoint_id
            row.seconds, row.newest_change = batch.seconds, now
            row.recent.append((now, part.rows + part.bad))
        live.update(_draw(rows, behind, title))

    with Live(_draw(rows, behind, title), console=console, refresh_per_second=4) as live:
        try:
            yield Board(
                report=say,
                landed=landed,
                built=built,
                published=published,
                idle=lambda: live.update(_draw(rows, behind, title)),
            )
        finally:
            live.update(_draw(rows, behind, title, running=False))


def lines(say: Report) -> Board:
    """Return a board that prints one line per message, per stream of a batch, and per built or published table."""

    def landed(batch: Batch) -> None:
        for part in batch.landed:
            what = f"{count_of(part.rows, 'row')}  {part.bad:,} quarantined  {batch.seconds:.2f} s"
            say(f"{part.label}  checkpoint {part.checkpoint_id}  {what}")

    def built(outcome: Outcome) -> None:
        first, *others = describe(outcome) or ("",)
        if outcome.built and outcome.newest_change is not None:
            first = f"{first}  newest change landed {describe_age(time.monotonic() - outcome.newest_change)} ago"
        for sentence in filter(None, (first, *others)):
            say(sentence)

    def published(done: Published) -> None:
        deleted = f", {done.gone:,} deleted" if done.gone else ""
        rows = f"{count_of(done.rows, 'row')} to Postgres table {done.table.name}{deleted}"
        if not done.rows and not done.gone:
            rows = f"Postgres table {done.table.name} already has the lake's rows"
        say(f"{done.table.source}  build {done.build_id}  {rows}  {done.seconds:.2f} s")

    return Board(report=say, landed=landed, built=built, published=published, idle=lambda: None)


def describe(outcome: Outcome, *, only_trouble: bool = False) -> list[str]:
    """Return the lines for the outcome of a build; none if there was nothing to do."""
    name = str(outcome.table.table)
    if outcome.error:
        return [f"{name}  failed: {outcome.error}"]
    if outcome.because_of:
        return [f"{name}  skipped, because {outcome.because_of} failed"]
    if not outcome.built:
        return []
    entry, seconds = outcome.built.entry, outcome.built.seconds
    large = describe_largest(name, entry.largest_entity, outcome.table.largest_entity)
    if only_trouble:
        return large
    failed = f"{count_of(count_failed(entry, 'warn'), 'warning')}  {count_failed(entry, 'quarantine'):,} quarantined"
    trained = describe_weights(name, entry.weights) if entry.weights and entry.weights.version == entry.build_id else []
    rows = count_of(outcome.built.rows, "row")
    return [f"{name}  build {entry.build_id}  {rows}  {failed}  {seconds:.2f} s", *trained, *large]


def count_failed(entry: BuildLedger, on_failure: OnFailure) -> int:
    """Return the number of failures in a build, over all expectations with this `on_failure`."""
    return sum(result.failed for result in entry.expectations if result.on_failure == on_failure)


def describe_age(seconds: float) -> str:
    """Return an age in its largest fitting unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(0.0, seconds):.1f} s"


def _draw(rows: dict[str, _Row], behind: Mapping[str, int], title: str, *, running: bool = True) -> Table:
    table = Table(title=title, title_justify="left", caption="Ctrl-C to stop" if running else None, caption_justify="left")
    table.add_column("stream or table")
    for column in ("new rows", "rows/s", "quarantined", "warnings", "checkpoint or build", "seconds", "freshness"):
        table.add_column(column, justify="right")
    now = time.monotonic()
    for label, row in tuple(rows.items()):
        table.add_row(
            label,
            f"{row.rows:,}",
            f"{row.rate(now):,.0f}",
            f"{row.quarantined:,}",
            f"{row.warnings:,}",
            str(row.checkpoint_id),
            f"{row.seconds:.2f}",
            row.freshness(now),
        )
    messages = sum(behind.values())
    if not rows:
        table.add_row("nothing landed in this run yet" if running else "nothing to land", *[""] * 7)
    elif messages and running:
        table.caption = f"{count_of(messages, 'message')} behind; Ctrl-C to stop"
    return table
