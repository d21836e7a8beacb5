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
    """What a task needs to land one stream of one batch. Schemas are the table's current ones, as Iceberg's JSON.

    `owner` is the table's UUID. File names contain it, because several tables may share an output folder.
    `refused_before` are the partitions and offsets whose rejected rows are already in the quarantine. `registry_url` is the
    schema registry that resolves the schema ids in messages.
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
    """One task: its ranges and the streams of their topics. The name of each file that it writes contains `batch`.

    `consumer` and `storage` are the connection settings of Kafka and the warehouse, passwords included.
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
    """Why a task could not land a stream: `what` in one line, and the traceback. `unavailable` means that a server is down."""

    what: str
    trace: str
    unavailable: bool = False


@dataclass(frozen=True)
class StreamResult:
    """The result of one task for one stream.

    `growth` has the columns of each schema that the table lacks; all other fields are then empty. `refused` are reasons to
    show to the user: why all messages of a schema were refused, and errors that single messages caused. `traces` has the
    tracebacks of the latter. With `failure`, the task wrote nothing for the stream.
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
    """Return one sentence per stream and reason for which messages were refused."""
    return tuple(
        f"{label}: messages go to the quarantine: {reason}"
        for label, parts in results.items()
        for reason in dict.fromkeys(reason for part in parts for reason in part.refused)
    )
