"""The values that pass between the six steps of a batch, from the driver to a task and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile

from headrace.iceberg.files.storage import Storage
from headrace.spec.model.pipeline import Stream
from headrace.spec.model.types import Column


@dataclass(frozen=True)
class Range:
    """Offsets `start` (included) to `end` (excluded) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class StreamJob:
    """What a task needs to know of one stream in one batch. Schemas are Iceberg's JSON, as the table has them now.

    `owner` is the table's UUID, which is in the name of its files: they may be told to lie where others have theirs.
    `refused_before` are partitions and offsets whose rejected rows are in the quarantine already. `registry_url` is where the
    schemas are that messages name by id.
    """

    stream: Stream
    label: str
    owner: str
    checkpoint_id: int
    schema_json: str
    spec_json: str
    quarantine_schema_json: str
    output: str
    commit_log: str
    quarantine_output: str
    refused_before: frozenset[tuple[int, int]] = frozenset()
    registry_url: str = ""


@dataclass(frozen=True)
class TaskPlan:
    """One task: some ranges, and the streams that their topics belong to. `batch` is in the name of each file it writes.

    `consumer` and `storage` say how Kafka and the warehouse are reached, with their passwords.
    """

    subtask: int
    batch: str
    jobs: tuple[StreamJob, ...]
    ranges: tuple[Range, ...]
    consumer: tuple[tuple[str, str], ...] = field(repr=False)
    storage: Storage
    driver_pid: int


@dataclass(frozen=True)
class TaskFailure:
    """Why a task could not land a stream: `what` in a line, and the traceback. `unavailable` means that a server is away."""

    what: str
    trace: str
    unavailable: bool = False


@dataclass(frozen=True)
class StreamResult:
    """What one task made of one stream.

    `growth` has the columns of each schema that the table has no place for yet: then nothing else is here. `refused` are
    reasons to be shown: those for which all messages of a schema were refused, and errors that single messages caused, of
    which `traces` has the tracebacks. With `failure`, nothing of the stream was written.
    """

    label: str
    rows: int
    bad: int
    files: Sequence[DataFile]
    quarantine_files: Sequence[DataFile]
    extras: Mapping[str, int] = field(default_factory=dict)
    growth: tuple[tuple[Column, ...], ...] = ()
    refused: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    failure: TaskFailure | None = None


def growth_of(results: Sequence[StreamResult]) -> tuple[tuple[Column, ...], ...]:
    return tuple(dict.fromkeys(columns for result in results for columns in result.growth))


def refusals(results: Mapping[str, Sequence[StreamResult]]) -> tuple[str, ...]:
    """Return a sentence for each reason for which all messages of a schema were refused."""
    return tuple(
        f"{label}: messages go to the quarantine, {reason}"
        for label, parts in results.items()
        for reason in dict.fromkeys(reason for part in parts for reason in part.refused)
    )
