"""Generate the query of a stage table: the columns of a captured table from Debezium's envelopes, one row per change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.spec.model.envelopes import ROWS
from headrace.spec.model.layers import LayerTable, Staged, StagedColumn
from headrace.spec.model.meanings import Converted, convert, is_unavailable, lost_condition
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, ColumnType, Primitive, Struct
from headrace.spec.sql.queries import parse_query

if TYPE_CHECKING:
    from headrace.spec.model.layers import Query
    from headrace.spec.problems import Place

UNCHANGED, UNREADABLE = "_unchanged", "_unreadable"
OWN = (
    *("_op", "_sequence", "_lsn", "_tx_id", "_tx_order", "_committed_at", "_snapshot", UNCHANGED, UNREADABLE),
    *("event_date", "event_date_source", "kafka_partition", "kafka_offset"),
)
"""The columns that a stage table adds to those of its source. `_unreadable` is only used by an expectation."""

READABLE = f"size({UNREADABLE}) = 0"
_ROW, _READ = "_row", "_read"
_EVENT_TIME = "ts_ms"


def follow_columns(table: LayerTable, columns: Mapping[TableName, Sequence[Column]]) -> LayerTable:
    """Return a stage table whose query has all current columns of its source. Return any other table unchanged."""
    if table.staged is None:
        return table
    return replace(table, source=stage_query(table.staged, tuple(columns[table.staged.source]), place=table.place))


@lru_cache(maxsize=1024)
def stage_query(staged: Staged, columns: tuple[Column, ...], *, place: Place) -> Query:
    """Return the query over a raw table with these columns. Each column keeps the line of its entry in the file.

    The query is cached, because every build needs it.
    """
    return parse_query(_QueryBuilder(staged, columns).sql(), place=place).query


def source_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the captured table, given those of its raw table."""
    after = next((column.type for column in columns if column.name == ROWS[1]), None)
    return after.columns if isinstance(after, Struct) else ()


def staged_name(name: str) -> str:
    """Return the stage table's name for a captured column. A name that the stage table uses itself gets a suffix."""
    return f"{name}_" if name.lower() in OWN else name


def staged_type(staged: Staged, column: Column) -> ColumnType:
    """Return the type of a captured column in the stage table."""
    return _converted("x", column, staged.find(column.name)).type


@dataclass(frozen=True)
class _SelectedColumn:
    """A column of the stage table: its SQL, its conversion, and the conditions that its value is unchanged or unreadable."""

    name: str
    line: int
    sql: str
    read: str | None
    unavailable: str | None
    lost: str | None


class _QueryBuilder:
    def __init__(self, staged: Staged, columns: Sequence[Column]) -> None:
        self._staged = staged
        self._types = {column.name: column.type for column in columns}
        self._source = source_columns(columns)

    def sql(self) -> str:
        """Return the query, in three steps: the changed row of each change, the conversions that may fail, and all columns.

        Tombstones are skipped.
        """
        selected_columns = list(self._columns())
        text = "\n" * (self._staged.line - 1)
        rows = f"SELECT *, IF(op = 'd', before, after) AS {_ROW} FROM {self._staged.source} WHERE op IS NOT NULL"
        text += f"WITH _changes AS ({rows})"
        read, source = [column for column in selected_columns if column.read], "_changes"
        if read:
            text += ", _values AS (SELECT *, struct("
            for index, column in enumerate(read):
                text += "\n" * (column.line - 1 - text.count("\n")) + f"{', ' if index else ''}{column.read} AS `{column.name}`"
            text, source = f"{text}) AS {_READ} FROM _changes)", "_values"
        selected = [f"{column.sql} AS `{staged_name(column.name)}`" for column in selected_columns]
        selected += [f"{sql} AS {name}" for name, sql in self._metadata_columns(selected_columns).items()]
        return f"{text} SELECT {', '.join(selected)} FROM {source}"

    def _columns(self) -> Iterator[_SelectedColumn]:
        source = {column.name: column for column in self._source}
        names = {column.name for column in self._staged.columns}
        for column in self._staged.columns:
            if column.name in source:
                yield self._column(source[column.name], column)
        if self._staged.others:
            yield from (self._column(column, None) for column in self._source if column.name not in names)

    def _column(self, column: Column, staged: StagedColumn | None) -> _SelectedColumn:
        value = f"{_ROW}.`{column.name}`"
        missing = is_unavailable(value, column.type)
        unavailable = f"(op = 'u' AND {missing})" if missing else None
        converted = _converted(value, column, staged)
        sql = f"{_READ}.`{column.name}`" if converted.may_fail else converted.sql
        unreadable = lost_condition(value, sql, converted.type) if converted.may_fail else None
        return _SelectedColumn(
            name=column.name,
            line=staged.line if staged else 0,
            sql=f"IF({unavailable}, NULL, {sql})" if unavailable else sql,
            read=converted.sql if converted.may_fail else None,
            unavailable=unavailable,
            lost=f"{unreadable} AND NOT coalesce({unavailable}, false)" if unreadable and unavailable else unreadable,
        )

    def _metadata_columns(self, selected_columns: Sequence[_SelectedColumn]) -> dict[str, str]:
        business = next((column for column in selected_columns if column.name == self._staged.event_date), None)
        day = f"CAST(timestamp_millis({_EVENT_TIME}) AS DATE)"
        moment = self._field("source", "ts_us", "BIGINT", "timestamp_micros({})")
        milli = self._field("source", _EVENT_TIME, "BIGINT", "timestamp_millis({})")
        return {
            "_op": "op",
            "_sequence": self._sequence(),
            "_lsn": self._field("source", "lsn", "BIGINT"),
            "_tx_id": self._field("source", "txId", "BIGINT"),
            "_tx_order": self._field("transaction", "total_order", "BIGINT"),
            "_committed_at": f"coalesce({moment}, {milli})",
            "_snapshot": self._field("source", "snapshot", "STRING"),
            UNCHANGED: _names({column.name: column.unavailable for column in selected_columns if column.unavailable}),
            UNREADABLE: _names({column.name: column.lost for column in selected_columns if column.lost}),
            "event_date": f"coalesce(CAST({business.sql} AS DATE), {day})" if business else day,
            "event_date_source": f"IF({business.sql} IS NULL, '{_EVENT_TIME}', '{business.name}')"
            if business
            else f"'{_EVENT_TIME}'",
            "kafka_partition": "kafka_partition",
            "kafka_offset": "kafka_offset",
        }

    def _sequence(self) -> str:
        """Return SQL for the position of a change: the LSN of the commit before it and its own LSN, as fixed-length text.

        A row's LSN alone is not enough: a transaction that is open during a snapshot commits after it. So a row of a snapshot
        is placed directly after the commit at which the snapshot was taken, and before all later commits.
        """
        own = self._field("source", "lsn", "BIGINT")
        commit = self._field("source", "sequence", "STRING", "TRY_CAST(get_json_object({}, '$[0]') AS BIGINT)")
        taken = f"(op = 'r' AND coalesce({self._field('source', 'snapshot', 'STRING')}, '') <> 'incremental')"
        first, second = f"IF({taken}, {own}, coalesce({commit}, {own}))", f"IF({taken}, 0, {own})"
        return f"concat(lpad(hex({first}), 16, '0'), '/', lpad(hex({second}), 16, '0'))"

    def _field(self, struct: str, name: str, kind: str, how: str = "{}") -> str:
        """Return SQL for a field of the envelope, null if the connector does not send it."""
        columns = self._types.get(struct)
        if not isinstance(columns, Struct) or name not in {field.name for field in columns.columns}:
            return how.format(f"CAST(NULL AS {kind})")
        plain = {field.name: field.type for field in columns.columns}[name] in (Primitive("long"), Primitive("string"))
        return how.format(f"{struct}.{name}" if plain else f"CAST({struct}.{name} AS {kind})")


def _converted(value: str, column: Column, staged: StagedColumn | None) -> Converted:
    return convert(value, column, cast=staged.cast, unit=staged.unit) if staged else convert(value, column)


def _names(conditions: Mapping[str, str]) -> str:
    """Return SQL for an array of the names whose conditions are true."""
    if not conditions:
        return "CAST(array() AS ARRAY<STRING>)"
    return "array_compact(array(" + ", ".join(f"IF({sql}, '{_escape(name)}', NULL)" for name, sql in conditions.items()) + "))"


def _escape(name: str) -> str:
    return staged_name(name).replace("\\", "\\\\").replace("'", "\\'")
