"""Required fields below optional structs: an absent parent is written, a missing value is rejected with its path."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.iceberg.schema.required import RequiredNullError, fields_to_check, without_absent_nulls


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


LEAF = pa.struct([required("x", pa.int32()), pa.field("y", pa.large_string())])
DEEP = pa.struct([required("s", LEAF), required("l", pa.large_list(LEAF)), required("m", pa.map_(pa.large_string(), LEAF))])
LEAVES = pa.struct(
    [
        required(f"f{index}", kind)
        for index, kind in enumerate(
            [pa.bool_(), pa.float64(), pa.large_binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(38, 9)]
        )
    ]
)


def loosely(kind: pa.DataType) -> pa.DataType:
    """Return the type with every field optional, in which Arrow marks the slots below a null as null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, loosely(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, loosely(kind.item_type))
    return pa.large_list(loosely(kind.value_type)) if pa.types.is_large_list(kind) else kind


def marked(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of `kind` in which each slot below a null is marked null, as decoders and Parquet readers leave them."""
    return retype(pa.array(values, loosely(kind)), kind)


def retype(array: pa.Array, kind: pa.DataType) -> pa.Array:
    mask = array.is_null()
    if pa.types.is_struct(kind):
        children = [retype(child, field.type) for child, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, retype(array.items, kind.item_type), type=kind, mask=mask)
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(array.offsets, retype(array.values, kind.value_type), type=kind, mask=mask)
    return array


def written(array: pa.Array, *, nullable: bool = True) -> list[Any]:
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("c", array.type, nullable=nullable)])
    table = pa.table([pa.array(range(len(array)), pa.int64()), array], schema=schema)
    file = io.BytesIO()
    pq.write_table(without_absent_nulls(table, fields_to_check(schema)), file, store_schema=False)
    return list(pq.read_table(io.BytesIO(file.getvalue()))["c"].to_pylist())


FULL = {"s": {"x": 1, "y": None}, "l": [{"x": 2, "y": "b"}, None], "m": [("k", {"x": 3, "y": "c"}), ("n", None)]}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (LEAF, [{"x": 1, "y": None}, None, {"x": 2, "y": "a"}]),
        (LEAF, [None, None]),
        (LEAVES, [None]),
        (DEEP, [None, FULL, {**FULL, "l": [], "m": []}, None]),
        (pa.struct([pa.field("o", DEEP)]), [{"o": None}, None, {"o": FULL}]),
        (pa.large_list(DEEP), [[None, FULL], None, [], [None]]),
        (pa.map_(pa.large_string(), DEEP), [[("a", None), ("b", FULL)], None, []]),
        (pa.large_list(pa.large_list(LEAF)), [[[None], None, [{"x": 1, "y": "z"}, None]], None]),
    ],
)
def test_null_parents_of_required_fields_are_written(kind: pa.DataType, values: list[Any]) -> None:
    array = marked(values, kind)
    assert written(array) == array.to_pylist() == values
    padded = marked([values[-1], *values, values[0]], kind)
    assert written(padded.slice(1, len(values))) == values


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (LEAF, {"x": None, "y": "a"}, "c.x"),
        (DEEP, {**FULL, "s": None}, "c.s"),
        (DEEP, {**FULL, "s": {"x": None, "y": None}}, "c.s.x"),
        (DEEP, {**FULL, "l": None}, "c.l"),
        (DEEP, {**FULL, "m": None}, "c.m"),
        (DEEP, {**FULL, "l": [{"x": None, "y": None}]}, "c.l[...].x"),
        (DEEP, {**FULL, "m": [("a", {"x": None, "y": None})]}, "c.m[...].x"),
    ],
)
def test_missing_value_is_rejected_with_its_path(kind: pa.DataType, value: object, path: str) -> None:
    with pytest.raises(RequiredNullError, match="null in a required field") as refused:
        written(marked([None, value, None], kind))
    assert refused.value.path == path


@pytest.mark.parametrize("kind", [pa.int64(), LEAF, pa.large_list(pa.int64()), pa.map_(pa.large_string(), pa.int64())])
def test_required_column_is_never_null(kind: pa.DataType) -> None:
    with pytest.raises(RequiredNullError, match="`c`"):
        written(marked([None], kind), nullable=False)


def test_columns_without_required_fields_are_left_alone() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", loosely(DEEP))])
    assert not fields_to_check(schema)
    whole = pa.schema([required("a", pa.int64()), pa.field("b", LEAF)])
    table = pa.table([pa.array([1], pa.int64()), pa.array([{"x": 1, "y": None}], LEAF)], schema=whole)
    assert without_absent_nulls(table, fields_to_check(whole)) is table
