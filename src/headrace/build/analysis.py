"""Analyse a pipeline's tables with Spark, without reading or writing data: their columns and types, or their errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    StringType,
)

from headrace.build.source import run_source
from headrace.build.strategies.registry import strategy_of
from headrace.build.types import spark_schema, spec_columns
from headrace.spec.loading.partitioning import transform_problem
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.model.types import Column
from headrace.spec.sql.graph import check_names, event_conditions
from headrace.spec.sql.stage_query import follow_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SUGGESTION = re.compile(r"\s*SQLSTATE: \w+.*$")


def analyse(
    spark: SparkSession, pipeline: Pipeline, landed: Mapping[TableName, tuple[Column, ...]]
) -> Mapping[TableName, tuple[Column, ...]]:
    """Return the columns of every table that the pipeline lands or builds, as readers see them.

    `landed` are the columns of the raw tables. Every query is analysed on empty inputs, in order; the first error is raised as
    a SpecError with file, line and column.
    """
    columns = dict(landed)
    for table in pipeline.tables:
        empty = {name: spark.createDataFrame([], spark_schema(columns[name])) for name in table.inputs}
        columns[table.table] = _analyse_table(table, run_source(spark, follow_columns(table, columns), empty))
        problem = strategy_of(table).check_query(spark, table, columns)
        if problem:
            raise problem
    return columns


def _check_unchanged(table: LayerTable, name: str, rows: DataFrame) -> None:
    kind = rows.schema[name].dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StringType):
        what = f'unchanged "{name}" is of type {kind.simpleString()}, not array<string>'
        raise table.error(what, at="unchanged", fix="Return the column names as array<string>")


def _analyse_table(table: LayerTable, rows: DataFrame) -> tuple[Column, ...]:
    lowered: set[str] = set()
    for name in rows.columns:
        if name.lower() in lowered:
            raise table.error(f'duplicate column "{name}"', at="", fix="Rename one of them with AS")
        lowered.add(name.lower())
    check_names(table, rows.columns)
    for expectation in table.expectations:
        _check_condition(table, rows, f'expect "{expectation.sentence}"', expectation.that, expectation.line)
    for key, condition in event_conditions(table).items():
        _check_condition(table, rows, key, condition, table.lines.get(key, 1))
    if table.unchanged:
        _check_unchanged(table, table.unchanged, rows)
    try:
        columns = spec_columns(rows.drop(*table.except_columns).schema)
    except ValueError as error:
        raise table.error(str(error), at="", fix="Cast it to another type") from None
    columns = strategy_of(table).readable_columns(table, rows, columns)
    types = {column.name: column.type for column in columns}
    for transform in table.partition_by:
        problem = transform_problem(transform, types=types)
        if problem:
            raise table.error(problem[0], at="partition_by", fix=problem[1])
    return columns


def _check_condition(table: LayerTable, rows: DataFrame, what: str, condition: str, line: int) -> None:
    try:
        kind = rows.select(F.expr(condition)).schema.fields[0].dataType
    except (AnalysisException, ParseException) as error:
        message = _SUGGESTION.sub("", str(error).splitlines()[0])
        raise table.error(f"{what} can't be computed: {message}", at=line, fix="Fix the condition") from None
    if not isinstance(kind, BooleanType):
        raise table.error(
            f"{what} is of type {kind.simpleString()}, not boolean: {condition}", at=line, fix="Write a boolean condition"
        )
