"""Decode JSON messages into Arrow columns, strictly: a value fits its column exactly, or its row is bad.

msgspec decodes and checks a message in one pass into a struct of the columns, and names the path of a value that it refuses.
Columns are built from a thousand messages at a time, which fit the processor's cache; that saves more than half the time.
"""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, Optional, Union

import msgspec
import pyarrow as pa

from headrace.kafka.records import RecordBatch
from headrace.landing.decode.arrays import Builder, dates, decimals, floats, moments, plain
from headrace.landing.decode.decoded import Decoded
from headrace.landing.decode.extra import find_extra
from headrace.landing.decode.whole import NotWholeError, make_whole
from headrace.spec.model.pipeline import EpochUnit
from headrace.spec.model.surrogates import keep_lone_surrogates
from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Map, Struct

_INT = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_LONG = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_MOMENT = Union[str, _LONG, float]
_TYPES: dict[str, Any] = {
    "boolean": bool,
    "int": _INT,
    "long": _LONG,
    "float": float,
    "double": float,
    "date": str,
    "timestamp": _MOMENT,
    "timestamp_ntz": _MOMENT,
    "string": str,
    "binary": bytes,
}
_WHOLE: dict[str, Any] = {"int": Any, "long": Any}
"""Types for integers that may be written as floats. Floats are Decimals until whole.py has checked them, so no digit is lost.
Used only for messages that the strict decoder refuses, because it is slower."""
_NAMED: dict[str, Any] = dict.fromkeys(("float", "double"), Union[float, Literal["NaN", "Infinity", "-Infinity"]])
"""Floats as Java writes them: NaN and the infinities, which JSON has no number for, are names."""


class JsonDecoder:
    """Decode JSON objects into the given columns, with `_extra` for fields that the schema does not name.

    With `named_floats`, a float may also be the name NaN, Infinity or -Infinity.
    """

    def __init__(
        self, columns: tuple[Column, ...], *, schema: pa.Schema, epoch_unit: EpochUnit, named_floats: bool = False
    ) -> None:
        self._columns = columns
        self._schema = schema
        self._epoch_unit = epoch_unit
        types = {**_TYPES, **_NAMED} if named_floats else _TYPES
        self._strict = msgspec.json.Decoder(_struct(columns, types, strict=True))
        self._lenient = msgspec.json.Decoder(_struct(columns, {**types, **_WHOLE}, strict=False), float_hook=decimal.Decimal)
        self._values = _values_of(columns)

    def decode(self, values: list[bytes | None]) -> Decoded:
        objects: list[object] = []
        bad: dict[int, str] = {}
        extra: dict[int, str] = {}
        names: Counter[str] = Counter()
        left = iter(values)
        while len(objects) + len(bad) < len(values):
            try:
                objects.extend(map(self._strict.decode, left))  # type: ignore[arg-type]
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
                # The messages before the failing one are in `objects`, and the ones after it are still in `left`.
                index = len(objects) + len(bad)
                try:
                    struct, unnamed, unnamed_paths = self._decode_leniently(values[index], error)
                except _BadValueError as refusal:
                    bad[index] = refusal.reason
                else:
                    objects.append(struct)
                    if unnamed_paths:
                        extra[index] = unnamed
                        names.update(unnamed_paths)
        rows = [index for index in range(len(values)) if index not in bad]
        if not rows:
            return Decoded({}, [], bad)
        columns = {"_extra": _extras(extra, rows)}
        late: dict[int, str] = {}
        transposed = zip(*map(self._values, objects), strict=True)
        for column, column_values in zip(self._columns, transposed, strict=True):
            columns[column.name] = self._array(column, column_values, path=column.name, bad=late)
        return Decoded(columns, rows, bad, names).without(late)

    def decode_block(self, batches: Sequence[RecordBatch]) -> None:
        """Return None: a JSON value is not a row yet, so a block saves nothing."""

    def _decode_leniently(self, value: bytes | None, error: Exception) -> tuple[object, str, Sequence[str]]:
        """Return the row of a good message that the strict decoder refuses, its unnamed fields as JSON, and their names.

        Such a message has unnamed fields, an integer written as a float, or unpaired surrogates. Raise a _BadValueError for
        any other message.
        """
        if not value:
            raise _BadValueError("empty value")
        escaped = keep_lone_surrogates(value)
        if escaped == value and not any(text in str(error) for text in ("unknown field", "got `float`")):
            raise _BadValueError(_reason(error))
        try:
            struct = self._lenient.decode(escaped)
            make_whole(struct, self._columns)
            text, names = find_extra(escaped, self._columns)
        except NotWholeError as refused:
            raise _BadValueError(str(refused)) from refused
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as refused:
            raise _BadValueError(_reason(refused)) from refused
        return struct, text, names

    def _array(self, column: Column, values: Sequence[object], *, path: str, bad: dict[int, str]) -> pa.Array:
        arrow_type = self._schema.field(column.name).type
        return _build(column.type, arrow_type, values, unit=self._epoch_unit, path=path, bad=bad)


class _BadValueError(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _reason(error: Exception) -> str:
    text = str(error)
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in text or "utf-8" in text:
        return f"invalid UTF-8: {text}"
    if isinstance(error, msgspec.ValidationError):
        kind = "overflow" if ("<=" in text or ">=" in text or "out of range" in text) else "wrong type"
        return f"{kind}: {text}"
    return f"malformed JSON: {text}"


def _struct(columns: tuple[Column, ...], types: Mapping[str, Any], *, strict: bool) -> type[msgspec.Struct]:
    """Return a struct type of `columns`. Its attributes are numbered, because a column may have any name."""
    fields: list[Any] = []
    for index, column in enumerate(columns):
        field_type = _python_type(column.type, types, strict=strict)
        fields.append((f"f{index}", field_type) if column.required else (f"f{index}", Optional[field_type], None))
    return msgspec.defstruct(
        "Row",
        fields,
        rename={f"f{index}": column.name for index, column in enumerate(columns)},
        forbid_unknown_fields=strict,
        kw_only=True,
        gc=False,
    )


def _python_type(column_type: ColumnType, types: Mapping[str, Any], *, strict: bool) -> Any:
    if isinstance(column_type, Decimal):
        return decimal.Decimal
    if isinstance(column_type, Struct):
        return _struct(column_type.columns, types, strict=strict)
    if isinstance(column_type, Array):
        return list[Optional[_python_type(column_type.element, types, strict=strict)]]  # type: ignore[misc]
    if isinstance(column_type, Map):
        return dict[str, Optional[_python_type(column_type.value, types, strict=strict)]]  # type: ignore[misc]
    return types[column_type.name]


def _extras(extra: dict[int, str], rows: list[int]) -> pa.Array:
    if not extra:
        return pa.nulls(len(rows), pa.large_string())
    return pa.array([extra.get(index) for index in rows], pa.large_string())


def _values_of(columns: tuple[Column, ...]) -> Any:
    """Return a function from a struct to the tuple of its columns' values."""
    getter = attrgetter(*(f"f{index}" for index in range(len(columns))))
    return getter if len(columns) > 1 else lambda row: (getter(row),)


def _build(
    column_type: ColumnType,
    arrow_type: pa.DataType,
    values: Sequence[object],
    *,
    unit: EpochUnit,
    path: str,
    bad: dict[int, str],
) -> pa.Array:
    """Return the Arrow array of `values`. Add the positions of values that don't fit to `bad`, with a reason."""
    if isinstance(column_type, Struct):
        return _build_struct(column_type, arrow_type, values, unit=unit, path=path, bad=bad)
    if isinstance(column_type, (Array, Map)):
        return _build_nested(column_type, arrow_type, values, unit=unit, path=path, bad=bad)
    build, refusal = _leaf(column_type, arrow_type, unit)
    refused: list[int] = []
    array = build(values, refused)
    bad.update(dict.fromkeys(refused, f"{refusal} - at `$.{path}`"))
    return array


def _leaf(column_type: ColumnType, arrow_type: pa.DataType, unit: EpochUnit) -> tuple[Builder, str]:
    if isinstance(column_type, Decimal):
        return decimals(arrow_type), f"overflow: not a value of {column_type}"
    name = str(column_type)
    if name in ("timestamp", "timestamp_ntz"):
        return moments(unit, zoned=name == "timestamp"), "bad timestamp: not a time in ISO 8601 or since the epoch"
    if name == "date":
        return dates(), "bad timestamp: not a date in ISO 8601"
    return floats(arrow_type) if name in ("float", "double") else plain(arrow_type), f"overflow: not a value of {name}"


def _build_struct(
    column_type: Struct, arrow_type: pa.DataType, values: Sequence[object], *, unit: EpochUnit, path: str, bad: dict[int, str]
) -> pa.Array:
    of = _values_of(column_type.columns)
    nothing = (None,) * len(column_type.columns)
    mask = None
    try:
        rows = list(map(of, values))
    except AttributeError:  # some are null
        mask = pa.array([value is None for value in values])
        rows = [nothing if value is None else of(value) for value in values]
    transposed = zip(*rows, strict=True) if rows else (() for _ in nothing)
    built = {
        column.name: _build(
            column.type, arrow_type.field(column.name).type, child, unit=unit, path=f"{path}.{column.name}", bad=bad
        )
        for column, child in zip(column_type.columns, transposed, strict=True)
    }
    # The table may have the fields in another order, and additional ones at its end.
    children = [built[field.name] if field.name in built else pa.nulls(len(values), field.type) for field in arrow_type]
    return pa.StructArray.from_arrays(children, fields=list(arrow_type), mask=mask)


def _build_nested(
    column_type: Array | Map,
    arrow_type: pa.DataType,
    values: Sequence[Any],
    *,
    unit: EpochUnit,
    path: str,
    bad: dict[int, str],
) -> pa.Array:
    """Return lists or maps, built from their flattened elements, so that elements are built as columns too."""
    offsets: list[int | None] = [0]
    keys: list[str] = []
    elements: list[object] = []
    owners: list[int] = []
    for index, value in enumerate(values):
        if value is None:
            offsets[-1] = None
        elif isinstance(column_type, Map):
            keys.extend(value)
            elements.extend(value.values())
        else:
            elements.extend(value)
        owners.extend([index] * (len(elements) - len(owners)))
        offsets.append(len(elements))
    element_bad: dict[int, str] = {}
    if isinstance(column_type, Map):
        items = _build(column_type.value, arrow_type.item_type, elements, unit=unit, path=f"{path}[...]", bad=element_bad)
        array = pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(keys, pa.large_string()), items, type=arrow_type
        )
    else:
        flat = _build(column_type.element, arrow_type.value_type, elements, unit=unit, path=f"{path}[...]", bad=element_bad)
        array = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat, type=arrow_type)
    bad.update({owners[index]: reason for index, reason in element_bad.items()})
    return array
