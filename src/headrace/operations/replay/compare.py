"""What was read again is held against the lake, message by message, and what differs is staged.

A message is known by its partition and offset. Each falls into one class: see `Counts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import TopicResetError
from headrace.iceberg.commits.erase_commit import Replaced
from headrace.iceberg.files.spark_files import (
    FILE,
    JavaObject,
    load_java_table,
    plan_files,
    read_files,
    scan_written,
    stage_files,
)
from headrace.iceberg.files.write import ROWS_PER_FILE
from headrace.iceberg.ledgers.replay import Window
from headrace.operations.replay.ranges import Held, gap_error
from headrace.operations.replay.target import Coordinates, Staged, Target, coordinates, in_window
from headrace.spark.columns import named
from headrace.spark.java_classes import iceberg_class
from headrace.spark.times import EXACT_JSON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KEYS = ["kafka_partition", "kafka_offset"]
_COORDINATES = "kafka_partition INT, kafka_offset BIGINT"
_NOT_VALUES = frozenset({*KEYS, "kafka_topic", "kafka_timestamp", "checkpoint_id"})


@dataclass(frozen=True)
class Counts:
    """How many messages of each class there are.

    `unchanged` and `replaced` had a row and have one now. `new` were nowhere in the lake. `recovered` were in the quarantine
    and have a row now, `still_refused` stay there, `refused` are new there. `kept` have a row, although they can't be read now.
    """

    unchanged: int = 0
    replaced: int = 0
    new: int = 0
    recovered: int = 0
    still_refused: int = 0
    refused: int = 0
    kept: int = 0

    @property
    def changed(self) -> int:
        """How many rows come into the raw table, or are other ones."""
        return self.replaced + self.new + self.recovered


@dataclass(frozen=True)
class Compared:
    """What a replay changes: files of the raw table, and which messages leave the quarantine or come into it."""

    counts: Counts
    files: Replaced = field(default_factory=Replaced)
    recovered: frozenset[Coordinates] = frozenset()
    refused: frozenset[Coordinates] = frozenset()


@dataclass(frozen=True)
class LeftAlone:
    """Messages that a replay does not touch: their rows were erased with a person, or stand without what names one."""

    erased: Sequence[Coordinates] = ()
    redacted: Sequence[Coordinates] = ()


def find_held(spark: SparkSession, target: Target) -> Mapping[int, Held]:
    """Return which offsets the lake has within the target's window, by partition; the quarantine's too."""
    table = load_java_table(spark, target.stream.table)
    with _landed(spark, table, target) as (rows, _):
        found = rows.groupBy(KEYS[0]).agg(F.min(KEYS[1]), F.max(KEYS[1])).collect()
    held = {int(row[0]): Held(int(row[1]), int(row[2])) for row in found}
    for partition, offset in coordinates(target.quarantined_rows()):
        known = held.get(partition, Held(offset, offset))
        held[partition] = Held(min(known.first, offset), max(known.last, offset))
    return held


def compare(spark: SparkSession, target: Target, read: Staged, *, left_alone: LeftAlone, whole: bool, stage: bool) -> Compared:
    """Return what differs between what was read again and the lake; with `stage`, with files to be committed.

    With `whole` all messages of the target's window were read again, and one that the lake has and that is not among them is an
    error; else those that the quarantine has were, or some of them.
    """
    table = load_java_table(spark, target.stream.table)
    written = scan_written(spark, table, read.files)
    bad = [
        at
        for at, moment in zip(coordinates(read.bad), read.bad["timestamp"].to_pylist(), strict=True)
        if in_window(moment, target.window)
    ]
    aside = coordinates(target.quarantined_rows())
    with _landed(spark, table, target) as (landed, planned), read_files(spark, table, written) as fresh:
        ours = _without(spark, fresh.drop(FILE).where(_in_window(target.window)), (*left_alone.erased, *left_alone.redacted))
        theirs = _without(spark, landed, left_alone.redacted)
        if not whole:
            theirs = theirs.join(_places(spark, aside), KEYS, "left_semi")
        told = _tell(spark, theirs, ours, aside=aside, bad=bad, left_alone=left_alone).persist()
        try:
            counts = _count(told, target, whole=whole)
            files = Replaced()
            if stage and counts.changed:
                files = _stage(spark, table, told, ours, planned=planned, target=target)
            recovered = _collect(told, "recovered")
            refused = _collect(told, "refused")
        finally:
            told.unpersist()
    return Compared(counts, files, recovered, refused)


@contextmanager
def _landed(spark: SparkSession, table: JavaObject, target: Target) -> Iterator[tuple[DataFrame, Mapping[str, JavaObject]]]:
    """Yield the rows of the window that landing had passed when the replay was planned, and the files that can hold them."""
    planned = plan_files(table, snapshot_id=int(table.currentSnapshot().snapshotId()), where=_iceberg(spark, target.window))
    ends = [F.lit(value) for partition, end in sorted(target.ledger.offsets.items()) for value in (partition, end)]
    passed = F.col(KEYS[1]) < F.create_map(*ends)[F.col(KEYS[0])] if ends else F.lit(False)
    with read_files(spark, table, planned) as rows:
        mine = (F.col("kafka_topic") == target.stream.topic) & _is_current(target)
        yield rows.where(mine & passed & _in_window(target.window)), planned.tasks


def _tell(
    spark: SparkSession,
    landed: DataFrame,
    fresh: DataFrame,
    *,
    aside: Sequence[Coordinates],
    bad: Sequence[Coordinates],
    left_alone: LeftAlone,
) -> DataFrame:
    """Return the class of each message, and the file and checkpoint of its row where it had one."""
    old = landed.select(
        *KEYS,
        F.col(FILE).alias("file"),
        F.col("checkpoint_id").alias("came"),
        F.col("kafka_timestamp").alias("was_at"),
        _digest(landed).alias("was"),
    )
    new = fresh.select(*KEYS, F.col("kafka_timestamp").alias("is_at"), _digest(fresh).alias("is"))
    ours = _without(spark, _places(spark, bad), (*left_alone.erased, *left_alone.redacted))
    told = old.join(new, KEYS, "full")
    told = told.join(_places(spark, aside).withColumn("aside", F.lit(True)), KEYS, "full")
    told = told.join(ours.withColumn("bad", F.lit(True)), KEYS, "full")
    had, has = F.col("was").isNotNull(), F.col("is").isNotNull()
    kind = (
        F.when(had & has & ~F.col("was_at").eqNullSafe(F.col("is_at")), "remade")
        .when(had & has & (F.col("was") == F.col("is")), "unchanged")
        .when(had & has, "replaced")
        .when(had & F.col("bad"), "kept")
        .when(had, "gone")
        .when(has & F.col("aside"), "recovered")
        .when(has, "new")
        .when(F.col("bad") & F.col("aside"), "still_refused")
        .when(F.col("bad"), "refused")
        .otherwise("gone")
    )
    return told.select(*KEYS, "file", "came", kind.alias("kind"))


def _count(told: DataFrame, target: Target, *, whole: bool) -> Counts:
    found = {
        row["kind"]: row
        for row in told.groupBy("kind")
        .agg(F.count(F.lit(1)).alias("messages"), F.min(F.struct(*KEYS)).alias("first"))
        .collect()
    }
    topic = target.stream.topic
    if "remade" in found:
        partition, offset = found["remade"]["first"]
        raise TopicResetError(
            f"offset {offset} of partition {partition} is another message than the one that was landed: it has another time",
            where=f"topic {topic}",
            next_step="Nothing was changed. The topic was deleted and made again, or this is another Kafka.",
        )
    if whole and "gone" in found:
        (partition, offset), count = found["gone"]["first"], found["gone"]["messages"]
        raise gap_error(topic, [f"{count:,} messages in between, the first at offset {offset} of partition {partition}"])
    return Counts(**{kind: int(row["messages"]) for kind, row in found.items() if kind != "gone"})


def _stage(
    spark: SparkSession,
    table: JavaObject,
    told: DataFrame,
    fresh: DataFrame,
    *,
    planned: Mapping[str, JavaObject],
    target: Target,
) -> Replaced:
    """Return the files that hold rows to be replaced, and staged ones with the rest of their rows and the new ones."""
    changed = told.where(F.col("kind").isin("replaced", "new", "recovered"))
    paths = sorted(row["file"] for row in changed.where(F.col("file").isNotNull()).select("file").distinct().collect())
    old = plan_files(table, snapshot_id=int(table.currentSnapshot().snapshotId())).among(paths)
    assert old.tasks.keys() <= planned.keys()
    count = sum(int(task.file().recordCount()) for task in old.tasks.values()) + changed.count()
    came = F.coalesce(F.col("came"), F.lit(target.ledger.checkpoint_id).cast("long"))
    rows = fresh.join(changed.select(*KEYS, "came"), KEYS).withColumn("checkpoint_id", came)
    with read_files(spark, table, old) as whole:
        current = _is_current(target)
        rest = whole.where(current).join(changed.select(*KEYS), KEYS, "left_anti").unionByName(whole.where(~current))
        columns = [named(name) for name in whole.drop(FILE).columns]
        both = rest.select(*columns).unionByName(rows.select(*columns))
        staged = stage_files(spark, table, both.coalesce(max(1, count // ROWS_PER_FILE)))
    return Replaced(tuple(task.file() for task in old.tasks.values()), staged.files)


def _is_current(target: Target) -> Column:
    """Return the condition for rows of the current topic: rows of an earlier one may have the same partition and offset."""
    return F.col("checkpoint_id") >= F.lit(target.ledger.first_checkpoint)


def _digest(rows: DataFrame) -> Column:
    """Return what tells whether a row has the same values as another. Maps can't be compared, their text can."""
    values = [named(name) for name in rows.columns if name not in _NOT_VALUES and name != FILE]
    return F.md5(F.to_json(F.struct(*values), {**EXACT_JSON, "ignoreNullFields": "false"}))


def _without(spark: SparkSession, rows: DataFrame, places: Sequence[Coordinates]) -> DataFrame:
    return rows.join(_places(spark, places), KEYS, "left_anti") if places else rows


def _places(spark: SparkSession, places: Sequence[Coordinates]) -> DataFrame:
    return spark.createDataFrame(list(dict.fromkeys(places)), _COORDINATES)


def _collect(told: DataFrame, kind: str) -> frozenset[Coordinates]:
    return frozenset((int(row[0]), int(row[1])) for row in told.where(F.col("kind") == kind).select(*KEYS).collect())


def _in_window(window: Window) -> Column:
    condition = F.lit(True)
    if window.since is not None:
        condition = condition & (F.col("kafka_timestamp") >= F.lit(window.since))
    if window.until is not None:
        condition = condition & (F.col("kafka_timestamp") < F.lit(window.until))
    return condition


def _iceberg(spark: SparkSession, window: Window) -> JavaObject:
    """Return the window as Iceberg's expression, so that files that lie outside it are not opened."""
    expressions = iceberg_class(spark, "expressions.Expressions")
    condition = expressions.alwaysTrue()
    for moment, compared in ((window.since, expressions.greaterThanOrEqual), (window.until, expressions.lessThan)):
        if moment is not None:
            condition = getattr(expressions, "and")(
                condition, compared("kafka_timestamp", round(moment.timestamp() * 1_000_000))
            )
    return condition
