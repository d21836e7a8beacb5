"""Schema evolution while landing: add or widen the columns that messages need, then read the batch again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from headrace.errors import LandingError, UnavailableError
from headrace.iceberg.schema.widening import compare_columns, widen_table
from headrace.spec.model.types import Column


def grow_table(catalog: Catalog, table: Table, schemas: Iterable[tuple[Column, ...]]) -> tuple[Table, tuple[str, ...]]:
    """Return the table with the columns of each schema, and a sentence for each new or widened column.

    Idempotent by the columns themselves. If two schemas contradict each other, the first wins: messages of the second are
    refused when the batch is read again. Raise a LandingError if nothing changes, because landing would retry for ever.
    """
    name = ".".join(table.name())
    before = table.schema()
    try:
        table = catalog.load_table(table.name())
        for columns in schemas:
            if compare_columns(table.schema(), columns).grows:
                table = widen_table(table, columns)
    except CommitFailedException as error:
        raise UnavailableError(
            "another writer changed the table's schema", where=name, next_step="Headrace retries the batch."
        ) from error
    if table.schema() == before:
        raise LandingError(
            "messages have columns that can't be added to the table",
            where=name,
            next_step="Nothing was committed. Land them into a new table: change the stream's table in pipeline.yml.",
        )
    old, new = (dict(_types(schema.as_struct())) for schema in (before, table.schema()))
    return table, tuple(_changes(name, old, new))


def _changes(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path, kind in after.items():
        if path not in before:
            yield f"{name} has a new column: {path}, {kind}"
        elif before[path] != kind:
            yield f"{name} has a wider column: {path}, {before[path]} -> {kind}"


def _types(kind: IcebergType, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and type of every leaf column."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _types(field.field_type, f"{path}.{field.name}" if path else field.name)
    elif isinstance(kind, ListType) and not kind.element_type.is_primitive:
        yield from _types(kind.element_type, f"{path}.element")
    elif isinstance(kind, MapType) and not kind.value_type.is_primitive:
        yield from _types(kind.value_type, f"{path}.value")
    else:
        yield path, str(kind)
