"""A small build that crashes at any step and is restarted reaches the same result, for every kind of table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from headrace.build import build as build_module
from headrace.build import keeping, merge_on_read
from headrace.build.entities import build as entity_build
from headrace.build.entities import index as entity_index
from headrace.build.lake import Lake
from headrace.build.local_inputs import LocalInputs
from headrace.build.strategies import aggregate
from headrace.build.strategies import entities as entity_strategy
from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.files.live_files import LiveFiles
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.metadata import quarantine
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.iceberg.rows.row_store import RowStore
from headrace.sessions import building
from headrace.sessions.building import Outcome
from headrace.settings import Settings
from headrace.spec.model.layers import STATE
from tests.build.layer_lake import CHECKED, TABLES, Event, LayerLake, assert_same
from tests.build.paths import counted_paths
from tests.support.crashing import Death, killed_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_FILES = {
    "a/appended.sql": TABLES["a/appended.sql"],
    "a/present.sql": """/*
keys: [k]
sequence_by: n
apply_as_deletes: op = 'd'
except_column_list: [op]
*/
SELECT k, n, g, amount, at, op FROM pond.events""",
    "a/versions.sql": TABLES["a/versions.sql"],
    "b/sums.sql": """/*
keys: [g]
*/
SELECT g, count(*) AS keys, sum(amount) AS amount FROM pond.present GROUP BY g""",
    "b/distinct.sql": """/*
keys: [g]
*/
SELECT g, count(DISTINCT k) AS keys, array_sort(collect_set(n)) AS all_n FROM pond.present GROUP BY g""",
    "b/rolling.sql": """/*
keys: [k]
window: {partition_by: [g], order_by: at, range: 1 hour}
*/
SELECT k, g, at, count(*) OVER w AS rows_1h, sum(amount) OVER w AS amount_1h
FROM pond.present
WINDOW w AS (PARTITION BY g ORDER BY at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)""",
    "b/people.sql": """/*
kind: entities
keys: [k]
sequence_by: n
oldest_by: at
match:
  group_name: {from: g, as: exact, max_records: 50}
*/
SELECT k, n, g, amount, at FROM pond.events WHERE op <> 'd'""",
    "c/totals.sql": """/*
kind: full
*/
SELECT count(*) AS keys, sum(amount) AS amount FROM pond.present""",
}
_KINDS = MappingProxyType(
    {
        "appended": "append",
        "present": "upsert",
        "versions": "history",
        "sums": "aggregate",
        "distinct": "aggregate",
        "rolling": "features",
        "people": "entities",
        "totals": "full",
    }
)
"""The tables in the order in which they are built: `sums` adds states, `distinct` computes its keys again."""

_COMMITTED = ("lost answer", "committed")
"""The steps at which a build has committed: the next one has nothing to do."""


def _reached(place: str, *, module: object = build_module) -> Death:
    return Death(module, "fault_point", "before", lambda reached: reached == place)


def _steps(table: str, catalog: type) -> Mapping[str, Death]:
    """Return how a build of the table can die, in the order of its steps; a step that its kind does not have is left out."""
    kind, name = _KINDS[table], f"pond.{table}"

    def is_own(_catalog: object, committed: Any, *_: object) -> bool:
        return ".".join(committed.name()) == name

    steps = {
        "plan": Death(building, "plan_table", "after", lambda *args, **_: args[-1].action != "nothing"),
        "changes": Death(LocalInputs, "changes", "after"),
        "touched keys": Death(LocalInputs, "old_rows", "before"),
        "fetch": Death(RowStore, "fetch", "after", lambda *_, match=None, **__: match is not None),
        "compute": Death(LocalInputs, "check", "after"),
        "write deletes": Death(merge_on_read, "stage_position_deletes", "after", lambda *args: bool(args[-1].files)),
        "write rows": Death(merge_on_read, "stage_rows", "after", lambda *args, **_: bool(args[-1])),
        "kept": _reached(f"{name}:kept", module=keeping),
        "commit": Death(catalog, "commit_table", "before", is_own),
        "lost answer": Death(catalog, "commit_table", "after", is_own),
        "committed": _reached(f"{name}:committed"),
    }
    if table != "present":  # nobody needs the old rows of the others
        del steps["kept"]
    if table == "sums":  # it reads the states of its keys, and nothing else
        steps["touched keys"] = Death(LocalInputs, "old_rows", "before", lambda *args: args[-1] == ["g", STATE])
    if table == "distinct":  # it reads all rows of its keys
        steps["touched keys"] = Death(LocalInputs, "near", "before")
    if kind in ("append", "full"):  # neither reads nor deletes rows of its own
        del steps["touched keys"], steps["write deletes"]
        steps["fetch"] = Death(RowStore, "fetch", "after")
    if kind == "full":
        steps["changes"] = Death(LocalInputs, "whole", "after")
    if kind == "entities":
        steps |= {
            "touched keys": Death(entity_index.RecordIndex, "with_keys", "after"),
            "fetch": Death(entity_index, "read_arrow", "after"),
            "compute": Death(entity_strategy, "change_entities", "after"),
            "write deletes": Death(entity_strategy, "stage_position_deletes", "after", lambda *args: bool(args[-1].files)),
            "write rows": Death(entity_strategy, "stage_rows", "after", lambda *args, **_: bool(args[-1])),
        }
    return steps


def _first_events(count: int) -> list[Event]:
    return [
        Event(f"first{number}", f"first{number}", f"first{number}", 1, 100 + number, "u", number) for number in range(count)
    ]


def _events_of_step(number: int, step: str, before: str) -> list[Event]:
    """Return what is landed before builds die at a step.

    Keys and groups are named after the step, and no later step heals what is wrong with them: `alone` and its group are never
    touched again, the step after this one changes `moves` and deletes `goes`. Their group keeps so many rows that one which
    was taken out of its states twice leaves a wrong count, and not one that has to be computed again. An event that comes
    after the deletion is older. A row of the first build changes too: its file keeps all other rows, and is not written again.
    """
    n = 10 * number

    def event(key: str, group: str, *, op: str = "u", late: int = 0) -> Event:
        return Event(f"{step} {key} {op}{late}", key, group, n - late, 1_000 + n, op, 60 * number + len(key))

    alone = event(f"{step} alone", f"{step} alone")
    return [
        alone,
        alone,
        *(event(f"{step} {key}", step) for key in ("stays", "stays, too", "stays as well", "stays also", "moves", "goes")),
        event(f"{before} moves", step),
        event(f"{before} goes", before, op="d"),
        event(f"{before} goes", before, late=5),
        event(f"first{number}", f"first{number}"),
    ]


def _restarted(lake: Lake) -> Lake:
    """Return the lake as a new process opens it: with nothing in memory."""
    return Lake(
        spark=lake.spark,
        small=lake.small,
        catalog=open_catalog(lake.settings),
        settings=lake.settings,
        pipeline=lake.pipeline,
        columns=lake.columns,
        files=LiveFiles(),
        store=RowStore(lake.settings.row_cache, most_bytes=lake.settings.build_cache_mb * 1024 * 1024),
    )


def test_crashed_small_build_recovers_at_any_step(
    spark: SparkSession, tmp_path: Path, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "FEW_ROWS_OF_KEYS", 0)  # states are added up, however few rows a key has
    monkeypatch.setattr(entity_build, "MOST_DELETED", 0.5)
    layer_lake = LayerLake(tmp_path, spark, _FILES, settings=lake_settings)
    catalog = type(layer_lake.lake.catalog)
    deaths = {table: _steps(table, catalog) for table in _KINDS}
    steps = list(deaths["present"])  # it has all of them
    layer_lake.land([*_first_events(3 * len(steps)), *_events_of_step(1, "zeroth", "none")])
    layer_lake.build()
    for number, (before, step) in enumerate(pairwise(["zeroth", *steps]), start=2):
        layer_lake.land(_events_of_step(number, step, before))
        for position, table in enumerate(_KINDS):
            if step in deaths[table]:
                _die_and_build_again(layer_lake, table, step, deaths[table][step], restarts=(number + position) % 2 == 0)
            else:
                _build(layer_lake, table)
    rows = layer_lake.all_rows()
    assert [table for table in _KINDS if max(rows[table].values()) > 1] == ["appended"], "only it repeats what was sent twice"
    layer_lake.build(full_refresh=True)
    assert_same(rows, layer_lake.all_rows())


def test_rejected_rows_of_a_killed_small_build_are_quarantined_once(
    spark: SparkSession, tmp_path: Path, lake_settings: Settings
) -> None:
    """Refused rows reach the quarantine after the commit: the next build finds them in the table's entry."""
    layer_lake = LayerLake(tmp_path, spark, {"a/checked.sql": CHECKED.format(on_failure="quarantine")}, settings=lake_settings)

    def land(number: int) -> None:
        refused, passed = (
            Event(f"{name}{number}", "k", "g", number, cents, "u", 0) for name, cents in (("bad", -1), ("good", 1))
        )
        layer_lake.land([refused, passed])

    deaths = {
        "staged": _reached("pond.checked:staged"),
        "committed": _reached("pond.checked:committed"),
        "before the quarantine": Death(quarantine, "append_once", "before"),
        "after the quarantine": Death(quarantine, "append_once", "after"),
    }
    land(0)
    layer_lake.build()
    for number, (what, death) in enumerate(deaths.items(), start=1):
        land(number)
        with killed_by(death, what=what):
            _build(layer_lake, "checked")
        layer_lake.lake = _restarted(layer_lake.lake)
        land(10 * number)
        _build(layer_lake, "checked")
    refused = layer_lake.catalog.load_table(str(QUARANTINE)).scan().to_arrow()["original_bytes"].to_pylist()
    numbers = [0, *(sent for number in range(1, len(deaths) + 1) for sent in (number, 10 * number))]
    assert sorted(json.loads(row)["id"] for row in refused) == sorted(f"bad{number}" for number in numbers)
    assert sum(layer_lake.rows("checked").values()) == len(numbers)


def _die_and_build_again(layer_lake: LayerLake, table: str, step: str, death: Death, *, restarts: bool) -> None:
    """Check what a death leaves behind and what the next build does, in a new process or in this one."""
    what = f"{table} at {step}"
    build_id = _build_id(layer_lake, table)
    has_committed = step in _COMMITTED
    with counted_paths() as taken:
        with killed_by(death, what=what):
            _build(layer_lake, table)
        assert _build_id(layer_lake, table) == build_id + has_committed, what
        if restarts:
            layer_lake.lake = _restarted(layer_lake.lake)
        outcome = _build(layer_lake, table)
    assert (outcome.built is None) == has_committed, what
    assert _build_id(layer_lake, table) == build_id + 1, what
    assert set(taken) == (set() if _KINDS[table] in ("entities", "full") else {"LocalInputs"}), what


def _build(layer_lake: LayerLake, table: str) -> Outcome:
    """Build one table whose inputs are up to date, in a thread of its own, as runs do."""
    chosen = next(candidate for candidate in layer_lake.pipeline.tables if candidate.table.name == table)
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(building.build_one, layer_lake.lake, chosen, full_refresh=False).result()
    if outcome.error:
        raise outcome.error
    return outcome


def _build_id(layer_lake: LayerLake, table: str) -> int:
    return read_build(layer_lake.catalog.load_table(f"pond.{table}")).build_id
