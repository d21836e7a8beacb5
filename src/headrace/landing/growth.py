"""A table grows while it lands: messages bring columns that it lacks, or wider ones, and are read again when it has them."""

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
    """Return the table with a place for the columns of each schema, and a sentence for each column that came or widened.

    Idempotent by the columns themselves. Of two schemas that contradict one another the first counts: messages of the second
    are refused when they are read again. That nothing changes is a LandingError, because it would be tried for ever.
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
            "the table was changed by someone else while it was to grow", where=name, next_step="It is tried again."
        ) from error
    if table.schema() == before:
        raise LandingError(
            "its messages have columns that the table can't be given",
            where=name,
            next_step="Nothing was committed. Land them into a new table: change its name in pipeline.yml.",
        )
    old, new = (dict(_types(schema.as_struct())) for schema in (before, table.schema()))
    return table, tuple(_changes(name, old, new))


def _changes(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path, kind in after.items():
        if path not in before:
            yield f"{name} has a new column: {path}, {kind}"
        elif before[path] != kind:
            yield f"{name} has a wider column: {path}, {before[path]} before and {kind} now"


def _types(kind: IcebergType, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the type of every column, those of structs by their own columns."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _types(field.field_type, f"{path}.{field.name}" if path else field.name)
    elif isinstance(kind, ListType) and not kind.element_type.is_primitive:
        yield from _types(kind.element_type, f"{path}.element")
    elif isinstance(kind, MapType) and not kind.value_type.is_primitive:
        yield from _types(kind.value_type, f"{path}.value")
    else:
        yield path, str(kind)
