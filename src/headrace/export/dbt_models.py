"""Generate the dbt model of a layer table: its query, and SQL for what Headrace does with the query's rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from headrace.export.duckdb_sql import line_of, rewrite_for_duckdb
from headrace.spec.model.layers import HISTORY_COLUMNS, LayerTable, Query
from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.queries import DIALECT, parse_sql

if TYPE_CHECKING:
    from sqlglot import exp

Dialect = Literal["duckdb", "spark"]
_MARK = "headrace_input_{}"
_JINJA = re.compile(r"\{[{%#]")
_DIFFERENT = frozenset(
    (
        *("array_position", "bround", "dayofweek", "div", "from_json", "hash", "make_dt_interval"),
        *("substring_index", "timestamp_seconds", "unix_timestamp", "xxhash64"),
    )
)
"""Functions that sqlglot does not translate to DuckDB, or translates to a function with other results."""

_DELETED, _RANK = "_deleted", "_rank"


def model_sql(
    table: LayerTable, *, columns: Sequence[str] | None, references: Mapping[TableName, str], dialect: Dialect
) -> str:
    """Return the model's SELECT with Jinja references as inputs. It returns the rows that Headrace would publish.

    `columns` are the table's own columns, or None if only an engine can resolve them. `references` maps inputs to Jinja.
    """
    return _Model(table, columns, references, dialect).sql()


def condition_sql(table: LayerTable, condition: str, *, line: int, dialect: Dialect) -> str:
    """Return a condition of a table's settings in a dialect, on one line and with Jinja escaped."""
    tree = parse_sql(f"SELECT {condition}", place=table.place).selects[0]  # type: ignore[attr-defined]
    return escape_jinja(_generate(table, tree, dialect, line=line))


def differences(table: LayerTable) -> tuple[str, ...]:
    """Return the functions of a table's query that DuckDB lacks or computes differently from Spark."""
    from sqlglot.tokens import Tokenizer

    text = table.source.text if isinstance(table.source, Query) else ""
    tokens = Tokenizer(dialect=DIALECT).tokenize(text)
    words = {token.text.lower() for token in tokens if token.token_type.name != "STRING"}
    return tuple(sorted(words & _DIFFERENT))


def quote(name: str, dialect: Dialect) -> str:
    return f"`{name.replace('`', '``')}`" if dialect == "spark" else '"' + name.replace('"', '""') + '"'


def escape_jinja(text: str) -> str:
    """Return text with Jinja escaped."""
    return _JINJA.sub(lambda match: "{{ '" + match[0] + "' }}", text)


def translated(table: LayerTable) -> exp.Expr:
    """Return a table's query, prepared for translation to DuckDB."""
    text = table.source.text if isinstance(table.source, Query) else ""
    return rewrite_for_duckdb(parse_sql(text, place=table.place), table)


class _Model:
    def __init__(
        self, table: LayerTable, columns: Sequence[str] | None, references: Mapping[TableName, str], dialect: Dialect
    ) -> None:
        self._table = table
        self._columns = columns
        self._references = references
        self._dialect: Dialect = dialect

    def sql(self) -> str:
        steps = [("found", self._query())]
        refused = [expectation for expectation in self._table.expectations if expectation.on_failure in ("drop", "quarantine")]
        if refused:
            passed = "\n  AND ".join(
                f"coalesce({self._condition(expectation.that, expectation.line)}, false)  -- {_one_line(expectation.sentence)}"
                for expectation in refused
            )
            steps.append(("kept", f"SELECT *\nFROM found\nWHERE {passed}"))
        if self._table.kind in ("upsert", "history"):
            steps += self._marked(steps[-1][0])
        if self._table.kind == "history":
            steps += self._versions()
        if len(steps) == 1:
            return steps[0][1]
        *first, (_, last) = steps
        return "WITH " + ", ".join(f"{name} AS (\n{query}\n)" for name, query in first) + f"\n{last}"

    def _marked(self, rows: str) -> list[tuple[str, str]]:
        """Return the CTEs that select the newest row per key, or per key and `sequence_by` in a history."""
        table = self._table
        line = table.lines.get("apply_as_deletes", 1)
        deleted = f"coalesce({self._condition(table.apply_as_deletes, line)}, false)" if table.apply_as_deletes else "false"
        marked = f"SELECT *, {deleted} AS {_DELETED}\nFROM {rows}"
        keys = [*table.keys, *(table.sequence_by if table.kind == "history" else ())]
        order = [*(self._newest(column) for column in table.sequence_by), f"{_DELETED} DESC", *self._rest()]
        ranked = (
            f"SELECT *, row_number() OVER (\n  PARTITION BY {self._names(keys)}\n  ORDER BY {', '.join(order)}\n) AS {_RANK}"
            "\nFROM marked"
        )
        steps = [("marked", marked), ("ranked", ranked)]
        if table.kind == "upsert":
            what = self._without((*table.except_columns, _DELETED, _RANK))
            steps.append(("newest", f"SELECT {what}\nFROM ranked\nWHERE {_RANK} = 1 AND NOT {_DELETED}"))
        return steps

    def _versions(self) -> list[tuple[str, str]]:
        """Return the CTEs that turn rows into versions, each of which ends where the next one starts."""
        table = self._table
        time = self._name(table.versioned_by)
        order = ", ".join(f"{self._name(column)} ASC NULLS FIRST" for column in table.sequence_by)
        window = f"(PARTITION BY {self._names(table.keys)} ORDER BY {order})"
        steps, source, where = [], "ranked", f"{_RANK} = 1"
        if table.untracked:
            if self._columns is None:
                raise table.error(
                    "track_history_except_column_list needs the query's columns, which only an engine can resolve",
                    at="track_history_except_column_list",
                    fix="Write the query's columns instead of *",
                )
            untracked = {*table.untracked, *table.keys, *table.sequence_by, table.versioned_by, *HISTORY_COLUMNS}
            tracked = [self._name(column) for column in self._columns if column not in untracked] + [_DELETED]
            changed = "\n    OR ".join(f"{column} IS DISTINCT FROM lag({column}) OVER {window}" for column in tracked)
            compared = f"SELECT *, (\n    {changed}\n  ) AS _changed\nFROM ranked\nWHERE {_RANK} = 1"
            steps, source, where = [("compared", compared)], "compared", f"_changed OR {_DELETED}"
        start, end, current = HISTORY_COLUMNS
        versions = (
            f"SELECT *,\n  {time} AS {start},\n  lead({time}) OVER {window} AS {end},\n"
            f"  lead(1) OVER {window} IS NULL AS {current}\nFROM {source}\nWHERE {where}"
        )
        own = (_DELETED, _RANK, *(("_changed",) if table.untracked else ()))
        live_versions = f"SELECT {self._without((*table.except_columns, *own))}\nFROM versions\nWHERE NOT {_DELETED}"
        return [*steps, ("versions", versions), ("kept_versions", live_versions)]

    def _rest(self) -> list[str]:
        """Return the ORDER BY terms that break ties between rows with equal `sequence_by`: all other columns."""
        if self._columns is None:
            return ["struct(marked.*) DESC" if self._dialect == "spark" else "marked DESC"]
        return [self._newest(column) for column in self._columns if column not in (*self._table.sequence_by, *HISTORY_COLUMNS)]

    def _newest(self, name: str) -> str:
        return f"{self._name(name)} DESC NULLS LAST"

    def _without(self, names: Sequence[str]) -> str:
        """Return a SELECT list without these columns, by name if the columns are known."""
        if self._columns is not None:
            return ", ".join(self._name(column) for column in self._columns)
        return f"* {'EXCEPT' if self._dialect == 'spark' else 'EXCLUDE'} ({self._names(names)})"

    def _condition(self, condition: str, line: int) -> str:
        return condition_sql(self._table, condition, line=line, dialect=self._dialect)

    def _name(self, name: str) -> str:
        return quote(name, self._dialect)

    def _names(self, names: Sequence[str]) -> str:
        return ", ".join(self._name(name) for name in names)

    def _query(self) -> str:
        """Return the file's query in the dialect, with its inputs replaced. For Spark, the text is otherwise unchanged."""
        source = self._table.source
        if not isinstance(source, Query):
            raise TypeError("a Python table can't be a model")
        text = source.text
        marks = {_MARK.format(index): self._references[reference.table] for index, reference in enumerate(source.references)}
        edits = [(reference.start, reference.end, mark) for reference, mark in zip(source.references, marks, strict=True)]
        edits += [(start, end, "") for start, end in (source.origin.breaks if source.origin else ())]
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[:start] + replacement + text[end:]
        start = len(text) - len(text.lstrip())
        if text.startswith("/*", start):
            text = text[text.index("*/", start) + 2 :]
        if self._dialect != "spark":
            tree = rewrite_for_duckdb(parse_sql(text, place=self._table.place), self._table)
            text = _generate(self._table, tree, self._dialect, line=line_of(self._table, ""), pretty=True)
        text = escape_jinja(text.strip().rstrip(";").rstrip())
        return re.sub(_MARK.format(r"\d+"), lambda match: marks[match[0]], text)


def _generate(table: LayerTable, tree: exp.Expr, dialect: Dialect, *, line: int, pretty: bool = False) -> str:
    """Return SQL in a dialect. SQL that the dialect does not support raises a SpecError."""
    from sqlglot import ErrorLevel, UnsupportedError

    try:
        return tree.sql(dialect=dialect, pretty=pretty, unsupported_level=ErrorLevel.RAISE, comments=pretty)
    except UnsupportedError as error:
        raise table.error(
            f"can't translate this SQL from {DIALECT} to {dialect}: {error}",
            at=line,
            fix="Export with --dialect spark, or rewrite the SQL",
        ) from None


def _one_line(text: str) -> str:
    return escape_jinja(" ".join(text.split()))
