"""The columns of a stored table: the columns that readers see, and the ones that builds add."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.spec.model.layers import BUILD_ID, CARRIED, STATE, LayerTable
from headrace.spec.model.types import Array, Column, ColumnType, Primitive, Struct


def stored_columns(table: LayerTable, columns: Sequence[Column], *, has_states: bool) -> tuple[Column, ...]:
    """Return a table's stored columns: its own, the sources of carried values, the states, and the build id of each row."""
    carried = (Column(CARRIED, _carried_type(table, columns)),) if table.unchanged else ()
    states = (Column(STATE, Primitive("string")),) if has_states else ()
    return (*columns, *carried, *states, Column(BUILD_ID, Primitive("long")))


def _carried_type(table: LayerTable, columns: Sequence[Column]) -> ColumnType:
    types = {column.name: column.type for column in columns}
    sequence = (Column(name, types[name]) for name in table.sequence_by)
    return Array(Struct((Column("column", Primitive("string")), *sequence, Column("is_known", Primitive("boolean")))))
