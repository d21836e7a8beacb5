"""Check required fields before writing Parquet: null only below a null parent.

Arrow and Parquet disagree about a null struct with a required field. In Arrow the field's array has a slot for the absent
value, which may be marked null; pyarrow's Parquet writer treats any such mark in a required leaf as a missing value and rejects
the table. It silently writes the opposite mistake, a null in a required struct, list or map, as an empty value. So every column
with a required field is converted to the form that pyarrow writes correctly, or rejected with the path of the null.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc


class RequiredNullError(ValueError):
    """A required field is null although its parent is not null."""

    def __init__(self, path: str) -> None:
        super().__init__(f"null in a required field - at `{path}`")
        self.path = path


def fields_to_check(schema: pa.Schema) -> Mapping[int, pa.Field]:
    """Return the columns that are required or contain a required field, by position."""
    return {index: field for index, field in enumerate(schema) if not field.nullable or _holds_required(field.type)}


def without_absent_nulls(table: pa.Table, fields: Mapping[int, pa.Field]) -> pa.Table:
    """Return the same rows without null marks in required fields below a null parent.

    `fields` is the result of `fields_to_check`. Raise RequiredNullError if a required field is null in a parent that is not
    null.
    """
    for index, field in fields.items():
        before = table.column(index).chunks
        after = [_clear(chunk, field, None, field.name) for chunk in before]
        if any(chunk is not old for chunk, old in zip(after, before, strict=True)):
            table = table.set_column(index, table.schema.field(index), pa.chunked_array(after, field.type))
    return table


def _holds_required(kind: pa.DataType) -> bool:
    """Return whether the type contains a required field."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _holds_required(kind.item_type)
    if _is_list(kind):
        return not kind.value_field.nullable or _holds_required(kind.value_type)
    return pa.types.is_struct(kind) and any(not field.nullable or _holds_required(field.type) for field in kind)


def _clear(array: pa.Array, field: pa.Field, present: pa.BooleanArray | None, path: str) -> pa.Array:
    """Return the array, unchanged if possible. `present` marks the slots with a non-null parent; None means all."""
    kind = field.type
    is_null = array.is_null() if array.null_count else None
    if is_null is not None and not field.nullable and (present is None or pc.any(pc.and_(present, is_null)).as_py()):
        raise RequiredNullError(path)
    marked = is_null is not None and not field.nullable
    if not (marked or _holds_required(kind)):
        return array
    if pa.types.is_struct(kind):
        return _clear_struct(array, kind, _and(present, is_null), path, is_null=None if marked else is_null)
    if pa.types.is_map(kind) or _is_list(kind):
        return _clear_list(array, kind, path, is_null=None if marked else is_null)
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], null_count=0, offset=array.offset)


def _clear_struct(
    array: pa.StructArray, kind: pa.StructType, present: pa.BooleanArray | None, path: str, *, is_null: pa.BooleanArray | None
) -> pa.Array:
    before = [array.field(index) for index in range(kind.num_fields)]
    after = [_clear(child, field, present, f"{path}.{field.name}") for child, field in zip(before, kind, strict=True)]
    same = all(child is old for child, old in zip(after, before, strict=True)) and (is_null is not None) == bool(
        array.null_count
    )
    return array if same else pa.StructArray.from_arrays(after, fields=list(kind), mask=is_null)


def _clear_list(array: pa.Array, kind: pa.DataType, path: str, *, is_null: pa.BooleanArray | None) -> pa.Array:
    """Clear the elements of non-null lists, and drop the elements below null lists."""
    is_map = pa.types.is_map(kind)
    lists = _as_lists(array) if is_map else array
    flat = lists.flatten()
    field = kind.item_field if is_map else kind.value_field
    before = flat.field(1) if is_map else flat
    after = _clear(before, field, None, f"{path}[...]")
    if after is before and (is_null is not None) == bool(array.null_count):
        return array
    index_type = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0).cast(index_type))
    offsets = pa.concat_arrays([pa.array([0], index_type), ends])
    if is_map:
        return pa.MapArray.from_arrays(offsets, flat.field(0), after, type=kind, mask=is_null)
    array_class = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return array_class.from_arrays(offsets, after, type=kind, mask=is_null)


def _as_lists(maps: pa.MapArray) -> pa.ListArray:
    """Return the maps as lists of pairs, their memory layout: Arrow has no compute functions for maps."""
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items], fields=[maps.type.key_field, maps.type.item_field])
    buffers = maps.buffers()[:2]
    return pa.Array.from_buffers(pa.list_(pairs.type), len(maps), buffers, offset=maps.offset, children=[pairs])


def _and(present: pa.BooleanArray | None, is_null: pa.BooleanArray | None) -> pa.BooleanArray | None:
    if is_null is None:
        return present
    is_valid = pc.invert(is_null)
    return is_valid if present is None else pc.and_(present, is_valid)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
