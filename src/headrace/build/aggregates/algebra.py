"""The algebra of an aggregate table: the query that computes its partial states, their types, and the rows they yield.

The aggregates come from the query's text, their types from Spark. The result is cached, because every build needs it.
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
"""Part of every state's shape. Increment it when a field's meaning changes: older states are then recomputed."""

PREFIX = "__state_"
"""The prefix of state columns, so that their names don't collide with the table's columns."""

_ROWS = StateField(f"{PREFIX}n", Call("count", ("*",)).over("count"), "add")
_ARGUMENT = "__argument_{}_{}"

InputColumns = Mapping[TableName, Sequence[Column]]


@dataclass(frozen=True)
class Algebra:
    """The partial states of a table. `source` is its query with a column for each field; `shape` changes with their meaning.

    `types` are the fields' types, `values` is the SQL over fields for each aggregate call of the query.
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
        """The field with the number of rows of a key."""
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
        """The HAVING condition, as SQL over keys and fields."""
        return self._sql(self.decomposition.having) if self.decomposition.having else None

    def _sql(self, parts: Sequence[str | int]) -> str:
        return "".join(part if isinstance(part, str) else f"({self.values[part]})" for part in parts)


_known: dict[tuple[object, ...], Algebra | Recomputed] = {}


def find_algebra(spark: SparkSession, table: LayerTable, columns: InputColumns) -> Algebra | Recomputed:
    """Return the algebra of a table, or the reason why its keys are recomputed."""
    if not table.traits.adds_states or not isinstance(table.source, Query) or table.staged:
        return Recomputed("it is not a SQL aggregate")
    inputs = tuple((name, tuple(columns[name])) for name in table.inputs)
    key = (table.source.text, table.keys, table.frozen, inputs)
    if key not in _known:
        _known[key] = _find(spark, table, columns)
    return _known[key]


def _find(spark: SparkSession, table: LayerTable, columns: InputColumns) -> Algebra | Recomputed:
    decomposition = decompose(table)
    if isinstance(decomposition, Recomputed):
        return decomposition
    empty = {name: spark.createDataFrame([], spark_schema(columns[name])) for name in table.inputs}
    try:
        arguments = run_source(spark, replace(table, source=_with_arguments(decomposition)), empty)
        types = _argument_types(decomposition, arguments)
        fields, values = _fields(decomposition, types)
        source = decomposition.with_columns({field.name: field.sql for field in fields})
        rows = run_source(spark, replace(table, source=source), empty)
        schema = StructType([StructField(field.name, rows.schema[field.name].dataType) for field in fields])
        algebra = Algebra(decomposition, source, fields, schema, values)
        return _check_types(algebra, rows)
    except UnsupportedCall as error:
        return Recomputed(str(error))
    except (AnalysisException, ParseException, SpecError, ValueError) as error:
        return Recomputed(f"Spark can't compute its partial states: {str(error).splitlines()[0]}")


def _with_arguments(decomposition: Decomposition) -> Query:
    calls = enumerate(decomposition.calls)
    columns = {
        _ARGUMENT.format(number, index): f"any_value({argument}\n)"
        for number, call in calls
        for index, argument in enumerate(call.arguments)
        if call.function not in ("count", "count_if")
    }
    return decomposition.with_columns(columns) if columns else decomposition.query


def _argument_types(decomposition: Decomposition, rows: DataFrame) -> list[list[ColumnType]]:
    kinds = {column.name: column.type for column in spec_columns(rows.schema)}
    calls = enumerate(decomposition.calls)
    named = [[_ARGUMENT.format(number, index) for index in range(len(call.arguments))] for number, call in calls]
    return [[kinds[name] for name in names if name in kinds] for names in named]


def _fields(
    decomposition: Decomposition, types: Sequence[Sequence[ColumnType]]
) -> tuple[tuple[StateField, ...], tuple[str, ...]]:
    """Return the distinct fields of all calls, and the SQL for each call's value."""
    fields, values = {_ROWS.sql: _ROWS}, []
    for number, (call, kinds) in enumerate(zip(decomposition.calls, types, strict=True)):
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
    outputs = rows.selectExpr(*(f"{sql} AS `{name}`" for name, sql in algebra.outputs.items())).schema
    for field in outputs.fields:
        wanted = rows.schema[field.name].dataType
        if field.dataType.simpleString() != wanted.simpleString():
            return Recomputed(f'"{field.name}" would be {field.dataType.simpleString()}, not {wanted.simpleString()}')
    return algebra
