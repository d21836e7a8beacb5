"""Convert decoded values to the types of the table without loss, or refuse them with the path that does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from headrace.landing.decode.arrays import in_calendar, plain

_BYTES = 16
_NOTHING = pa.scalar(b"", pa.large_binary())
_ZEROS, _ONES = (
    pa.array([sign * (_BYTES - size) for size in range(_BYTES + 1)], pa.large_binary()) for sign in (b"\x00", b"\xff")
)
"""The sign extension of an integer of `i` bytes to 16 bytes, at index `i`."""

_REFUSED = (pa.ArrowException, OverflowError, ValueError)

Defaults = Mapping[str, pa.Array]
"""The defaults of fields that messages lack, by path: arrays with one value of the table's type."""
_NONE: Defaults = MappingProxyType({})


def encoded_type(wanted: pa.DataType, *, path: str = "", defaults: Defaults = _NONE) -> pa.DataType:
    """Return the type that a column's values are read as before `fit`: decimals are bytes, ints are longs.

    Fields with a default are omitted, so that `fit` fills them.
    """
    if pa.types.is_decimal(wanted):
        return pa.large_binary()
    if pa.types.is_int32(wanted):
        return pa.int64()
    if pa.types.is_struct(wanted):
        read = [(field, f"{path}.{field.name}") for field in wanted if f"{path}.{field.name}" not in defaults]
        return pa.struct([field.with_type(encoded_type(field.type, path=at, defaults=defaults)) for field, at in read])
    if pa.types.is_large_list(wanted):
        return pa.large_list(wanted.value_field.with_type(encoded_type(wanted.value_type, path=path, defaults=defaults)))
    if pa.types.is_map(wanted):
        item_type = encoded_type(wanted.item_type, path=path, defaults=defaults)
        return pa.map_(wanted.key_field, wanted.item_field.with_type(item_type))
    return wanted


def fit(array: pa.Array, wanted: pa.DataType, *, path: str, defaults: Defaults = _NONE) -> pa.Array:
    """Return the array in the table's type. Raise a ValueError with the path of a value that does not fit.

    Fields of structs are matched by name; a missing field is its default, else null. An integer in a floating-point column is
    rounded, as Avro promotes it.
    """
    if pa.types.is_struct(wanted) and pa.types.is_struct(array.type):
        children_by_name = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        children = [
            fit(children_by_name[field.name], field.type, path=f"{path}.{field.name}", defaults=defaults)
            if field.name in children_by_name
            else missing(len(array), field.type, path=f"{path}.{field.name}", defaults=defaults)
            for field in wanted
        ]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if pa.types.is_large_list(wanted) and pa.types.is_large_list(array.type):
        values = fit(array.values, wanted.value_type, path=path, defaults=defaults)
        return pa.LargeListArray.from_arrays(array.offsets, values, type=wanted, mask=array.is_null())
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        items = fit(array.items, wanted.item_type, path=path, defaults=defaults)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=wanted, mask=array.is_null())
    try:
        if pa.types.is_decimal(wanted) and pa.types.is_large_binary(array.type):
            return decimals_of(array, wanted)
        if pa.types.is_date(wanted) and pa.types.is_integer(array.type):
            array = array.cast(pa.int32())
        if pa.types.is_floating(wanted) and pa.types.is_integer(array.type):
            array = array.cast(pa.float64(), safe=False)
        array = array.cast(wanted)
        return in_calendar(array) if pa.types.is_temporal(wanted) else array
    except _REFUSED as error:
        raise ValueError(f"not a value of {wanted} - at `{path}`") from error


def missing(count: int, wanted: pa.DataType, *, path: str, defaults: Defaults) -> pa.Array:
    """Return `count` values of a missing field: its default, else null."""
    default = defaults.get(path)
    return pa.nulls(count, wanted) if default is None else default.take(pa.nulls(count, pa.int64()).fill_null(0))


def fit_each(array: pa.Array, wanted: pa.DataType, *, path: str, defaults: Defaults = _NONE) -> tuple[pa.Array, dict[int, str]]:
    """Return the array in the table's type with null for values that do not fit, and their reasons by position.

    Bisects a failing array until each bad value is alone.
    """
    try:
        return fit(array, wanted, path=path, defaults=defaults), {}
    except ValueError as error:
        if len(array) == 1:
            return pa.nulls(1, wanted), {0: f"overflow: {error}"}
    middle = len(array) // 2
    left, bad = fit_each(pa.concat_arrays([array.slice(0, middle)]), wanted, path=path, defaults=defaults)
    right, more = fit_each(pa.concat_arrays([array.slice(middle)]), wanted, path=path, defaults=defaults)
    return pa.concat_arrays([left, right]), {**bad, **{middle + index: why for index, why in more.items()}}


def fit_values(
    values: Sequence[object], wanted: pa.DataType, *, path: str, defaults: Defaults = _NONE
) -> tuple[pa.Array, dict[int, str]]:
    """Return Python values in the table's type with null for values that do not fit, and their reasons by position."""
    refused: list[int] = []
    read_as = encoded_type(wanted, path=path, defaults=defaults)
    array, bad = fit_each(plain(read_as)(values, refused), wanted, path=path, defaults=defaults)
    return array, {**dict.fromkeys(refused, f"overflow: not a value of {wanted} - at `{path}`"), **bad}


def decimals_of(array: pa.LargeBinaryArray, wanted: pa.Decimal128Type) -> pa.Decimal128Array:
    """Return the decimals whose unscaled values are big-endian in `array`. Raise a ValueError on too many digits."""
    sizes = pc.binary_length(array)
    bounds = pc.min_max(sizes)
    if not bounds["min"].is_valid:
        return pa.nulls(len(array), wanted)
    if not 1 <= bounds["min"].as_py() <= bounds["max"].as_py() <= _BYTES:
        raise ValueError("a decimal of no bytes, or of more than 16")
    is_negative = pc.greater_equal(pc.binary_slice(array, 0, 1), pa.scalar(b"\x80", pa.large_binary()))
    signs = pc.if_else(is_negative, _ONES.take(sizes), _ZEROS.take(sizes))
    whole = pc.fill_null(pc.binary_join_element_wise(signs, array, _NOTHING), bytes(_BYTES))
    # Arrow is little-endian: reversing all bytes makes each value right, with the values in reverse order.
    opposite = bytes(memoryview(whole.buffers()[2])[: len(array) * _BYTES])[::-1]
    decimals = pa.Array.from_buffers(wanted, len(array), [None, pa.py_buffer(opposite)])
    decimals = decimals.take(pa.array(range(len(array) - 1, -1, -1), pa.int64()))
    decimals.validate(full=True)
    return decimals if array.null_count == 0 else pc.if_else(array.is_valid(), decimals, pa.scalar(None, wanted))
