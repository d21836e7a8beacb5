"""Changes of a database as events: in whatever order they come and however they are cut, the table is the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.tables.build_ledger import read_build
from tests.layers.pond import START, Pond, assert_same

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
    "a/current.sql": f"/*\n{SETTINGS}expect:\n  a name: {{that: name IS NOT NULL, otherwise: drop}}\n*/\n{QUERY}",
    "a/history.sql": f"/*\n{HISTORY}*/\n{QUERY}",
    "b/names.sql": "/*\nkeys: [name]\n*/\nSELECT name, count(*) AS n, sum(size) AS size FROM pond.current GROUP BY name",
}


@dataclass(frozen=True)
class Change:
    """One event. `untold` values are those that it left unchanged and does not tell."""

    op: str
    lsn: int
    tx: int = 0
    id: int | None = None
    name: str | None = None
    body: str | None = None
    size: int | None = None
    untold: tuple[str, ...] = ()
    snapshot: str = "false"

    @property
    def at(self) -> datetime:
        return START + timedelta(minutes=self.tx)

    def row(self) -> dict[str, Any]:
        told = {name: None if name in self.untold else getattr(self, name) for name in ("name", "body", "size")}
        return {
            "id": self.id,
            **told,
            "lsn": self.lsn,
            "nr": self.lsn % 7,
            "at": self.at,
            "op": self.op,
            "snapshot": self.snapshot,
            "untold": list(self.untold) or None,
        }


def changes_of(random: Random, count: int) -> list[Change]:
    """Gives back what a database of few rows tells of its life: several changes in a transaction, keys that change and come
    again, values that updates leave out, truncates."""
    rows: dict[int, Change] = {}
    found: list[Change] = []
    lsn = tx = 0
    while len(found) < count:
        tx += random.random() < 0.6
        lsn += random.randrange(1, 5)
        key = random.randrange(5)
        if random.random() < 0.05:
            rows.clear()
            found.append(Change("t", lsn, tx))
        elif key not in rows:
            new = Change("c", lsn, tx, key, random.choice("xyz"), random.choice([None, "long", "longer"]), random.randrange(9))
            rows[key] = new
            found.append(new)
        elif random.random() < 0.2:
            found.append(replace(rows.pop(key), op="d", lsn=lsn, tx=tx, untold=()))
        elif random.random() < 0.15:
            other = (key + 1) % 5
            for each in [key, *([other] if other in rows else [])]:
                lsn += 1
                found.append(replace(rows[each], op="d", lsn=lsn, tx=tx, untold=()))
            before = {each: rows.pop(each, None) for each in (key, other)}
            for old, new_key in ((before[key], other), (before[other], key)):
                if old is not None:
                    lsn += 1
                    rows[new_key] = replace(old, op="c", lsn=lsn, tx=tx, id=new_key, untold=())
                    found.append(rows[new_key])
        else:
            untold = tuple(name for name in ("body", "size") if random.random() < 0.5)
            now = replace(rows[key], op="u", lsn=lsn, tx=tx, name=random.choice("xyz"), untold=untold)
            now = now if "body" in untold else replace(now, body=random.choice([None, "short", "long"]))
            now = now if "size" in untold else replace(now, size=random.randrange(9))
            rows[key] = now
            found.append(now)
    return found


def shown(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted((name, str(value)) for name, value in row.items())) for row in rows)


def told(change: Change) -> dict[str, Any]:
    values = {**change.row(), "name": change.name, "body": change.body, "size": change.size}
    return {name: value for name, value in values.items() if name not in ("op", "snapshot", "untold")}


def current_of(changes: Sequence[Change]) -> Counter[str]:
    """Gives back the rows of a database after these changes, which are in order."""
    rows: dict[int | None, Change] = {}
    for each in changes:
        if each.op == "t":
            rows.clear()
        elif each.op == "d":
            rows.pop(each.id)
        else:
            rows[each.id] = each
    return shown(told(each) for each in rows.values())


def versions_of(changes: Sequence[Change]) -> Counter[str]:
    """Gives back every version of the rows of a database."""
    found = []
    for index, each in enumerate(changes):
        if each.op in "dt":
            continue
        after = [later for later in changes[index + 1 :] if later.op == "t" or later.id == each.id]
        end = after[0].at if after else None
        found.append({**told(each), "valid_from": each.at, "valid_to": end, "is_current": not after})
    return shown(found)


def rows_of(pond: Pond) -> dict[str, Counter[str]]:
    """Gives back the tables' rows without what is there for builds alone."""
    found = {}
    for name in ("current", "history", "names"):
        rows = pond.catalog.load_table(f"pond.{name}").scan().to_arrow().to_pylist()
        found[name] = shown({key: value for key, value in row.items() if not key.startswith("_")} for row in rows)
    return found


@given(seed=st.integers(0, 2**32))
@hypothesis_settings(max_examples=2, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
def test_any_order_and_any_cut_give_the_database(
    seed: int, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    random = Random(seed)
    changes = changes_of(random, 40)
    sent = [*changes, *random.sample(changes, 4)]
    random.shuffle(sent)
    pond = Pond(tmp_path_factory.mktemp("pond"), spark, TABLES, schema=SCHEMA)
    for part in (sent[:15], sent[15:30], sent[30:]):
        pond.land(part)
        pond.build()
    found = rows_of(pond)
    assert_same(found, {"current": current_of(changes), "history": versions_of(changes)})
    entry = read_build(pond.catalog.load_table("pond.current"))
    assert entry.rows_unknown == 0
    pond.build(full_refresh=True)
    assert_same(found, rows_of(pond))
