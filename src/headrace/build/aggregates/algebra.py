"""How an aggregate table is maintained by its states: the query that gives them, their types, and the rows that they give.

The query's text says which aggregates there are, Spark says of which types. What both find is kept, because every build asks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql.types import StructField, StructType

from headrace.build.source import run_source
from headrace.build.types import spark_schema, spec_columns
from headrace.errors import SpecError
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, ColumnType
from headrace.spec.sql.aggregates import Decomposition, Recomputed, StateField, UnsupportedCall, choose_states, decompose
from headrace.spec.sql.aggregates.calls import Call

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VERSION = 1
"""Part of every state's shape. A change of what a field means needs another one: older states are then computed again."""

PREFIX = "__state_"
"""How the columns of fields begin, so that none is called as a column of the table is."""

_ROWS = StateField(f"{PREFIX}n", Call("count", ("*",)).over("count"), "add")
_ARGUMENT = "__argument_{}_{}"

Known = Mapping[TableName, Sequence[Column]]


@dataclass(frozen=True)
class Algebra:
    """The states of a table. `source` is its query with a column for each field; `shape` changes when their meaning does.

    `types` are those of the fields, `values` the SQL over fields that each call of the query gives.
    """

    decomposition: Decomposition
    source: Query
    fields: tuple[StateField, ...]
    types: StructType
    values: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.decomposition.keys

    @property
    def rows(self) -> str:
        """The field that counts the rows of a key."""
        return _ROWS.name

    @property
    def shape(self) -> str:
        meaning = (_VERSION, [(field, self.types[field.name].dataType.simpleString()) for field in self.fields])
        return hashlib.sha256(repr(meaning).encode()).hexdigest()[:8]

    @property
    def outputs(self) -> dict[str, str]:
        """The table's columns by name, as SQL over keys and fields."""
        return {name: self._sql(parts) for name, parts in self.decomposition.outputs}

    @property
    def having(self) -> str | None:
        """The condition for keys to be shown, as SQL over keys and fields."""
        return self._sql(self.decomposition.having) if self.decomposition.having else None

    def _sql(self, parts: Sequence[str | int]) -> str:
        return "".join(part if isinstance(part, str) else f"({self.values[part]})" for part in parts)


_known: dict[tuple[object, ...], Algebra | Recomputed] = {}


def find_algebra(spark: SparkSession, table: LayerTable, columns: Known) -> Algebra | Recomputed:
    """Return how a table is maintained by states, or why its keys are recomputed."""
    if not table.traits.adds_states or not isinstance(table.source, Query) or table.staged:
        return Recomputed("it is no aggregate in SQL")
    inputs = tuple((name, tuple(columns[name])) for name in table.inputs)
    key = (table.source.text, table.keys, table.frozen, inputs)
    if key not in _known:
        _known[key] = _find(spark, table, columns)
    return _known[key]


def _find(spark: SparkSession, table: LayerTable, columns: Known) -> Algebra | Recomputed:
    found = decompose(table)
    if isinstance(found, Recomputed):
        return found
    empty = {name: spark.createDataFrame([], spark_schema(columns[name])) for name in table.inputs}
    try:
        types = _argument_types(found, run_source(spark, replace(table, source=_with_arguments(found)), empty))
        fields, values = _fields(found, types)
        source = found.with_columns({field.name: field.sql for field in fields})
        rows = run_source(spark, replace(table, source=source), empty)
        schema = StructType([StructField(field.name, rows.schema[field.name].dataType) for field in fields])
        algebra = Algebra(found, source, fields, schema, values)
        return _check_types(algebra, rows)
    except UnsupportedCall as error:
        return Recomputed(str(error))
    except (AnalysisException, ParseException, SpecError, ValueError) as error:
        return Recomputed(f"Spark can't compute its states: {str(error).splitlines()[0]}")


def _with_arguments(found: Decomposition) -> Query:
    calls = enumerate(found.calls)
    columns = {
        _ARGUMENT.format(number, index): f"any_value({argument}\n)"
        for number, call in calls
        for index, argument in enumerate(call.arguments)
        if call.function not in ("count", "count_if")
    }
    return found.with_columns(columns) if columns else found.query


def _argument_types(found: Decomposition, rows: DataFrame) -> list[list[ColumnType]]:
    kinds = {column.name: column.type for column in spec_columns(rows.schema)}
    named = [
        [_ARGUMENT.format(number, index) for index in range(len(call.arguments))] for number, call in enumerate(found.calls)
    ]
    return [[kinds[name] for name in names if name in kinds] for names in named]


def _fields(found: Decomposition, types: Sequence[Sequence[ColumnType]]) -> tuple[tuple[StateField, ...], tuple[str, ...]]:
    """Return the fields of all calls, each once, and what each call gives."""
    fields, values = {_ROWS.sql: _ROWS}, []
    for number, (call, kinds) in enumerate(zip(found.calls, types, strict=True)):
        states = choose_states(call, kinds, names=[f"{PREFIX}{letter}{number}" for letter in "abc"])
        same = {field.name: fields[field.sql].name for field in states.fields if field.sql in fields}
        value = states.value
        for new, known in same.items():
            value = value.replace(f"`{new}`", f"`{known}`")
        values.append(value)
        for field in states.fields:
            counted, extreme = (same.get(name, name) if name else None for name in (field.counted_by, field.extreme))
            fields.setdefault(field.sql, replace(field, counted_by=counted, extreme=extreme))
    return tuple(fields.values()), tuple(values)


def _check_types(algebra: Algebra, rows: DataFrame) -> Algebra | Recomputed:
    """Return the algebra if its outputs have the types of the query's own columns."""
    given = rows.selectExpr(*(f"{sql} AS `{name}`" for name, sql in algebra.outputs.items())).schema
    for field in given.fields:
        wanted = rows.schema[field.name].dataType
        if field.dataType.simpleString() != wanted.simpleString():
            return Recomputed(f'"{field.name}" would be {field.dataType.simpleString()}, not {wanted.simpleString()}')
    return algebra
