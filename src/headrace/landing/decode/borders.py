"""Prove that messages decoded as one block kept their borders.

Each decoded row is measured again. If the shortest encoding of every row is exactly as long as its message, every border was
kept, because a decoder never consumes less than the shortest encoding of its result. The positions of union branches and
booleans are then known too, and their bytes are compared: polars accepts any number for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from headrace.kafka.records import number_size

_PLAIN_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


@dataclass(frozen=True)
class Part:
    """A piece of an encoded message: its size in bytes and, for a union's branch or a boolean, the byte that it must have."""

    size: pl.Expr
    byte: pl.Expr | None = None
    items: Items | None = None


@dataclass(frozen=True)
class Items:
    """The items of an array that is encoded as one block: their column and their type."""

    column: pl.Expr
    kind: Any

    @property
    def sizes(self) -> pl.Expr:
        """The total size of each array's items in bytes."""
        return self.column.list.eval(_measure_each(pl.element(), self.kind)).list.sum()


def can_be_measured(kind: Any) -> bool:
    """Return whether the encoded size follows from the value, and polars reads the type without conversion."""
    if isinstance(kind, dict):
        if kind["type"] == "record":
            return all(can_be_measured(field["type"]) for field in kind["fields"])
        if kind["type"] == "array":
            return can_be_measured(kind["items"]) and not _is_nested(kind["items"])
        return kind["type"] in ("int", "long", "string") and kind.get("logicalType") in (
            None,
            "date",
            "uuid",
            "timestamp-millis",
            "timestamp-micros",
        )
    if isinstance(kind, list):
        return len(kind) == 2 and "null" in kind and all(can_be_measured(branch) for branch in kind)
    return kind in (*_PLAIN_SIZES, "int", "long", "string", "bytes")


def parts_of(column: pl.Expr, kind: Any) -> list[Part]:
    """Return the parts of a value in the order in which they are encoded."""
    if isinstance(kind, list):
        null_at = kind.index("null")
        absent = column.is_null()
        byte = pl.when(absent).then(2 * null_at).otherwise(2 * (1 - null_at))
        inner = parts_of(column, kind[1 - null_at])
        return [Part(pl.lit(1, dtype=pl.Int64), byte), *(_unless(absent, part) for part in inner)]
    if isinstance(kind, dict) and kind["type"] == "record":
        return [part for field in kind["fields"] for part in parts_of(column.struct.field(field["name"]), field["type"])]
    if isinstance(kind, dict) and kind["type"] == "array":
        items, count = Items(column, kind["items"]), column.list.len().cast(pl.Int64)
        return [Part(pl.when(count == 0).then(1).otherwise(number_size(count) + items.sizes + 1), items=items)]
    if kind == "boolean":
        return [Part(pl.lit(1, dtype=pl.Int64), column.cast(pl.Int64))]
    return [Part(_size(column, kind).cast(pl.Int64))]


def measure(parts: Sequence[Part]) -> pl.Expr:
    """Return the bytes of each row's shortest encoding."""
    return pl.sum_horizontal(*(part.size for part in parts))


def keeps_bytes(frame: pl.DataFrame, starts: Callable[[], pl.Series], data: bytes, parts: Sequence[Part]) -> bool:
    """Return whether every part's expected byte is in its place. Row `i` was decoded from `data` at `starts()[i]`."""
    if all(part.byte is None and part.items is None for part in parts):
        return True
    encoded = pl.Series(pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)]))
    named = {f"{index}": part for index, part in enumerate(parts) if part.byte is not None}
    sizes = frame.select(part.size.alias(f"{index}") for index, part in enumerate(parts))
    wanted = frame.select(part.byte.cast(pl.Int64).alias(name) for name, part in named.items() if part.byte is not None)
    at = starts()
    for index, part in enumerate(parts):
        if part.byte is not None and not _stand(wanted[f"{index}"], encoded, at):
            return False
        if part.items is not None and not _keep_items(frame, part.items, encoded, at):
            return False
        at = at + sizes[f"{index}"]
    return True


def _stand(wanted: pl.Series, encoded: pl.Series, at: pl.Series) -> bool:
    """Return whether the bytes at `at` equal the wanted ones; rows without a wanted byte are skipped."""
    if wanted.null_count():
        is_wanted = wanted.is_not_null()
        wanted, at = wanted.filter(is_wanted), at.filter(is_wanted)
    return bool((encoded.gather(at).cast(pl.Int64) == wanted).all())


def _keep_items(frame: pl.DataFrame, items: Items, encoded: pl.Series, at: pl.Series) -> bool:
    """Return whether the items of the arrays at `at` keep their bytes. The first item follows the item count."""
    parts = parts_of(pl.col("item"), items.kind)
    if all(part.byte is None for part in parts):
        return True
    arrays = frame.select(items.column.alias("item"), at.alias("at"), items.sizes.alias("size"))
    arrays = arrays.filter(pl.col("item").list.len() > 0)
    first = pl.col("at") + number_size(pl.col("item").list.len().cast(pl.Int64))
    before = pl.col("size").cum_sum() - pl.col("size")  # the bytes of the items of all arrays before this one
    flat = arrays.select("item", (first - before).alias("shift")).explode("item")
    size = _measure_each(pl.col("item"), items.kind)
    start = flat.select(size.cum_sum() - size + pl.col("shift")).to_series()
    return keeps_bytes(flat, lambda: start, encoded.to_arrow().buffers()[1], parts)


def _is_nested(kind: Any) -> bool:
    if isinstance(kind, list):
        return any(map(_is_nested, kind))
    return isinstance(kind, dict) and kind["type"] in ("record", "array")


def _measure_each(column: pl.Expr, kind: Any) -> pl.Expr:
    """Return the bytes of each value's shortest encoding, as one number per row even for fixed sizes."""
    return measure(parts_of(column, kind)) + column.is_null().cast(pl.Int64) * 0


def _unless(absent: pl.Expr, part: Part) -> Part:
    byte = None if part.byte is None else pl.when(absent).then(None).otherwise(part.byte)
    return Part(pl.when(absent).then(0).otherwise(part.size), byte, part.items)


def _size(column: pl.Expr, kind: Any) -> pl.Expr:
    """Return the number of bytes of the shortest encoding of each value."""
    name = kind["type"] if isinstance(kind, dict) else kind
    if name in _PLAIN_SIZES:
        return pl.lit(_PLAIN_SIZES[name])
    if name in ("string", "bytes"):
        length = (column.str.len_bytes() if name == "string" else column.bin.size()).cast(pl.Int64)
        return number_size(length) + length
    number = column.cast(pl.Int64)
    if isinstance(kind, dict) and kind.get("logicalType") == "timestamp-millis":
        number = column.dt.timestamp("ms")
    return number_size(number)
