"""Evolve a table's schema with its pipeline: add columns and widen types, never drop or narrow them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from headrace.bounded_cache import BoundedCache
from headrace.errors import SpecError
from headrace.iceberg.pyiceberg_private.planned_schema import planned_schema
from headrace.iceberg.schema.columns import iceberg_schema
from headrace.spec.model.types import Array, Column, ColumnType, Map, Struct

_fitting: BoundedCache[tuple[str, int, tuple[Column, ...]], bool] = BoundedCache(1_024)
"""Table schemas that can hold every value of some columns: every build checks this."""


def widen_table(table: Table, columns: tuple[Column, ...]) -> Table:
    """Add and widen columns so that the table can hold every value of `columns`. Commit only if something changes.

    A new column is optional, because existing rows lack it. A column that is no longer listed or required becomes optional.
    Raises SpecError for a type that the table's type can't be widened to.
    """
    metadata = table.metadata
    known = (metadata.table_uuid.hex, metadata.current_schema_id, columns)
    if _fitting.get(known):
        return table
    have = table.schema()
    required = _required_paths(have)
    wanted = iceberg_schema(_relax(columns, required=required))
    loose = sorted(required - _required_paths(wanted))
    if loose or not _holds(have.as_struct(), wanted.as_struct()):
        try:
            with table.update_schema() as update:
                update.union_by_name(wanted)
                for path in loose:
                    update.make_column_optional(path)
        except (ResolveError, ValidationError, ValueError) as error:
            raise _refuse(table, str(error)) from error
    if not _holds(table.schema().as_struct(), wanted.as_struct()):
        raise _refuse(table, "a type would be narrowed")
    _fitting.put((known[0], table.metadata.current_schema_id, columns), True)
    return table


def can_widen(table: Table, columns: tuple[Column, ...]) -> bool:
    """Return whether the table can be widened to hold every value of `columns`, without committing anything."""
    wanted = iceberg_schema(_relax(columns, required=_required_paths(table.schema())))
    try:
        update = table.transaction().update_schema().union_by_name(wanted)
    except (ResolveError, ValidationError, ValueError):
        return False
    return _holds(planned_schema(update).as_struct(), wanted.as_struct())


@dataclass(frozen=True)
class Widening:
    """The schema changes for some columns: `grows` if columns are added or widened, `problems` names impossible changes."""

    grows: bool
    problems: tuple[str, ...]


def compare_columns(have: Schema, columns: tuple[Column, ...]) -> Widening:
    """Return the changes that a table of this schema needs to hold every value of `columns`, all of them optional."""
    wanted = iceberg_schema(columns)
    problems = type_problems(have.as_struct(), wanted.as_struct())
    return Widening(not problems and not _holds(have.as_struct(), wanted.as_struct()), problems)


def type_problems(have: IcebergType, wanted: IcebergType) -> tuple[str, ...]:
    """Return the reasons why a table's type can't be widened to hold the other, one for each nested field."""
    return tuple(_problems(have, wanted, path=""))


def _problems(have: IcebergType, wanted: IcebergType, *, path: str) -> Iterator[str]:
    """Yield the fields whose type can't be widened to hold the other, with both types."""
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        fields = {field.name.lower(): field for field in have.fields}
        for field in wanted.fields:
            existing, at = fields.get(field.name.lower()), f"{path}.{field.name}" if path else field.name
            if existing is not None and existing.name != field.name:
                yield f"`{at}` and the table's `{existing.name}` differ only in case"
            elif existing is not None:
                yield from _problems(existing.field_type, field.field_type, path=at)
    elif isinstance(have, ListType) and isinstance(wanted, ListType):
        yield from _problems(have.element_type, wanted.element_type, path=f"{path}.element")
    elif isinstance(have, MapType) and isinstance(wanted, MapType):
        yield from _problems(have.value_type, wanted.value_type, path=f"{path}.value")
    elif not _holds(have, wanted) and not _can_promote(have, wanted):
        yield f"`{path}` is {wanted}, and the table has {have}"


def _can_promote(have: IcebergType, wanted: IcebergType) -> bool:
    if isinstance(have, DecimalType) and isinstance(wanted, DecimalType):
        return have.scale == wanted.scale
    return (isinstance(have, IntegerType) and isinstance(wanted, LongType)) or (
        isinstance(have, FloatType) and isinstance(wanted, DoubleType)
    )


def _relax(columns: tuple[Column, ...], *, required: set[str], path: str = "") -> tuple[Column, ...]:
    """Return the columns, required only if the table's columns are."""
    return tuple(
        replace(
            column,
            required=column.required and path + column.name in required,
            type=_relax_type(column.type, required=required, path=path + column.name),
        )
        for column in columns
    )


def _relax_type(column_type: ColumnType, *, required: set[str], path: str) -> ColumnType:
    if isinstance(column_type, Struct):
        return Struct(_relax(column_type.columns, required=required, path=f"{path}."))
    if isinstance(column_type, Array):
        return Array(_relax_type(column_type.element, required=required, path=f"{path}.element"))
    if isinstance(column_type, Map):
        return Map(_relax_type(column_type.value, required=required, path=f"{path}.value"))
    return column_type


def _required_paths(schema: Schema) -> set[str]:
    """Return the full names of the required columns at every depth, except map keys."""
    paths: set[str] = set()

    def walk(kind: IcebergType, path: str) -> None:
        if isinstance(kind, StructType):
            for field in kind.fields:
                if field.required:
                    paths.add(path + field.name)
                walk(field.field_type, f"{path}{field.name}.")
        elif isinstance(kind, ListType):
            walk(kind.element_type, f"{path}element.")
        elif isinstance(kind, MapType):
            walk(kind.value_type, f"{path}value.")

    walk(schema.as_struct(), "")
    return paths


def _holds(have: IcebergType, wanted: IcebergType) -> bool:
    """Return whether `have` can hold every value of `wanted`."""
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        fields = {field.name: field.field_type for field in have.fields}
        return all(field.name in fields and _holds(fields[field.name], field.field_type) for field in wanted.fields)
    if isinstance(have, ListType) and isinstance(wanted, ListType):
        return _holds(have.element_type, wanted.element_type)
    if isinstance(have, MapType) and isinstance(wanted, MapType):
        return _holds(have.value_type, wanted.value_type)
    if isinstance(have, DecimalType) and isinstance(wanted, DecimalType):
        return have.scale == wanted.scale and have.precision >= wanted.precision
    wider = (isinstance(have, LongType) and isinstance(wanted, IntegerType)) or (
        isinstance(have, DoubleType) and isinstance(wanted, FloatType)
    )
    return wider or have == wanted


def _refuse(table: Table, why: str) -> SpecError:
    name = ".".join(table.name())
    return SpecError(
        f"incompatible schema change of table {name}: {why}",
        where=name,
        next_step="A column's type can only widen (int to long, float to double, a decimal of larger precision). Add a new "
        "column for the new type, or land into a new table.",
    )
