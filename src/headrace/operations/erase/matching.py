"""Which rows are a person's, and which of another's name them, as columns of Spark. Pure: DataFrame in, columns out.

What is looked for reaches Spark as values. No SQL is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from headrace.operations.erase.identifiers import Identifiers, text_pattern
from headrace.spark.columns import named
from headrace.spark.times import EXACT_JSON
from headrace.spec.model.pipeline import PersonColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ERASED = "[erased]"
"""What stands in another's row where it named the person."""


def is_theirs(rows: DataFrame, whose: PersonColumns | None, person: Identifiers) -> Column:
    """Return whether a row is the person's. Of a table of which nobody says whose its rows are, it is if it names them."""
    if whose is None:
        return names_them(rows, person)
    found = [_any_of(rows, each, person.emails, lambda value: F.lower(F.trim(value))) for each in whose.emails]
    found += [_any_of(rows, each, person.phones, _digits) for each in whose.phones]
    for kind, expressions in whose.ids.items():
        found += [_any_of(rows, each, person.ids.get(kind, frozenset()), F.trim) for each in expressions]
    return _either([*found, names_them(rows, person, columns=whose.text)])


def names_them(rows: DataFrame, person: Identifiers, *, columns: Sequence[str] | None = None) -> Column:
    """Return whether a text in any column, or in these, names the person by an email or a phone."""
    pattern = text_pattern(person)
    if pattern is None:
        return F.lit(False)
    chosen = rows.columns if columns is None else columns
    return _either([text.rlike(pattern) for name in chosen if (text := _as_text(rows, name)) is not None])


def without_them(rows: DataFrame, person: Identifiers) -> list[Column]:
    """Return a row's columns with `[erased]` wherever a text named the person; all else is as it was."""
    pattern = text_pattern(person)
    return [_replace(rows, name, pattern) if pattern else named(name) for name in rows.columns]


def holds_them(value: Column, person: Identifiers, *, shortest_id: int) -> Column:
    """Return whether bytes that could not be decoded hold any identifier of the person."""
    text = F.decode(value, "UTF-8")
    ids = [each for values in person.ids.values() for each in values if len(each) >= shortest_id]
    whole = [text.rlike(rf"(?<![0-9A-Za-z])\Q{_quoted(each)}\E(?![0-9A-Za-z])") for each in sorted(ids)]
    pattern = text_pattern(person)
    return _either([*whole, *([text.rlike(pattern)] if pattern else [])])


def values_of(rows: DataFrame, expression: str) -> Column:
    """Return an expression's values as an array of texts, whatever its type."""
    column = F.expr(expression)
    if isinstance(rows.select(column).schema.fields[0].dataType, ArrayType):
        return column.cast("array<string>")
    return F.array(column.cast("string"))


def _any_of(rows: DataFrame, expression: str, wanted: frozenset[str], plain: Callable[[Column], Column]) -> Column:
    if not wanted:
        return F.lit(False)
    return F.exists(values_of(rows, expression), lambda value: plain(value).isin(*sorted(wanted)))


def _either(conditions: Sequence[Column]) -> Column:
    safe = [F.coalesce(each, F.lit(False)) for each in conditions]
    return reduce(lambda one, other: one | other, safe, F.lit(False))


def _digits(value: Column) -> Column:
    return F.regexp_replace(value, "[^0-9]", "")


def _quoted(value: str) -> str:
    return value.replace("\\E", "\\E\\\\E\\Q")


def _as_text(rows: DataFrame, name: str) -> Column | None:
    """Return what of a column can be searched, or None for numbers and times, which name nobody."""
    kind, column = rows.schema[name].dataType, named(name)
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, BinaryType):
        return F.decode(column, "UTF-8")
    return F.to_json(column) if isinstance(kind, (StructType, ArrayType, MapType)) and _has_text(kind) else None


def _has_text(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_text(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_text(kind.elementType)
    return isinstance(kind, (StringType, MapType))


def _replace(rows: DataFrame, name: str, pattern: str) -> Column:
    kind, column = rows.schema[name].dataType, named(name)
    if isinstance(kind, StringType):
        return F.regexp_replace(column, pattern, ERASED).alias(name)
    if isinstance(kind, BinaryType):
        return F.when(~F.coalesce(F.decode(column, "UTF-8").rlike(pattern), F.lit(False)), column).alias(name)
    text = _as_text(rows, name)
    if text is None:
        return column
    written = F.regexp_replace(F.to_json(column, EXACT_JSON), pattern, ERASED)
    return F.when(text.rlike(pattern), F.from_json(written, kind.simpleString(), EXACT_JSON)).otherwise(column).alias(name)
