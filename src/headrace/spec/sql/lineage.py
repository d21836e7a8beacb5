"""Lineage of a pipeline's tables and columns, upstream and downstream, from topics to marts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from headrace.errors import SpecError
from headrace.spec.model.columns import COORDINATES, EXTRA
from headrace.spec.model.kinds import Kind
from headrace.spec.model.layers import BUILD_ID, CARRIED, HISTORY_COLUMNS, LayerTable, Query
from headrace.spec.model.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED
from headrace.spec.model.pipeline import Pipeline, Stream, TableName
from headrace.spec.problems import suggest
from headrace.spec.sql.column_sources import find_sources
from headrace.spec.sql.graph import readable_columns
from headrace.spec.sql.queries import parse_query

MadeBy = Literal["stream", "sql", "python"]
Role = Literal["drives", "joined"]


@dataclass(frozen=True)
class Topic:
    """A Kafka topic, the start of lineage."""

    name: str

    def __str__(self) -> str:
        return f"topic {self.name}"


Node = TableName | Topic


@dataclass(frozen=True)
class Field:
    """A column of a table, or a field of a topic's messages."""

    of: Node
    name: str

    def __str__(self) -> str:
        return f"{self.of}.{self.name}" if isinstance(self.of, TableName) else f"{self.of}, field {self.name}"


@dataclass(frozen=True)
class ColumnLineage:
    """A column and the fields that its values are derived from.

    `expressions` are the SQL that computes it, empty for a copied column. `note` explains a column that no query computes.
    """

    name: str
    sources: tuple[Field, ...] = ()
    expressions: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Input:
    """An input of a table. The rows of an input that `drives` become its rows; an input that is `joined` is a lookup."""

    node: Node
    role: Role


@dataclass(frozen=True)
class TableLineage:
    """A table, its inputs, and its columns as far as they are known without running anything.

    `whole` says whether `columns` is complete: for a Python table, it has only columns that its readers name.
    """

    table: TableName
    made_by: MadeBy
    kind: Kind | None
    file: str
    inputs: tuple[Input, ...]
    columns: tuple[ColumnLineage, ...]
    whole: bool = True

    def column(self, name: str) -> ColumnLineage | None:
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)


@dataclass(frozen=True)
class Lineage:
    """The lineage of a pipeline: its tables in dependency order."""

    pipeline: str
    tables: tuple[TableLineage, ...]

    @cached_property
    def _by_name(self) -> dict[Node, TableLineage]:
        return {table.table: table for table in self.tables}

    def table(self, node: Node) -> TableLineage | None:
        """Return the table, or None for a topic or an unknown name."""
        return self._by_name.get(node)

    def inputs(self, node: Node) -> tuple[Input, ...]:
        table = self.table(node)
        return table.inputs if table else ()

    def readers(self, node: Node) -> tuple[Input, ...]:
        """Return the direct readers of a table or topic, with the role of each read."""
        return tuple(Input(table.table, read.role) for table in self.tables for read in table.inputs if read.node == node)

    def column(self, field: Field) -> ColumnLineage | None:
        table = self.table(field.of)
        return table.column(field.name) if table else None

    def sources(self, field: Field) -> tuple[Field, ...]:
        column = self.column(field)
        return column.sources if column else ()

    @cached_property
    def _dependents(self) -> dict[Field, tuple[Field, ...]]:
        dependents: dict[Field, tuple[Field, ...]] = {}
        for table in self.tables:
            for column in table.columns:
                for source in column.sources:
                    dependents[source] = (*dependents.get(source, ()), Field(table.table, column.name))
        return dependents

    def dependents(self, field: Field) -> tuple[Field, ...]:
        """Return the columns that are directly derived from a field."""
        return self._dependents.get(field, ())

    def find(self, name: str) -> TableName | Field:
        """Return the table or the column of a table that a name such as `marts.daily.total` refers to.

        The namespace is optional if the table's name is unique. An unknown or ambiguous name raises a SpecError.
        """
        parts = name.split(".")
        for length in (len(parts), len(parts) - 1):
            start = ".".join(parts[:length])
            tables = [table for table in self.tables if start and f".{table.table}".endswith(f".{start}")]
            tables = [table for table in tables if str(table.table) == start] or tables
            if len(tables) > 1:
                raise self._error(
                    f'table name "{start}" is ambiguous: {_listed(table.table for table in tables)}',
                    f"Add the namespace: headrace lineage {self.pipeline} {tables[0].table}",
                )
            if tables:
                return tables[0].table if length == len(parts) else self._find_column(tables[0], parts[-1])
        known = [str(table.table) for table in self.tables]
        hint = suggest(".".join(parts[: max(2, len(parts) - 1)]), known, plural="Tables")
        everything = "" if hint.startswith("Tables") else f" Tables are: {_listed(known)}."
        raise self._error(f'not found: table "{name}"', f"{hint}{everything}")

    def _find_column(self, table: TableLineage, name: str) -> Field:
        column = table.column(name)
        if column is not None:
            return Field(table.table, column.name)
        if not table.whole:
            return Field(table.table, name)  # it may exist: only running the table would show
        hint = suggest(name, [known_column.name for known_column in table.columns], plural="Columns")
        everything = (
            ""
            if hint.startswith("Columns")
            else f" Columns are: {_listed(known_column.name for known_column in table.columns)}."
        )
        raise self._error(f'{table.table} has no column "{name}"', f"{hint}{everything}")

    def _error(self, what: str, next_step: str) -> SpecError:
        return SpecError(what, where=f"pipeline {self.pipeline}", next_step=next_step)


def trace_lineage(pipeline: Pipeline) -> Lineage:
    """Return the lineage of every table and column of a pipeline, without running anything."""
    tables = [_trace_stream(stream) for stream in pipeline.streams]
    columns: dict[TableName, Sequence[str]] = {table.table: tuple(column.name for column in table.columns) for table in tables}
    for table in pipeline.tables:
        traced = _trace_table(table, known=columns)
        if traced.whole:
            columns[table.table] = tuple(column.name for column in traced.columns if column.name not in table.added_columns)
        tables.append(traced)
    return Lineage(pipeline.name, tuple(_with_named(table, tables) for table in tables))


def walk(start: Node | Field, step: Callable[..., Iterable[Node | Field | Input]]) -> tuple[Node | Field, ...]:
    """Return everything that is reachable by repeated steps, without duplicates, nearest first."""
    nodes: dict[Node | Field, None] = {}
    waiting = [start]
    while waiting:
        for step_result in step(waiting.pop(0)):
            node = step_result.node if isinstance(step_result, Input) else step_result
            if node not in nodes:
                nodes[node] = None
                waiting.append(node)
    return tuple(nodes)


def _trace_stream(stream: Stream) -> TableLineage:
    topic = Topic(stream.topic)
    columns = [ColumnLineage(column.name, (Field(topic, column.name),)) for column in stream.columns]
    if stream.event_time:
        note = f"the timestamp of {stream.event_time.source}, an epoch number in {stream.event_time.unit}"
        columns.append(ColumnLineage(stream.event_time.column, (Field(topic, stream.event_time.source),), note=note))
    if stream.format == "json":
        columns.append(ColumnLineage(EXTRA.name, note=f"the fields of {topic} that the schema does not name"))
    for coordinate in COORDINATES:
        what = coordinate.name.removeprefix("kafka_")
        note = f"Kafka: the message's {what}" if what != coordinate.name else "Headrace: the batch that landed the row"
        columns.append(ColumnLineage(coordinate.name, note=note))
    return TableLineage(stream.table, "stream", None, "pipeline.yml", (Input(topic, "drives"),), tuple(columns))


def _trace_table(table: LayerTable, *, known: dict[TableName, Sequence[str]]) -> TableLineage:
    inputs = (*(Input(driver, "drives") for driver in table.drivers), *(Input(lookup, "joined") for lookup in table.lookups))
    file = f"{table.layer}/{table.path.name}"
    own: tuple[ColumnLineage, ...] = (ColumnLineage(BUILD_ID, note="Headrace: the build that wrote the row"),)
    if table.unchanged:
        own = (ColumnLineage(CARRIED, note="Headrace: the event of each value that the row's own event did not contain"), *own)
    if not isinstance(table.source, Query):
        return TableLineage(table.table, "python", table.kind, file, inputs, own, whole=False)
    read = {name: names for name, names in known.items() if name in table.inputs}
    sources = find_sources(parse_query(table.source.text, place=table.place), known=read)
    if sources is None:
        return TableLineage(table.table, "sql", table.kind, file, inputs, own, whole=False)
    by_name = {
        column.name: ColumnLineage(column.name, tuple(Field(of, name) for of, name in column.sources), column.expressions)
        for column in sources
    }
    if table.kind == "history" and table.versioned_by in by_name:
        sequence = by_name[table.versioned_by].sources
        for name, note in zip(HISTORY_COLUMNS, ("begins", "ends; null while it is current", "is current"), strict=True):
            when = (
                f"whether the version {note}" if name == "is_current" else f"when the version {note}, by {table.versioned_by}"
            )
            by_name[name] = ColumnLineage(name, sequence, note=f"Headrace: {when}")
    if table.kind == "entities":
        by_name |= _entity_lineage(table, by_name)
    columns = tuple(by_name[name] for name in readable_columns(table, [column.name for column in sources]) if name in by_name)
    return TableLineage(table.table, "sql", table.kind, file, inputs, (*columns, *own))


def _entity_lineage(table: LayerTable, by_name: Mapping[str, ColumnLineage]) -> dict[str, ColumnLineage]:
    """Return the columns that a build adds to records of entities.

    All of them except the normalised values depend on all values that are matched or compared.
    """
    normalised = {}
    for match in table.matches:
        sources = [source for name in match.reads if name in by_name for source in by_name[name].sources]
        normalised[match.column] = ColumnLineage(
            match.column, tuple(dict.fromkeys(sources)), note=f"Headrace: {match.source} as {match.how}, normalised"
        )
    compared = [by_name[name] for name in (table.fuzzy.columns if table.fuzzy else ()) if name in by_name]
    every = tuple(dict.fromkeys(source for column in (*normalised.values(), *compared) for source in column.sources))
    notes = {
        ENTITY_ID: "the entity of the record",
        CONFIDENCE: "the confidence of the match: 100 for equal values, else the match weight",
        PREVIOUS: "ids of the entity before it was merged into an older one",
        UNUSED: "match columns whose value too many records share",
    }
    return {**normalised, **{name: ColumnLineage(name, every, note=f"Headrace: {note}") for name, note in notes.items()}}


def _with_named(table: TableLineage, tables: Sequence[TableLineage]) -> TableLineage:
    """Return a table whose columns are unknown with the columns that its readers name."""
    if table.whole:
        return table
    named = (
        source.name
        for reader in tables
        for column in reader.columns
        for source in column.sources
        if source.of == table.table and table.column(source.name) is None
    )
    what = "Python" if table.made_by == "python" else "a query that only Spark can resolve"
    columns = tuple(
        ColumnLineage(name, note=f"computed by {what}, whose columns are not traced") for name in dict.fromkeys(named)
    )
    return TableLineage(
        table.table, table.made_by, table.kind, table.file, table.inputs, (*columns, *table.columns), whole=False
    )


def _listed(names: Iterable[object]) -> str:
    return ", ".join(str(name) for name in names)
