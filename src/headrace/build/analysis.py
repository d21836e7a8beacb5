"""What Spark makes of a pipeline's tables before anything is read or written: their columns and types, or their mistakes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    DateType,
    FractionalType,
    StringType,
    TimestampType,
)

from headrace.build.aggregates.algebra import find_algebra
from headrace.build.source import run_source
from headrace.build.types import has_map, spark_schema, spec_columns
from headrace.spec.aggregates import Decomposition, Recomputed, decompose
from headrace.spec.fuzzy import Fuzzy
from headrace.spec.graph import check_names, event_conditions
from headrace.spec.layers import BUILD_ID, CARRIED, HISTORY_COLUMNS, STATE, LayerTable, Query
from headrace.spec.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED, entity_columns
from headrace.spec.partitioning import transform_problem
from headrace.spec.pipeline import Pipeline, TableName
from headrace.spec.stage_query import follow_columns
from headrace.spec.types import Array, Column, ColumnType, Decimal, Primitive, Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HAVING = re.compile(r"\bhaving\b", re.IGNORECASE)
_SUGGESTION = re.compile(r"\s*SQLSTATE: \w+.*$")


def analyse(
    spark: SparkSession, pipeline: Pipeline, landed: Mapping[TableName, tuple[Column, ...]]
) -> Mapping[TableName, tuple[Column, ...]]:
    """Gives back the columns of every table that the pipeline lands or builds, as their readers see them.

    `landed` are those of the raw tables. Every query is analysed on empty inputs, in order; the first mistake is a SpecError
    with file, line and column.
    """
    columns = dict(landed)
    for table in pipeline.tables:
        empty = {name: spark.createDataFrame([], spark_schema(columns[name])) for name in table.inputs}
        columns[table.table] = _analyse_table(table, run_source(spark, follow_columns(table, columns), empty))
        _check_having(spark, table, columns)
    return columns


def _check_having(spark: SparkSession, table: LayerTable, columns: Mapping[TableName, Sequence[Column]]) -> None:
    """Raise a SpecError for a HAVING over values whose states can't be stored: its keys would have to be recomputed."""
    if table.kind != "aggregate" or not isinstance(table.source, Query) or not _HAVING.search(table.source.text):
        return
    shape, found = decompose(table), find_algebra(spark, table, columns)
    if isinstance(shape, Decomposition) and shape.having and isinstance(found, Recomputed):
        raise table.error(
            f"HAVING hides keys from a build that recomputes them, and they can't be added up: {found.reason}",
            at="keys",
            fix="Filter in the table that reads this one, or write kind: full",
        )


def stored_columns(table: LayerTable, columns: Sequence[Column], *, has_states: bool) -> tuple[Column, ...]:
    """Return what is stored of a table: its columns, where carried values are from, states, and which build wrote each row."""
    carried = (Column(CARRIED, _carried_type(table, columns)),) if table.unchanged else ()
    states = (Column(STATE, Primitive("string")),) if has_states else ()
    return (*columns, *carried, *states, Column(BUILD_ID, Primitive("long")))


def _carried_type(table: LayerTable, columns: Sequence[Column]) -> ColumnType:
    types = {column.name: column.type for column in columns}
    sequence = (Column(name, types[name]) for name in table.sequence_by)
    return Array(Struct((Column("column", Primitive("string")), *sequence, Column("is_known", Primitive("boolean")))))


def _check_unchanged(table: LayerTable, name: str, rows: DataFrame) -> None:
    kind = rows.schema[name].dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StringType):
        what = f'unchanged "{name}" is of type {kind.simpleString()}, not a list of names'
        raise table.error(what, at="unchanged", fix="Give it as array<string>")


def _analyse_table(table: LayerTable, rows: DataFrame) -> tuple[Column, ...]:
    lowered: set[str] = set()
    for name in rows.columns:
        if name.lower() in lowered:
            raise table.error(f'two columns are called "{name}"', at="", fix="Give each a name of its own with AS")
        lowered.add(name.lower())
    check_names(table, rows.columns)
    for expectation in table.expectations:
        _check_condition(table, rows, f'expect "{expectation.sentence}"', expectation.that, expectation.line)
    for key, condition in event_conditions(table).items():
        _check_condition(table, rows, key, condition, table.lines.get(key, 1))
    if table.unchanged:
        _check_unchanged(table, table.unchanged, rows)
    try:
        found = spec_columns(rows.drop(*table.except_columns).schema)
    except ValueError as error:
        raise table.error(str(error), at="", fix="Cast it to another type") from None
    if table.kind == "history":
        found = (*found, *_history_columns(table, found))
    if table.kind == "entities":
        found = _entity_columns(table, rows, found)
    types = {column.name: column.type for column in found}
    for transform in table.partition_by:
        problem = transform_problem(transform, types=types)
        if problem:
            raise table.error(problem[0], at="partition_by", fix=problem[1])
    return found


def _history_columns(table: LayerTable, columns: Sequence[Column]) -> tuple[Column, ...]:
    sequence = next(column.type for column in columns if column.name == table.versioned_by)
    start, end, current = HISTORY_COLUMNS
    return Column(start, sequence), Column(end, sequence), Column(current, Primitive("boolean"))


def _entity_columns(table: LayerTable, rows: DataFrame, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Gives back the columns of records and those that a build adds to them; values to match by are text."""
    for match in table.matches:
        for name in match.reads:
            kind = rows.schema[name].dataType
            if not isinstance(kind, StringType):
                what = f'match {match.column}: "{name}" is of type {kind.simpleString()}'
                raise table.error(what, at=match.line, fix=f"Cast it to text: CAST({name} AS STRING)")
    if table.fuzzy:
        _check_compared(table, table.fuzzy, rows)
    for field in rows.schema.fields:
        if has_map(field.dataType):
            raise table.error(f'"{field.name}" is a map, which records can\'t have', at="", fix="Write it as text: to_json(…)")
    kinds: dict[str, ColumnType] = {each.name: each.type for each in columns}
    kinds |= {each.column: Primitive("string") for each in table.matches}
    kinds |= {ENTITY_ID: Primitive("string"), CONFIDENCE: Decimal(5, 2)}
    kinds |= {name: Array(Primitive("string")) for name in (PREVIOUS, UNUSED)}
    return tuple(Column(name, kinds[name]) for name in entity_columns(table.matches, [each.name for each in columns]))


def _check_compared(table: LayerTable, fuzzy: Fuzzy, rows: DataFrame) -> None:
    """Raises a SpecError where a column can't be compared as the setting says; match columns are text."""
    for name in (name for name in fuzzy.columns if name in rows.columns):
        kind, how = rows.schema[name].dataType, fuzzy.how(name)
        if isinstance(kind, StringType) or (how == "date" and isinstance(kind, (DateType, TimestampType))):
            continue
        if how != "exact" or not isinstance(kind, AtomicType) or isinstance(kind, (BinaryType, FractionalType)):
            what = f'fuzzy: "{name}" is of type {kind.simpleString()}, which can\'t be compared as {how}'
            raise table.error(what, at="fuzzy", fix=f"Cast it to text: CAST({name} AS STRING)")


def _check_condition(table: LayerTable, rows: DataFrame, what: str, condition: str, line: int) -> None:
    try:
        kind = rows.select(F.expr(condition)).schema.fields[0].dataType
    except (AnalysisException, ParseException) as error:
        message = _SUGGESTION.sub("", str(error).splitlines()[0])
        raise table.error(f"{what} can't be computed: {message}", at=line, fix="Fix the condition") from None
    if not isinstance(kind, BooleanType):
        raise table.error(
            f"{what} is a {kind.simpleString()}, neither true nor false: {condition}", at=line, fix="Write a condition"
        )
