"""Where a pipeline's tables and columns come from and what depends on them, from topic to mart and back."""

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
    """A Kafka topic, where lineage begins."""

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
    """A column and the fields that its values are made of.

    `expressions` are the SQL that makes it, empty for a copy; `note` says what makes a column that no query makes.
    """

    name: str
    sources: tuple[Field, ...] = ()
    expressions: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Input:
    """What a table reads. The rows of what `drives` become its rows; what is `joined` is looked up for them."""

    node: Node
    role: Role


@dataclass(frozen=True)
class TableLineage:
    """A table, what it reads, and its columns as far as they can be told without running anything.

    `whole` says whether `columns` are all of them: a Python table has only those that its settings and its readers name.
    """

    table: TableName
    made_by: MadeBy
    kind: Kind | None
    file: str
    inputs: tuple[Input, ...]
    columns: tuple[ColumnLineage, ...]
    whole: bool = True

    def column(self, name: str) -> ColumnLineage | None:
        return next((each for each in self.columns if each.name.lower() == name.lower()), None)


@dataclass(frozen=True)
class Lineage:
    """The lineage of a pipeline: its tables, each after those that it reads."""

    pipeline: str
    tables: tuple[TableLineage, ...]

    @cached_property
    def _by_name(self) -> dict[Node, TableLineage]:
        return {each.table: each for each in self.tables}

    def table(self, node: Node) -> TableLineage | None:
        """Return the table of that name; a topic is none."""
        return self._by_name.get(node)

    def inputs(self, node: Node) -> tuple[Input, ...]:
        found = self.table(node)
        return found.inputs if found else ()

    def readers(self, node: Node) -> tuple[Input, ...]:
        """Return the tables that read one directly, and in which role they do."""
        return tuple(Input(each.table, read.role) for each in self.tables for read in each.inputs if read.node == node)

    def column(self, field: Field) -> ColumnLineage | None:
        found = self.table(field.of)
        return found.column(field.name) if found else None

    def sources(self, field: Field) -> tuple[Field, ...]:
        found = self.column(field)
        return found.sources if found else ()

    @cached_property
    def _dependents(self) -> dict[Field, tuple[Field, ...]]:
        found: dict[Field, tuple[Field, ...]] = {}
        for table in self.tables:
            for column in table.columns:
                for source in column.sources:
                    found[source] = (*found.get(source, ()), Field(table.table, column.name))
        return found

    def dependents(self, field: Field) -> tuple[Field, ...]:
        """Return the columns that are made of one directly."""
        return self._dependents.get(field, ())

    def find(self, name: str) -> TableName | Field:
        """Return the table, or the column of a table, that a name such as `marts.daily.total` means.

        The namespace may be left out where one table has the name. What there is not, is a SpecError that says what there is.
        """
        parts = name.split(".")
        for length in (len(parts), len(parts) - 1):
            start = ".".join(parts[:length])
            tables = [each for each in self.tables if start and f".{each.table}".endswith(f".{start}")]
            tables = [each for each in tables if str(each.table) == start] or tables
            if len(tables) > 1:
                raise self._error(
                    f'several tables are called "{start}": {_listed(each.table for each in tables)}',
                    f"Write the namespace too: headrace lineage {self.pipeline} {tables[0].table}",
                )
            if tables:
                return tables[0].table if length == len(parts) else self._find_column(tables[0], parts[-1])
        known = [str(each.table) for each in self.tables]
        hint = suggest(".".join(parts[: max(2, len(parts) - 1)]), known, plural="Tables")
        everything = "" if hint.startswith("Tables") else f" Tables are: {_listed(known)}."
        raise self._error(f'there is no table "{name}"', f"{hint}{everything}")

    def _find_column(self, table: TableLineage, name: str) -> Field:
        column = table.column(name)
        if column is not None:
            return Field(table.table, column.name)
        if not table.whole:
            return Field(table.table, name)  # it may be there: only running the table would tell
        hint = suggest(name, [each.name for each in table.columns], plural="Columns")
        everything = "" if hint.startswith("Columns") else f" Columns are: {_listed(each.name for each in table.columns)}."
        raise self._error(f'{table.table} has no column "{name}"', f"{hint}{everything}")

    def _error(self, what: str, next_step: str) -> SpecError:
        return SpecError(what, where=f"pipeline {self.pipeline}", next_step=next_step)


def trace_lineage(pipeline: Pipeline) -> Lineage:
    """Return the lineage of every table and column of a pipeline; nothing is run and nothing is read but its files."""
    tables = [_trace_stream(each) for each in pipeline.streams]
    columns: dict[TableName, Sequence[str]] = {each.table: tuple(column.name for column in each.columns) for each in tables}
    for table in pipeline.tables:
        traced = _trace_table(table, known=columns)
        if traced.whole:
            columns[table.table] = tuple(each.name for each in traced.columns if each.name not in table.added_columns)
        tables.append(traced)
    return Lineage(pipeline.name, tuple(_with_named(each, tables) for each in tables))


def walk(start: Node | Field, step: Callable[..., Iterable[Node | Field | Input]]) -> tuple[Node | Field, ...]:
    """Return all that a step leads to, again and again, each once, nearest first."""
    found: dict[Node | Field, None] = {}
    waiting = [start]
    while waiting:
        for each in step(waiting.pop(0)):
            node = each.node if isinstance(each, Input) else each
            if node not in found:
                found[node] = None
                waiting.append(node)
    return tuple(found)


def _trace_stream(stream: Stream) -> TableLineage:
    topic = Topic(stream.topic)
    columns = [ColumnLineage(each.name, (Field(topic, each.name),)) for each in stream.columns]
    if stream.event_time:
        note = f"the moment that {stream.event_time.source} counts, in {stream.event_time.unit}"
        columns.append(ColumnLineage(stream.event_time.column, (Field(topic, stream.event_time.source),), note=note))
    if stream.format == "json":
        columns.append(ColumnLineage(EXTRA.name, note=f"the fields of {topic} that the schema does not name"))
    for each in COORDINATES:
        what = each.name.removeprefix("kafka_")
        note = f"Kafka: the message's {what}" if what != each.name else "Headrace: the batch that landed the row"
        columns.append(ColumnLineage(each.name, note=note))
    return TableLineage(stream.table, "stream", None, "pipeline.yml", (Input(topic, "drives"),), tuple(columns))


def _trace_table(table: LayerTable, *, known: dict[TableName, Sequence[str]]) -> TableLineage:
    inputs = (*(Input(each, "drives") for each in table.drivers), *(Input(each, "joined") for each in table.lookups))
    file = f"{table.layer}/{table.path.name}"
    own: tuple[ColumnLineage, ...] = (ColumnLineage(BUILD_ID, note="Headrace: the build that wrote the row"),)
    if table.unchanged:
        own = (ColumnLineage(CARRIED, note="Headrace: which event told each value that the row's own did not"), *own)
    if not isinstance(table.source, Query):
        return TableLineage(table.table, "python", table.kind, file, inputs, own, whole=False)
    read = {each: names for each, names in known.items() if each in table.inputs}
    found = find_sources(parse_query(table.source.text, place=table.place), known=read)
    if found is None:
        return TableLineage(table.table, "sql", table.kind, file, inputs, own, whole=False)
    made = {
        each.name: ColumnLineage(each.name, tuple(Field(of, name) for of, name in each.sources), each.expressions)
        for each in found
    }
    if table.kind == "history" and table.versioned_by in made:
        sequence = made[table.versioned_by].sources
        for name, note in zip(HISTORY_COLUMNS, ("begins", "ends; null while it is current", "is current"), strict=True):
            when = (
                f"whether the version {note}" if name == "is_current" else f"when the version {note}, by {table.versioned_by}"
            )
            made[name] = ColumnLineage(name, sequence, note=f"Headrace: {when}")
    if table.kind == "entities":
        made |= _entity_lineage(table, made)
    kept = tuple(made[name] for name in readable_columns(table, [each.name for each in found]) if name in made)
    return TableLineage(table.table, "sql", table.kind, file, inputs, (*kept, *own))


def _entity_lineage(table: LayerTable, made: Mapping[str, ColumnLineage]) -> dict[str, ColumnLineage]:
    """Return the columns that a build adds to records.

    All but the normalised values follow from all values that are matched or compared.
    """
    found = {}
    for match in table.matches:
        sources = [source for name in match.reads if name in made for source in made[name].sources]
        found[match.column] = ColumnLineage(
            match.column, tuple(dict.fromkeys(sources)), note=f"Headrace: {match.source} as {match.how}, normalised"
        )
    compared = [made[name] for name in (table.fuzzy.columns if table.fuzzy else ()) if name in made]
    every = tuple(dict.fromkeys(source for each in (*found.values(), *compared) for source in each.sources))
    notes = {
        ENTITY_ID: "the entity that the record is of",
        CONFIDENCE: "how sure that is: 100 for equal values, else the match weight",
        PREVIOUS: "ids of the entity before it was merged into an older one",
        UNUSED: "match columns whose value too many records share",
    }
    return {**found, **{name: ColumnLineage(name, every, note=f"Headrace: {note}") for name, note in notes.items()}}


def _with_named(table: TableLineage, tables: Sequence[TableLineage]) -> TableLineage:
    """Return a table whose columns can't be told with those that its readers name."""
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
    columns = tuple(ColumnLineage(name, note=f"made by {what}, whose columns are not traced") for name in dict.fromkeys(named))
    return TableLineage(
        table.table, table.made_by, table.kind, table.file, table.inputs, (*columns, *table.columns), whole=False
    )


def _listed(names: Iterable[object]) -> str:
    return ", ".join(str(each) for each in names)
