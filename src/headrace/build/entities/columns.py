"""The columns of records: the query's own, and the ones that a build adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import AtomicType, BinaryType, DateType, FractionalType, StringType, TimestampType

from headrace.build.types import has_map
from headrace.spec.model.fuzzy import Fuzzy
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED, entity_columns
from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Primitive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def record_columns(table: LayerTable, rows: DataFrame, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of records, including the ones that a build adds. Match values are strings.

    `rows` is the query on empty inputs. Raises SpecError for a column that can't be matched, compared or stored.
    """
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
            what = f'"{field.name}" is a map: entity tables don\'t support maps'
            raise table.error(what, at="", fix="Convert it to text: to_json(…)")
    kinds: dict[str, ColumnType] = {column.name: column.type for column in columns}
    kinds |= {match.column: Primitive("string") for match in table.matches}
    kinds |= {ENTITY_ID: Primitive("string"), CONFIDENCE: Decimal(5, 2)}
    kinds |= {name: Array(Primitive("string")) for name in (PREVIOUS, UNUSED)}
    return tuple(Column(name, kinds[name]) for name in entity_columns(table.matches, [column.name for column in columns]))


def _check_compared(table: LayerTable, fuzzy: Fuzzy, rows: DataFrame) -> None:
    """Raise a SpecError if a column's type does not support its comparison. Match columns are strings."""
    for name in (name for name in fuzzy.columns if name in rows.columns):
        kind, how = rows.schema[name].dataType, fuzzy.how(name)
        if isinstance(kind, StringType) or (how == "date" and isinstance(kind, (DateType, TimestampType))):
            continue
        if how != "exact" or not isinstance(kind, AtomicType) or isinstance(kind, (BinaryType, FractionalType)):
            what = f'fuzzy: "{name}" is of type {kind.simpleString()}, which can\'t be compared as {how}'
            raise table.error(what, at="fuzzy", fix=f"Cast it to text: CAST({name} AS STRING)")
