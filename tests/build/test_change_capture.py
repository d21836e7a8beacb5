"""Changes of a database as events: in any order and batching, the table equals the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.errors import SpecError
from headrace.iceberg.ledgers.build import read_build
from headrace.spec.model.types import Column, Primitive, Struct
from tests.build.layer_lake import PIPELINE, START, LayerLake, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = (
    "id LONG, name STRING, body STRING, size INT, lsn LONG, nr INT, at TIMESTAMP, op STRING, snapshot STRING, "
    "untold ARRAY<STRING>"
)
SETTINGS = """keys: [id]
sequence_by: [lsn, nr]
apply_as_deletes: op = 'd'
apply_as_truncates: op = 't' OR snapshot = 'last'
unchanged: untold
except_column_list: [op, snapshot, untold]
"""
QUERY = "SELECT id, name, body, size, lsn, nr, at, op, snapshot, untold FROM pond.events"
HISTORY = f"{SETTINGS}stored_as_scd_type: 2\nvalid_from: at\n"
TABLES = {
    "schemas/event.sql": SCHEMA,
    "a/current.sql": f"/*\n{SETTINGS}expect:\n  a name: {{that: name IS NOT NULL, on_failure: drop}}\n*/\n{QUERY}",
    "a/history.sql": f"/*\n{HISTORY}*/\n{QUERY}",
    "b/names.sql": "/*\nkeys: [name]\n*/\nSELECT name, count(*) AS n, sum(size) AS size FROM pond.current GROUP BY name",
}


@dataclass(frozen=True)
class Change:
    """One event. `omitted` values are unchanged and not in the event."""

    op: str
    lsn: int
    tx: int = 0
    id: int | None = None
    name: str | None = None
    body: str | None = None
    size: int | None = None
    omitted: tuple[str, ...] = ()
    snapshot: str = "false"

    @property
    def at(self) -> datetime:
        return START + timedelta(minutes=self.tx)

    def row(self) -> dict[str, Any]:
        values = {name: None if name in self.omitted else getattr(self, name) for name in ("name", "body", "size")}
        return {
            "id": self.id,
            **values,
            "lsn": self.lsn,
            "nr": self.lsn % 7,
            "at": self.at,
            "op": self.op,
            "snapshot": self.snapshot,
            "untold": list(self.omitted) or None,
        }


def changes_of(random: Random, count: int) -> list[Change]:
    """Return what a database of few rows tells of its life: several changes in a transaction, keys that change and come
    again, values that updates leave out, truncates."""
    rows: dict[int, Change] = {}
    changes: list[Change] = []
    lsn = tx = 0
    while len(changes) < count:
        tx += random.random() < 0.6
        lsn += random.randrange(1, 5)
        key = random.randrange(5)
        if random.random() < 0.05:
            rows.clear()
            changes.append(Change("t", lsn, tx))
        elif key not in rows:
            new = Change("c", lsn, tx, key, random.choice("xyz"), random.choice([None, "long", "longer"]), random.randrange(9))
            rows[key] = new
            changes.append(new)
        elif random.random() < 0.2:
            changes.append(replace(rows.pop(key), op="d", lsn=lsn, tx=tx, omitted=()))
        elif random.random() < 0.15:
            other = (key + 1) % 5
            for row_key in [key, *([other] if other in rows else [])]:
                lsn += 1
                changes.append(replace(rows[row_key], op="d", lsn=lsn, tx=tx, omitted=()))
            before = {row_key: rows.pop(row_key, None) for row_key in (key, other)}
            for old, new_key in ((before[key], other), (before[other], key)):
                if old is not None:
                    lsn += 1
                    rows[new_key] = replace(old, op="c", lsn=lsn, tx=tx, id=new_key, omitted=())
                    changes.append(rows[new_key])
        else:
            omitted = tuple(name for name in ("body", "size") if random.random() < 0.5)
            now = replace(rows[key], op="u", lsn=lsn, tx=tx, name=random.choice("xyz"), omitted=omitted)
            now = now if "body" in omitted else replace(now, body=random.choice([None, "short", "long"]))
            now = now if "size" in omitted else replace(now, size=random.randrange(9))
            rows[key] = now
            changes.append(now)
    return changes


def shown(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted((name, str(value)) for name, value in row.items())) for row in rows)


def row_of(change: Change) -> dict[str, Any]:
    values = {**change.row(), "name": change.name, "body": change.body, "size": change.size}
    return {name: value for name, value in values.items() if name not in ("op", "snapshot", "untold")}


def current_of(changes: Sequence[Change]) -> Counter[str]:
    """Return the rows of a database after these changes, which are in order."""
    rows: dict[int | None, Change] = {}
    for change in changes:
        if change.op == "t":
            rows.clear()
        elif change.op == "d":
            rows.pop(change.id)
        else:
            rows[change.id] = change
    return shown(row_of(row) for row in rows.values())


def versions_of(changes: Sequence[Change]) -> Counter[str]:
    """Return every version of the rows of a database."""
    versions = []
    for index, change in enumerate(changes):
        if change.op in "dt":
            continue
        after = [later for later in changes[index + 1 :] if later.op == "t" or later.id == change.id]
        end = after[0].at if after else None
        versions.append({**row_of(change), "valid_from": change.at, "valid_to": end, "is_current": not after})
    return shown(versions)


def rows_of(layer_lake: LayerLake) -> dict[str, Counter[str]]:
    """Return the tables' rows without what is there for builds alone."""
    rows_by_table = {}
    for name in ("current", "history", "names"):
        rows = layer_lake.catalog.load_table(f"pond.{name}").scan().to_arrow().to_pylist()
        rows_by_table[name] = shown({key: value for key, value in row.items() if not key.startswith("_")} for row in rows)
    return rows_by_table


@given(seed=st.integers(0, 2**32))
@example(seed=3)
@hypothesis_settings(max_examples=1, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
def test_any_order_and_batching_yields_the_database(
    seed: int, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    random = Random(seed)
    changes = changes_of(random, 40)
    sent = [*changes, *random.sample(changes, 4)]
    random.shuffle(sent)
    if seed % 2:
        sent.sort(key=lambda change: change.lsn)
    layer_lake = LayerLake(tmp_path_factory.mktemp("pond"), spark, TABLES)
    for part in (sent[:15], sent[15:30], sent[30:]):
        layer_lake.land(part)
        layer_lake.build()
    stored = rows_of(layer_lake)
    assert_same(stored, {"current": current_of(changes), "history": versions_of(changes)})
    entry = read_build(layer_lake.catalog.load_table("pond.current"))
    assert entry.rows_unknown == 0
    layer_lake.build(full_refresh=True)
    assert_same(stored, rows_of(layer_lake))


def test_value_that_no_event_contains_is_null_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(
        tmp_path, spark, {name: TABLES[name] for name in ("schemas/event.sql", "a/current.sql", "a/history.sql")}
    )
    late = Change("c", 10, 1, 1, "x", "long", 1)
    cut = Change("u", 20, 2, 1, "y", omitted=("body", "size"))
    layer_lake.land([cut, Change("u", 21, 2, 2, "z", "short", omitted=("size",))])
    layer_lake.build()
    assert unknown(layer_lake, "current") == unknown(layer_lake, "history") == 2
    assert bodies(layer_lake) == {1: None, 2: "short"}
    layer_lake.land([late])
    layer_lake.build()
    assert bodies(layer_lake) == {1: "long", 2: "short"}
    assert unknown(layer_lake, "current") == unknown(layer_lake, "history") == 1
    layer_lake.land([Change("d", 15, 1, 1, "x"), Change("c", 5, 0, 2, "a", "b", 2)])
    layer_lake.build()
    assert bodies(layer_lake) == {1: None, 2: "short"}
    assert unknown(layer_lake, "current") == 1
    layer_lake.land([Change("c", 12, 1, 1, "x", "too early", 1)])
    layer_lake.build()
    assert bodies(layer_lake) == {1: None, 2: "short"}


def test_delete_resets_values_that_it_omits(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, TABLES)
    delete = Change("d", 15, 1, 1, "x", omitted=("body", "size"))
    layer_lake.land([Change("c", 10, 0, 1, "x", "long", 1), delete, Change("u", 20, 2, 1, "y", omitted=("body", "size"))])
    layer_lake.build()
    assert bodies(layer_lake) == {1: None}
    assert unknown(layer_lake, "current") == unknown(layer_lake, "history") == 1
    at_once = rows_of(layer_lake)
    layer_lake.land([delete])
    layer_lake.build()
    assert_same(rows_of(layer_lake), at_once)
    layer_lake.build(full_refresh=True)
    assert_same(rows_of(layer_lake), at_once)


def test_new_snapshot_removes_missing_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The events of a snapshot have one sequence, and come in any order; older ones that come later are gone as well."""
    tracked = TABLES["a/history.sql"].replace("valid_from: at", "valid_from: at\ntrack_history_except_column_list: [size]")
    layer_lake = LayerLake(tmp_path, spark, {**TABLES, "a/tracked.sql": tracked})
    layer_lake.land([Change("c", 10, 1, 1, "x"), Change("c", 11, 1, 2, "x"), Change("u", 12, 2, 2, "x", size=4)])
    layer_lake.build()
    taken = [Change("r", 50, 5, number, "y", snapshot=mark) for number, mark in ((2, "last"), (3, "true"))]
    layer_lake.land(taken[:1])
    layer_lake.build()
    layer_lake.land([*taken[1:], Change("c", 40, 4, 4, "z")])
    outcomes = {outcome.table.table.name: outcome.plan.action for outcome in layer_lake.build() if outcome.plan}
    assert outcomes["current"] == outcomes["tracked"] == "increment"
    by_increments = layer_lake.all_rows()
    assert rows_of(layer_lake)["current"] == shown(row_of(change) for change in taken)
    tracked_rows = layer_lake.catalog.load_table("pond.tracked").scan().to_arrow().to_pylist()
    ends = sorted((row["id"], row["lsn"], row["valid_to"], row["is_current"]) for row in tracked_rows)
    at = taken[0].at
    assert ends == [(1, 10, at, False), (2, 11, at, False), (2, 50, None, True), (3, 50, None, True), (4, 40, at, False)]
    layer_lake.build(full_refresh=True)
    assert_same(by_increments, layer_lake.all_rows())


ENVELOPE = """{"type": "record", "name": "Envelope", "fields": [
  {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
    {"name": "id", "type": "long"}, {"name": "size", "type": ["null", "int"]}]}]},
  {"name": "after", "type": ["null", "Value"]},
  {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}},
  {"name": "op", "type": "string"}]}"""
GROWING = {
    "pipeline.yml": PIPELINE.replace("format: json, schema: schemas/event.sql", "format: debezium, schema: schemas/event.avsc"),
    "schemas/event.avsc": ENVELOPE,
    "a/stage.sql": "SELECT after.*, op AS _op, source.lsn AS _lsn, kafka_offset FROM pond.events",
    "b/current.sql": "/*\nkeys: [id]\nsequence_by: [_lsn, kafka_offset]\napply_as_deletes: _op = 'd'\n"
    "except_column_list: [_op]\n*/\nSELECT * FROM pond.stage",
    "b/versions.sql": "/*\nkeys: [id]\nsequence_by: _lsn\nstored_as_scd_type: 2\n*/\nSELECT * FROM pond.stage",
    "c/all.sql": "/*\nkeys: [id]\nsequence_by: _lsn\n*/\nSELECT * FROM pond.current",
}


@dataclass(frozen=True)
class Envelope:
    lsn: int
    after: dict[str, Any] | None
    op: str = "u"

    def row(self) -> dict[str, Any]:
        return {"before": None, "after": self.after, "source": {"lsn": self.lsn}, "op": self.op}


def test_added_column_needs_no_refresh(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, GROWING)
    layer_lake.land([Envelope(1, {"id": 1, "size": 5}), Envelope(2, {"id": 2, "size": 6})])
    layer_lake.build()
    wider = Struct((Column("id", Primitive("long")), Column("size", Primitive("long")), Column("email", Primitive("string"))))
    layer_lake.widen((Column("after", wider),))
    layer_lake.land([Envelope(3, {"id": 2, "size": 2**40, "email": "a@b.c"})])
    layer_lake.build()
    for name in ("stage", "current", "versions", "all"):
        table = layer_lake.catalog.load_table(f"pond.{name}")
        emails = {(row["_lsn"], row["size"], row["email"]) for row in table.scan().to_arrow().to_pylist()}
        assert {(3, 2**40, "a@b.c"), (1, 5, None)} <= emails, name
        assert read_build(table).generation == 1, name
    by_increments = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_increments, layer_lake.all_rows())


def test_history_of_required_columns_is_refreshed_with_a_truncate(spark: SparkSession, tmp_path: Path) -> None:
    versions = (
        "/*\nkeys: [id]\nsequence_by: _lsn\nstored_as_scd_type: 2\napply_as_deletes: _op = 'd'\n"
        "apply_as_truncates: _op = 't'\n*/\nSELECT * FROM pond.stage"
    )
    layer_lake = LayerLake(tmp_path, spark, {**GROWING, "b/versions.sql": versions})
    layer_lake.land([Envelope(1, {"id": 1, "size": 5}), Envelope(2, None, op="t"), Envelope(3, {"id": 2, "size": 6})])
    layer_lake.build()
    rows = layer_lake.catalog.load_table("pond.versions").scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["valid_to"], row["is_current"]) for row in rows) == [(1, 2, False), (2, None, True)]
    layer_lake.land([Envelope(0, {"id": 3, "size": 7})])
    layer_lake.build()
    by_increments = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_increments, layer_lake.all_rows())


def test_history_of_a_history_rejects_reserved_columns(spark: SparkSession, tmp_path: Path) -> None:
    again = "/*\nkeys: [id]\nsequence_by: _lsn\nstored_as_scd_type: 2\n*/\nSELECT * FROM pond.versions"
    with pytest.raises(SpecError, match='column name "valid_from" is reserved: Headrace adds this column') as raised:
        LayerLake(tmp_path, spark, {**GROWING, "c/again.sql": again})
    assert "c/again.sql" in raised.value.where


def unknown(layer_lake: LayerLake, name: str) -> int:
    return read_build(layer_lake.catalog.load_table(f"pond.{name}")).rows_unknown


def bodies(layer_lake: LayerLake) -> dict[int, str | None]:
    """Return the bodies of the rows; the newest versions of the history have to have the same."""
    rows = layer_lake.catalog.load_table("pond.current").scan().to_arrow().to_pylist()
    versions = layer_lake.catalog.load_table("pond.history").scan(row_filter="is_current = true").to_arrow().to_pylist()
    body_by_id = {row["id"]: row["body"] for row in rows}
    assert {row["id"]: row["body"] for row in versions} == body_by_id
    return body_by_id
