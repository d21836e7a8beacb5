"""Compare replayed messages with the lake, message by message, and stage the differences.

Partition and offset identify a message. Each message is in one class: see `Counts`.
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
from headrace.operations.replay.ranges import HeldOffsets, gap_error
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
    """The number of messages per class.

    `unchanged` and `replaced` had a row and have one now. `new` were not in the lake. `recovered` move from the quarantine to
    the table, `still_refused` stay in the quarantine, `refused` are new in it. `kept` keep their row, although they are refused
    now.
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
        """The number of new and replaced rows in the raw table."""
        return self.replaced + self.new + self.recovered


@dataclass(frozen=True)
class ReplayDiff:
    """The changes of a replay: files of the raw table, and the messages that leave or enter the quarantine."""

    counts: Counts
    files: Replaced = field(default_factory=Replaced)
    recovered: frozenset[Coordinates] = frozenset()
    refused: frozenset[Coordinates] = frozenset()


@dataclass(frozen=True)
class ExcludedMessages:
    """Messages that a replay ignores, because an erasure removed or redacted their rows."""

    erased: Sequence[Coordinates] = ()
    redacted: Sequence[Coordinates] = ()


def find_held(spark: SparkSession, target: Target) -> Mapping[int, HeldOffsets]:
    """Return the first and last offset per partition within the target's window, in the raw table and the quarantine."""
    table = load_java_table(spark, target.stream.table)
    with _landed(spark, table, target) as (rows, _):
        ends = rows.groupBy(KEYS[0]).agg(F.min(KEYS[1]), F.max(KEYS[1])).collect()
    held = {int(row[0]): HeldOffsets(int(row[1]), int(row[2])) for row in ends}
    for partition, offset in coordinates(target.quarantined_rows()):
        known = held.get(partition, HeldOffsets(offset, offset))
        held[partition] = HeldOffsets(min(known.first, offset), max(known.last, offset))
    return held


def compare(
    spark: SparkSession, target: Target, read: Staged, *, excluded: ExcludedMessages, whole: bool, stage: bool
) -> ReplayDiff:
    """Return the differences between the replayed messages and the lake; with `stage`, including staged files.

    With `whole`, all messages of the window were read again: raise a GapError if the lake has another one. Without it, only
    quarantined messages were read again, or some of them.
    """
    table = load_java_table(spark, target.stream.table)
    written = scan_written(spark, table, read.files)
    bad = [
        at
        for at, moment in zip(coordinates(read.bad), read.bad["timestamp"].to_pylist(), strict=True)
        if in_window(moment, target.window)
    ]
    quarantined = coordinates(target.quarantined_rows())
    with _landed(spark, table, target) as (landed, planned), read_files(spark, table, written) as fresh:
        replayed = _without(spark, fresh.drop(FILE).where(_in_window(target.window)), (*excluded.erased, *excluded.redacted))
        stored = _without(spark, landed, excluded.redacted)
        if not whole:
            stored = stored.join(_places(spark, quarantined), KEYS, "left_semi")
        classified = _classify(spark, stored, replayed, quarantined=quarantined, bad=bad, excluded=excluded).persist()
        try:
            counts = _count(classified, target, whole=whole)
            files = Replaced()
            if stage and counts.changed:
                files = _stage(spark, table, classified, replayed, planned=planned, target=target)
            recovered = _collect(classified, "recovered")
            refused = _collect(classified, "refused")
        finally:
            classified.unpersist()
    return ReplayDiff(counts, files, recovered, refused)


@contextmanager
def _landed(spark: SparkSession, table: JavaObject, target: Target) -> Iterator[tuple[DataFrame, Mapping[str, JavaObject]]]:
    """Yield the rows of the window that were landed when the replay was planned, and the files that may contain them."""
    planned = plan_files(table, snapshot_id=int(table.currentSnapshot().snapshotId()), where=_iceberg(spark, target.window))
    ends = [F.lit(value) for partition, end in sorted(target.ledger.offsets.items()) for value in (partition, end)]
    passed = F.col(KEYS[1]) < F.create_map(*ends)[F.col(KEYS[0])] if ends else F.lit(False)
    with read_files(spark, table, planned) as rows:
        of_topic = (F.col("kafka_topic") == target.stream.topic) & _is_current(target)
        yield rows.where(of_topic & passed & _in_window(target.window)), planned.tasks


def _classify(
    spark: SparkSession,
    landed: DataFrame,
    fresh: DataFrame,
    *,
    quarantined: Sequence[Coordinates],
    bad: Sequence[Coordinates],
    excluded: ExcludedMessages,
) -> DataFrame:
    """Return the class of each message, and the file and checkpoint of its row if it had one."""
    old = landed.select(
        *KEYS,
        F.col(FILE).alias("file"),
        F.col("checkpoint_id").alias("came"),
        F.col("kafka_timestamp").alias("was_at"),
        _digest(landed).alias("was"),
    )
    new = fresh.select(*KEYS, F.col("kafka_timestamp").alias("is_at"), _digest(fresh).alias("is"))
    now_bad = _without(spark, _places(spark, bad), (*excluded.erased, *excluded.redacted))
    classified = old.join(new, KEYS, "full")
    classified = classified.join(_places(spark, quarantined).withColumn("quarantined", F.lit(True)), KEYS, "full")
    classified = classified.join(now_bad.withColumn("bad", F.lit(True)), KEYS, "full")
    had, has = F.col("was").isNotNull(), F.col("is").isNotNull()
    kind = (
        F.when(had & has & ~F.col("was_at").eqNullSafe(F.col("is_at")), "other_message")
        .when(had & has & (F.col("was") == F.col("is")), "unchanged")
        .when(had & has, "replaced")
        .when(had & F.col("bad"), "kept")
        .when(had, "missing")
        .when(has & F.col("quarantined"), "recovered")
        .when(has, "new")
        .when(F.col("bad") & F.col("quarantined"), "still_refused")
        .when(F.col("bad"), "refused")
        .otherwise("missing")
    )
    return classified.select(*KEYS, "file", "came", kind.alias("kind"))


def _count(classified: DataFrame, target: Target, *, whole: bool) -> Counts:
    classes = {
        row["kind"]: row
        for row in classified.groupBy("kind")
        .agg(F.count(F.lit(1)).alias("messages"), F.min(F.struct(*KEYS)).alias("first"))
        .collect()
    }
    topic = target.stream.topic
    if "other_message" in classes:
        partition, offset = classes["other_message"]["first"]
        raise TopicResetError(
            f"offset {offset} of partition {partition} is not the message that was landed: its timestamp differs",
            where=f"topic {topic}",
            next_step="Nothing was changed. The topic was deleted and created again, or this is another Kafka cluster.",
        )
    if whole and "missing" in classes:
        (partition, offset), count = classes["missing"]["first"], classes["missing"]["messages"]
        raise gap_error(topic, [f"{count:,} messages in between, the first at offset {offset} of partition {partition}"])
    return Counts(**{kind: int(row["messages"]) for kind, row in classes.items() if kind != "missing"})


def _stage(
    spark: SparkSession,
    table: JavaObject,
    classified: DataFrame,
    fresh: DataFrame,
    *,
    planned: Mapping[str, JavaObject],
    target: Target,
) -> Replaced:
    """Return the files with rows to replace, and staged files with the rest of their rows and the new rows."""
    changed = classified.where(F.col("kind").isin("replaced", "new", "recovered"))
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
    """Return the condition for rows of the current topic. Rows of an earlier topic may have the same coordinates."""
    return F.col("checkpoint_id") >= F.lit(target.ledger.first_checkpoint)


def _digest(rows: DataFrame) -> Column:
    """Return a hash of a row's values. It hashes JSON, because Spark can't compare maps."""
    values = [named(name) for name in rows.columns if name not in _NOT_VALUES and name != FILE]
    return F.md5(F.to_json(F.struct(*values), {**EXACT_JSON, "ignoreNullFields": "false"}))


def _without(spark: SparkSession, rows: DataFrame, places: Sequence[Coordinates]) -> DataFrame:
    return rows.join(_places(spark, places), KEYS, "left_anti") if places else rows


def _places(spark: SparkSession, places: Sequence[Coordinates]) -> DataFrame:
    return spark.createDataFrame(list(dict.fromkeys(places)), _COORDINATES)


def _collect(classified: DataFrame, kind: str) -> frozenset[Coordinates]:
    return frozenset((int(row[0]), int(row[1])) for row in classified.where(F.col("kind") == kind).select(*KEYS).collect())


def _in_window(window: Window) -> Column:
    condition = F.lit(True)
    if window.since is not None:
        condition = condition & (F.col("kafka_timestamp") >= F.lit(window.since))
    if window.until is not None:
        condition = condition & (F.col("kafka_timestamp") < F.lit(window.until))
    return condition


def _iceberg(spark: SparkSession, window: Window) -> JavaObject:
    """Return the window as an Iceberg expression, to skip files outside of it."""
    expressions = iceberg_class(spark, "expressions.Expressions")
    condition = expressions.alwaysTrue()
    for moment, compared in ((window.since, expressions.greaterThanOrEqual), (window.until, expressions.lessThan)):
        if moment is not None:
            condition = getattr(expressions, "and")(
                condition, compared("kafka_timestamp", round(moment.timestamp() * 1_000_000))
            )
    return condition
