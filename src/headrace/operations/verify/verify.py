"""Compare the lake with a topic, offset by offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from confluent_kafka.admin import AdminClient
from pyiceberg.table import Table

from headrace.iceberg.files.storage import Storage
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.iceberg.rows.filters import column_is
from headrace.kafka.records import split_messages
from headrace.kafka.topics import describe_topics, list_bounds
from headrace.landing.batch import Range
from headrace.landing.commit_log import read_log
from headrace.landing.read import RangeReader
from headrace.landing.replaced_topics import check_topic
from headrace.operations.verify.log_history import files_of

_ROWS_AT_ONCE = 100_000
_KEYS = ["partition", "offset"]
_CHECKPOINT = "checkpoint_id"


@dataclass(frozen=True)
class Verified:
    """The comparison of a topic with the lake.

    `waiting` messages have not been landed yet; `missing` ones are before the landed offsets but not in the lake; `doubled`
    ones are in the lake more than once; `erased` ones were removed by an erasure. `unlogged` are data files of the table that
    the commit log lacks. `earlier` rows were landed from an earlier topic of the same name, before landing started over with
    this one; `landed` and `quarantined` do not include them.
    """

    label: str
    in_topic: int
    landed: int
    quarantined: int
    waiting: int
    missing: int
    doubled: int
    unlogged: int
    erased: int = 0
    earlier: int = 0
    examples: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not (self.missing or self.doubled or self.unlogged)


def verify_stream(
    label: str,
    topic: str,
    *,
    table: Table,
    quarantine: Table,
    commit_log: str,
    admin: AdminClient,
    consumer: Mapping[str, str],
    erased: Sequence[tuple[int, int]] = (),
) -> Verified:
    """Compare the committed messages of the topic with the lake, as of now.

    `erased` are the partitions and offsets that an erasure removed.

    Raise a TopicResetError if the table was landed from another topic, because its offsets can't be compared.
    """
    ledger = read_ledger(table)
    state = describe_topics(admin, [topic]).get(topic)
    check_topic(topic, ledger, state.identity if state else None)
    bounds = list_bounds(admin, [(topic, partition) for partition in (state.partitions if state else ())])
    in_topic = _offsets_in_topic(topic, bounds, consumer)
    every_landed = _stored_offsets(table.scan(selected_fields=("kafka_partition", "kafka_offset", _CHECKPOINT)).to_arrow())
    every_refused = _stored_offsets(
        quarantine.scan(row_filter=column_is("stream", label), selected_fields=(*_KEYS, _CHECKPOINT)).to_arrow()
    )
    current = pl.col(_CHECKPOINT) >= ledger.first_checkpoint
    landed, refused = every_landed.filter(current).select(_KEYS), every_refused.filter(current).select(_KEYS)
    stored = pl.concat([landed, refused])
    doubled = stored.group_by(_KEYS).len().filter(pl.col("len") > 1)
    removed = pl.DataFrame(list(erased), schema={"partition": pl.Int32, "offset": pl.Int64}, orient="row").unique()
    lacking = in_topic.join(stored, on=_KEYS, how="anti")
    absent = lacking.join(removed, on=_KEYS, how="anti")
    ends = pl.DataFrame(
        {"partition": list(ledger.offsets), "end": list(ledger.offsets.values())},
        schema={"partition": pl.Int32, "end": pl.Int64},
    )
    missing = absent.join(ends, on="partition", how="inner").filter(pl.col("offset") < pl.col("end"))
    logged = {entry.s3_key for entry in read_log(commit_log, storage=Storage.of(table.io.properties))}
    unlogged = sorted(files_of(table) - logged)
    return Verified(
        label=label,
        in_topic=in_topic.height,
        landed=landed.height,
        quarantined=refused.height,
        waiting=absent.height - missing.height,
        missing=missing.height,
        doubled=doubled.height,
        unlogged=len(unlogged),
        erased=lacking.height - absent.height,
        earlier=every_landed.height + every_refused.height - stored.height,
        examples=(
            *(f"missing: {topic}[{partition}] offset {offset}" for partition, offset in _first(missing)),
            *(f"doubled: {topic}[{partition}] offset {offset}" for partition, offset in _first(doubled)),
            *(f"not in the commit log: {path}" for path in unlogged[:3]),
        ),
    )


def _offsets_in_topic(
    topic: str, bounds: Mapping[tuple[str, int], tuple[int, int]], consumer: Mapping[str, str]
) -> pl.DataFrame:
    ranges = [Range(topic, partition, low, high) for (_, partition), (low, high) in bounds.items()]
    return pl.concat([_frame(None), *_read_offsets(ranges, consumer)])


def _read_offsets(ranges: list[Range], consumer: Mapping[str, str]) -> Iterator[pl.DataFrame]:
    reader = RangeReader(tuple(sorted(consumer.items())))
    for records in reader.read(ranges):
        for messages in split_messages(records, rows=_ROWS_AT_ONCE):
            yield _frame(messages.places.select(_KEYS))


def _frame(table: pa.Table | None) -> pl.DataFrame:
    if table is None:
        return pl.DataFrame(schema={"partition": pl.Int32, "offset": pl.Int64})
    frame = pl.from_arrow(table.rename_columns(_KEYS))
    assert isinstance(frame, pl.DataFrame)
    return frame.cast({"partition": pl.Int32, "offset": pl.Int64})


def _stored_offsets(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table.rename_columns([*_KEYS, _CHECKPOINT]))
    assert isinstance(frame, pl.DataFrame)
    return frame.cast({"partition": pl.Int32, "offset": pl.Int64, _CHECKPOINT: pl.Int64})


def _first(frame: pl.DataFrame) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in frame.sort(_KEYS).head(3).to_dicts()]
