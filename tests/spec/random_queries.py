"""Generate random queries over small tables with the columns p, q and r, and run them in DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

import duckdb
import sqlglot
from hypothesis import reject
from hypothesis import strategies as st

from headrace.spec import TableName

COLUMNS = ("p", "q", "r")
DRIVERS = ("lake.d", "lake.e")
LOOKUPS = ("lake.l", "lake.m", "lake.n")
TABLES = tuple(TableName.parse(name) for name in (*DRIVERS, *LOOKUPS))
KNOWN = dict.fromkeys(TABLES, COLUMNS)

Row = tuple[int | None, ...]
Rows = list[Row]
Lake = Mapping[TableName, Rows]

VALUES = (None, 0, 1, 2, 3)
MOST_ROWS = 6
SEEDS = st.integers(0, 2**48)


@dataclass
class QueryWriter:
    """Write a query from random choices. CTEs are collected, so that several places can read the same one."""

    random: Random
    ctes: list[str] = field(default_factory=list)
    of_drivers: list[str] = field(default_factory=list)
    of_lookups: list[str] = field(default_factory=list)
    names: int = 0

    def write(self) -> str:
        query = self.query(3, drives=True)
        return f"WITH {', '.join(self.ctes)} {query}" if self.ctes else query

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def query(self, depth: int, *, drives: bool) -> str:
        join = ("join",) * 6
        common = (*join, "project", "project", "group", "group", "window", "union", "union", "union", "distinct")
        form = self.pick(*(("project", "group") if depth == 0 else (*common, "qualify", "total", "limit", "aggregate_away")))
        return str(getattr(self, f"_{form}")(depth, drives))

    def source(self, depth: int, drives: bool) -> str:
        """Return a source for FROM or JOIN, without an alias."""
        known = self.of_drivers if drives else self.of_lookups
        if known and self.chance(15):
            return self.pick(*known)
        if depth <= 0 or self.chance(45):
            if drives or self.chance(7):
                return self.pick("lake.d", "lake.d", "lake.e")
            return self.pick(*LOOKUPS)
        query = self.query(depth - 1, drives=drives)
        if not self.chance(50):
            return f"({query})"
        self.names += 1
        name = f"cte{self.names}"
        self.ctes.append(f"{name} AS ({query})")
        known.append(name)
        return name

    def columns(self, *aliases: str) -> list[str]:
        """Return three columns, one of which may be an expression."""
        chosen = [f"{self.pick(*aliases)}.{self.pick(*COLUMNS)}" for _ in COLUMNS]
        if self.chance(60):
            chosen = [f"{self.pick(*aliases)}.{name}" for name in COLUMNS]
        if self.chance(20):
            index = int(self.pick("0", "1", "2"))
            other = f"{self.pick(*aliases)}.{self.pick(*COLUMNS)}"
            chosen[index] = self.pick(
                f"coalesce({chosen[index]}, {other})",
                f"{chosen[index]} + 1",
                "1",
                "CAST(NULL AS INT)",
                f"CASE WHEN {other} > 1 THEN {chosen[index]} ELSE {other} END",
            )
        return chosen

    def named(self, columns: Sequence[str]) -> str:
        return ", ".join(f"{column} AS {name}" for column, name in zip(columns, COLUMNS, strict=True))

    def _project(self, depth: int, drives: bool) -> str:
        where = f" WHERE s.{self.pick(*COLUMNS)} {self.pick('> 0', 'IS NOT NULL', '<> 2', '= 1')}" if self.chance(40) else ""
        columns = self.named(self.columns("s"))
        return f"SELECT {columns} FROM {self.source(depth - 1, drives)} AS s{where}"

    def _distinct(self, depth: int, drives: bool) -> str:
        return f"SELECT DISTINCT {self.named(self.columns('s'))} FROM {self.source(depth - 1, drives)} AS s"

    def _group(self, depth: int, drives: bool) -> str:
        first, second, third = [f"s.{name}" for name in self.random.sample(COLUMNS, 3)]
        source = f"FROM {self.source(depth - 1, drives)} AS s"
        aggregate = self.pick("max", "min", "sum", "count")
        having = " HAVING count(*) > 1" if self.chance(15) else ""
        if self.chance(70):
            return f"SELECT {first} AS p, {aggregate}({second}) AS q, count(*) AS r {source} GROUP BY {first}{having}"
        if self.chance(70):
            return f"SELECT {first} AS p, {second} AS q, {aggregate}({third}) AS r {source} GROUP BY {first}, {second}{having}"
        return f"SELECT {first} AS p, {second} AS q, count(*) AS r {source} GROUP BY ROLLUP({first}, {second})"

    def _total(self, depth: int, drives: bool) -> str:
        return f"SELECT max(s.p) AS p, count(s.q) AS q, sum(s.r) AS r FROM {self.source(depth - 1, drives)} AS s"

    def _aggregate_away(self, depth: int, drives: bool) -> str:
        key, other = self.pick("s.p", "s.q"), self.pick(*COLUMNS)
        source = self.source(depth - 1, drives)
        return f"SELECT max(s.{other}) AS p, count(*) AS q, min(s.r) AS r FROM {source} AS s GROUP BY {key}"

    def _window(self, depth: int, drives: bool) -> str:
        over = self.pick("PARTITION BY s.p", "PARTITION BY s.p", "PARTITION BY s.q, s.p", "PARTITION BY s.r", "ORDER BY s.q")
        columns = self.columns("s")
        columns[2] = f"{self.pick('sum(s.r)', 'count(*)', 'max(s.q)')} OVER ({over})"
        return f"SELECT {self.named(columns)} FROM {self.source(depth - 1, drives)} AS s"

    def _qualify(self, depth: int, drives: bool) -> str:
        by = self.pick("s.p", "s.q", "s.p, s.q")
        first = f"rank() OVER (PARTITION BY {by} ORDER BY s.r) = 1"
        return f"SELECT {self.named(self.columns('s'))} FROM {self.source(depth - 1, drives)} AS s QUALIFY {first}"

    def _limit(self, depth: int, drives: bool) -> str:
        return f"SELECT s.p, s.q, s.r FROM {self.source(depth - 1, drives)} AS s ORDER BY s.p, s.q, s.r LIMIT 2"

    def _union(self, depth: int, drives: bool) -> str:
        how = self.pick("UNION ALL", "UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT")
        return f"{self.query(depth - 1, drives=drives)} {how} {self.query(depth - 1, drives=drives)}"

    def _join(self, depth: int, drives: bool) -> str:
        text, visible = f"{self.source(depth - 1, drives)} AS s", ["s"]
        for alias in ("t", "u", "x")[: int(self.pick("1", "1", "2", "3"))]:
            kind = self.pick(
                *["LEFT JOIN", "JOIN"] * 5, *["LEFT SEMI JOIN", "LEFT ANTI JOIN"] * 2, "FULL JOIN", "RIGHT JOIN", "CROSS"
            )
            source = self.source(depth - 1, False)
            if kind == "CROSS":
                text += f" CROSS JOIN {source} AS {alias}"
            else:
                text += f" {kind} {source} AS {alias} ON {self._on(alias, visible)}"
            if "SEMI" not in kind and "ANTI" not in kind:
                visible.append(alias)
        conditions = [self._condition(depth, visible) for _ in range(int(self.pick("0", "0", "1", "2")))]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        columns = self.columns(*visible)
        if self.chance(12):
            columns[2] = f"({self._scalar(depth, visible)})"
        if self.chance(25) and self.chance(50) and not any("(" in column for column in columns):
            return f"SELECT {columns[0]} AS p, max({columns[1]}) AS q, count(*) AS r FROM {text}{where} GROUP BY {columns[0]}"
        return f"SELECT {self.named(columns)} FROM {text}{where}"

    def _on(self, alias: str, visible: Sequence[str]) -> str:
        conditions = [self._equality(alias, visible)]
        if self.chance(30):
            conditions.append(self._equality(alias, visible))
        if self.chance(30):
            conditions.append(f"{alias}.{self.pick(*COLUMNS)} {self.pick('>', '<>', '<=')} {self.pick(*visible)}.r")
        if self.chance(8):
            return f"({' OR '.join([*conditions, self._equality(alias, visible)])})"
        return " AND ".join(conditions)

    def _equality(self, alias: str, visible: Sequence[str]) -> str:
        own_column, other_column = f"{alias}.{self.pick(*COLUMNS)}", f"{self.pick(*visible)}.{self.pick(*COLUMNS)}"
        if self.chance(12):
            return self.pick(
                f"{own_column} = {other_column} + 1",
                f"{own_column} <=> {other_column}",
                f"{own_column} + 0 = {other_column}",
                f"{own_column} > {other_column}",
            )
        return self.pick(f"{own_column} = {other_column}", f"{other_column} = {own_column}")

    def _condition(self, depth: int, visible: Sequence[str]) -> str:
        column = f"{self.pick(*visible)}.{self.pick(*COLUMNS)}"
        inner = f"{self.source(depth - 1, False)} AS i"
        tied = f"i.{self.pick(*COLUMNS)} = {self.pick(*visible)}.{self.pick(*COLUMNS)}"
        return self.pick(
            f"{self.pick(*visible)}.{self.pick(*COLUMNS)} = {column}",
            f"{column} IS NOT NULL",
            f"({column} > 0 OR {column} IS NULL)",
            f"EXISTS (SELECT 1 FROM {inner} WHERE {tied})",
            f"NOT EXISTS (SELECT 1 FROM {inner} WHERE {tied} AND i.r > 0)",
            f"({column} = 1 OR EXISTS (SELECT 1 FROM {inner} WHERE {tied}))",
            f"{column} IN (SELECT i.{self.pick(*COLUMNS)} FROM {inner})",
            f"NOT ({column} IN (SELECT i.{self.pick(*COLUMNS)} FROM {inner}))",
            f"{column} NOT IN (SELECT i.q FROM {inner} WHERE {tied})",
            f"EXISTS (SELECT 1 FROM {inner} WHERE i.p > 1)",
        )

    def _scalar(self, depth: int, visible: Sequence[str]) -> str:
        tied = f" WHERE i.{self.pick(*COLUMNS)} = {self.pick(*visible)}.{self.pick(*COLUMNS)}" if self.chance(60) else ""
        return f"SELECT {self.pick('max(i.r)', 'count(*)')} FROM {self.source(depth - 1, False)} AS i{tied}"


def queries() -> st.SearchStrategy[str]:
    """Return random queries by seed. Hypothesis' own choices prefer the simplest queries, which have no joins."""
    return SEEDS.map(lambda seed: QueryWriter(Random(seed)).write())


def lakes() -> st.SearchStrategy[Lake]:
    """Return random rows for all tables, including nulls and duplicates."""
    return SEEDS.map(lambda seed: _lake(Random(seed)))


def _lake(random: Random) -> Lake:
    return {
        table: [tuple(random.choice(VALUES) for _ in COLUMNS) for _ in range(random.randint(0, MOST_ROWS))] for table in TABLES
    }


class Database:
    """Run Spark queries in DuckDB on the rows of small tables."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("CREATE SCHEMA lake")
        for table in TABLES:
            self._connection.execute(f"CREATE TABLE {table} (p INT, q INT, r INT)")

    def run(self, query: str, lake: Lake) -> Counter[Row]:
        """Return the rows of a query. Reject an example that DuckDB, unlike Spark, can't run.

        It has no plan for some correlated subqueries, and refuses a union's ORDER BY that names a column of two tables.
        """
        for table, rows in lake.items():
            values = ", ".join(str(row).replace("None", "NULL") for row in rows)
            self._connection.execute(f"DELETE FROM {table};" + (f"INSERT INTO {table} VALUES {values}" if rows else ""))
        try:
            return Counter(self._connection.execute(_in_duckdb(query)).fetchall())
        except (duckdb.BinderException, duckdb.NotImplementedException):
            reject()


@lru_cache(maxsize=4)
def _in_duckdb(query: str) -> str:
    (text,) = sqlglot.transpile(query, read="spark", write="duckdb")
    return text
