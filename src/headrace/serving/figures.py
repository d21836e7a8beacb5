"""The figures of a pipeline, shared by the control room, `headrace status` and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from headrace.iceberg.commits.build_phases import BuildPhases
from headrace.iceberg.ledgers.build import CheckedExpectation, TrainedWeights

RATE_SECONDS = 60.0
"""The window over which rates are averaged."""
BEHIND_SECONDS = 60.0
"""The delay after which a stream or table counts as behind; shorter delays are normal."""

State = Literal["never", "fresh", "behind"]


@dataclass(frozen=True)
class StreamStatus:
    """A stream's figures.

    `lag` and `messages`, the number of messages in the topic, are None if Kafka does not run. `quarantined` is the number of
    messages in the quarantine now. `extras` counts rows per field that the schema does not name. `rate` is rows per second
    over the last minute, `freshness_seconds` the time since the last commit, and `batch_seconds` the duration of that
    checkpoint. `readable_since` is the time of the table's oldest snapshot, and `snapshots` their number.
    """

    label: str
    topic: str
    table: str
    rows: int
    rate: float
    checkpoint_id: int
    quarantined: int
    lag: int | None
    messages: int | None
    last_commit: datetime | None
    freshness_seconds: float | None
    batch_seconds: float | None
    extras: Mapping[str, int]
    gaps: tuple[tuple[int, int, int], ...]
    readable_since: datetime | None = None
    snapshots: int = 0

    @property
    def state(self) -> State:
        """Return the state: `behind` if messages have been waiting for longer than a batch should take."""
        if self.freshness_seconds is None:
            return "never"
        return "behind" if self.lag and self.freshness_seconds > BEHIND_SECONDS else "fresh"


@dataclass(frozen=True)
class TableStatus:
    """A layer table's figures.

    `behind_seconds` is for how long the table has lacked an upstream change; None if it was never built. `quarantined` is the
    number of rows in the quarantine now. `failing` are the expectations that rows of the last build failed. `rate` is rows
    added or changed per second over the last minute. `late_rows` is the number of rows behind the `watermark`, if there is one.
    `unknown_rows` is the number of rows with a value of `unchanged` that no event has contained.

    Of a table of entities, `largest_entity` is the number of records of its largest entity, `largest_expected` the number above
    which a build warns, and `weights` are the trained weights. `phases` are the seconds of the last build; builds of 0.1
    recorded none. The query of the last build computed `rows_in`, of which `rows_out` were added or changed. `index_bytes` and
    `cached_row_bytes` are the sizes of the file indexes and cached rows on this machine's disk. `readable_since` is the time of
    the oldest snapshot, and `snapshots` their number.
    """

    table: str
    kind: str
    rows: int
    rate: float
    build_id: int
    last_build: datetime | None
    freshness_seconds: float | None
    batch_seconds: float | None
    behind_seconds: float | None
    quarantined: int
    expectations: int
    failing: tuple[CheckedExpectation, ...]
    watermark: datetime | None = None
    late_rows: int | None = None
    unknown_rows: int | None = None
    largest_entity: int | None = None
    largest_expected: int | None = None
    weights: TrainedWeights | None = None
    phases: BuildPhases | None = None
    rows_in: int | None = None
    rows_out: int | None = None
    index_bytes: int | None = None
    cached_row_bytes: int | None = None
    readable_since: datetime | None = None
    snapshots: int = 0

    @property
    def bad_rows(self) -> int:
        """The number of failed expectations over all rows of the last build."""
        return sum(expectation.failed for expectation in self.failing)

    @property
    def warnings(self) -> int:
        """The number of failed expectations over the rows that the last build kept."""
        return sum(expectation.failed for expectation in self.failing if expectation.on_failure == "warn")

    @property
    def state(self) -> State:
        if self.behind_seconds is None:
            return "never"
        return "behind" if self.behind_seconds > BEHIND_SECONDS else "fresh"


@dataclass(frozen=True)
class PublishedStatus:
    """The figures of a published table.

    `rows` is None if nothing was published or Postgres does not answer. `behind_seconds` is for how long the lake has had a
    build that Postgres lacks.
    """

    table: str
    source: str
    rows: int | None = None
    build_id: int = 0
    last_published: datetime | None = None
    freshness_seconds: float | None = None
    behind_seconds: float | None = None

    @property
    def state(self) -> State:
        if self.rows is None:
            return "never"
        return "behind" if (self.behind_seconds or 0) > BEHIND_SECONDS else "fresh"


@dataclass(frozen=True)
class PipelineStatus:
    """A pipeline's figures at one moment. `running` is whether an application lands it."""

    name: str
    running: bool
    at: datetime
    streams: tuple[StreamStatus, ...]
    tables: tuple[TableStatus, ...]
    published: tuple[PublishedStatus, ...] = ()
