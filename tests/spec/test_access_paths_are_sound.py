"""Soundness of access paths: dropping unreachable rows of lookups and drivers does not change the result of a query."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from headrace.spec import TableName
from headrace.spec.problems import Place
from headrace.spec.sql.access_paths import AccessPaths, access_paths, key_paths
from headrace.spec.sql.queries import parse_query
from tests.spec.random_queries import COLUMNS, KNOWN, SEEDS, Database, Lake, Row, Rows, lakes, queries

PLACE = Place("random.sql", "random")
EXAMPLES = 300
LAKES = 4
_seen: Counter[str] = Counter()


@pytest.fixture(scope="module")
def database() -> Database:
    return Database()


def project(rows: Rows, columns: Sequence[str]) -> set[Row]:
    indexes = [COLUMNS.index(column) for column in columns]
    return {tuple(row[index] for index in indexes) for row in rows}


def cut_lookups(paths: AccessPaths, lake: Lake, chance: random.Random) -> dict[TableName, Rows]:
    """Return the lake with only the rows of lookups that their paths reach, and sometimes a few others."""
    cut = dict(lake)
    generous = chance.choice([0.0, 0.5])
    for table in paths.order:
        lookup_paths = paths.lookups[table]
        if lookup_paths is None:
            continue
        needed = []
        for row in lake[table]:
            matches = False
            for path in lookup_paths:
                values = next(iter(project([row], path.columns)))
                matches |= None not in values and values in project(cut[path.source], path.source_columns)
            if matches or chance.random() < generous:
                needed.append(row)
        cut[table] = needed
    return cut


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(query=queries(), some_lakes=st.lists(lakes(), min_size=LAKES, max_size=LAKES), seed=SEEDS)
def test_access_paths_reach_every_needed_row(database: Database, query: str, some_lakes: list[Lake], seed: int) -> None:
    paths = access_paths(parse_query(query, place=PLACE), known=KNOWN)
    for table, lookup_paths in paths.lookups.items():
        _seen["followed" if lookup_paths is not None else "whole"] += 1
        _seen["chained"] += any(path.source in paths.lookups for path in lookup_paths or ())
        _seen["several"] += len(lookup_paths or ()) > 1
        event(f"{'followed' if lookup_paths is not None else 'whole'}")
        assert (table in paths.reasons) == (lookup_paths is None)
    chance = random.Random(seed)
    for lake in some_lakes if any(lookup_paths is not None for lookup_paths in paths.lookups.values()) else ():
        cut = cut_lookups(paths, lake, chance)
        _seen["cut"] += sum(map(len, cut.values())) < sum(map(len, lake.values()))
        assert database.run(query, cut) == database.run(query, lake), (paths, lake, cut)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(query=queries(), lake=lakes(), keys=st.sets(st.sampled_from(COLUMNS), min_size=1), seed=SEEDS)
def test_key_paths_reach_every_needed_row(database: Database, query: str, lake: Lake, keys: set[str], seed: int) -> None:
    parsed, chance = parse_query(query, place=PLACE), random.Random(seed)
    names = tuple(sorted(keys))
    by_driver = key_paths(parsed, names, known=KNOWN)
    _seen["mixed" if by_driver is None else "by_key" if any(by_driver.values()) else "all_keys"] += 1
    if by_driver is None:
        return
    result = database.run(query, lake)
    touched = {key for key in project(list(result), names) if chance.random() < 0.5}
    touched |= {tuple(chance.choice([None, 0, 1, 2, 3]) for _ in names) for _ in range(2)}
    cut = dict(lake)
    for table, columns in by_driver.items():
        if columns:
            indexes = [names.index(key) for _, key in columns]
            values = {tuple(key[index] for index in indexes) for key in touched}
            cut[table] = [row for row in lake[table] if project([row], [column for column, _ in columns]) <= values]
    _seen["keys_cut"] += cut != lake

    def of_touched(rows: Counter[Row]) -> Counter[Row]:
        return Counter({row: count for row, count in rows.items() if project([row], names) <= touched})

    assert of_touched(database.run(query, cut)) == of_touched(result), (by_driver, cut)
    both = cut_lookups(access_paths(parsed, known=KNOWN), cut, chance)
    assert of_touched(database.run(query, both)) == of_touched(result), (by_driver, both)


def test_random_queries_cover_every_construct() -> None:
    """Check the coverage of the random queries. Runs after the tests above, which count what they generate.

    Hypothesis draws other queries when other modules are loaded, so the bars are well below what EXAMPLES gives.
    """
    enough = {"followed": 40, "whole": 40, "chained": 8, "several": 8, "cut": 60, "mixed": 20, "by_key": 20, "keys_cut": 15}
    assert {name: _seen[name] for name, least in enough.items() if _seen[name] < least} == {}, _seen
