"""The figures of a pipeline that people look at: one set for the control room, `headrace status` and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from headrace.iceberg.commits.build_phases import BuildPhases
from headrace.iceberg.ledgers.build import CheckedExpectation, TrainedWeights

RATE_SECONDS = 60.0
"""The time that a rate is the average of."""
BEHIND_SECONDS = 60.0
"""What waits for longer than this is behind; less is how a flow breathes."""

State = Literal["never", "fresh", "behind"]


@dataclass(frozen=True)
class StreamStatus:
    """A stream's figures.

    `lag` and `messages`, which are in the topic now, are None where Kafka does not run; `quarantined` messages are in the
    quarantine now; `extras` counts the rows that hold a field which the schema does not name. `rate` is rows per second of the
    last minute, `freshness_seconds` the time since the last commit, and `batch_seconds` how long that checkpoint took.
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

    @property
    def state(self) -> State:
        """Return how the stream flows: behind are messages that have waited for longer than a batch should take."""
        if self.freshness_seconds is None:
            return "never"
        return "behind" if self.lag and self.freshness_seconds > BEHIND_SECONDS else "fresh"


@dataclass(frozen=True)
class TableStatus:
    """A layer table's figures. `behind_seconds` is how long something that it is made of, directly or by way of other tables,
    has been newer than its last build; None where it was never built. `quarantined` rows are in the quarantine now. `failing`
    are the expectations that rows of the last build failed. `rate` is rows per second that came or changed in the last minute.
    Where the table has a `watermark`, rows behind it count as late; `late_rows` is how many there were. Where it has
    `unchanged`, `unknown_rows` have a value that no event told. Of a table of entities, `largest_entity` is how many records
    the largest one has, and `largest_expected` how many it may have before a build warns; `weights` are the trained ones that
    records are compared with. `phases` are the seconds of the last build; builds of 0.1 recorded none. The last build's query
    computed `rows_in`, of which `rows_out` came into the table or changed there. `index_bytes` and `cached_row_bytes` are the
    sizes of the file indexes, and of the rows that they point at, which builds have written to this machine's disk."""

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

    @property
    def bad_rows(self) -> int:
        """How often a row of the last build failed an expectation."""
        return sum(each.failed for each in self.failing)

    @property
    def warnings(self) -> int:
        """How often a row of the last build failed an expectation and was kept."""
        return sum(each.failed for each in self.failing if each.otherwise == "count")

    @property
    def state(self) -> State:
        if self.behind_seconds is None:
            return "never"
        return "behind" if self.behind_seconds > BEHIND_SECONDS else "fresh"


@dataclass(frozen=True)
class PublishedStatus:
    """What Postgres has of a layer table. `rows` is None where nothing was published, or where Postgres does not answer.
    `behind_seconds` is for how long the lake has had a build that Postgres has not."""

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
    """A pipeline's figures at one moment. `running` says whether an application lands it now."""

    name: str
    running: bool
    at: datetime
    streams: tuple[StreamStatus, ...]
    tables: tuple[TableStatus, ...]
    published: tuple[PublishedStatus, ...] = ()
