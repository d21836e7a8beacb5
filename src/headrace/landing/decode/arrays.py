"""Python values become Arrow arrays, and values that don't fit are found without slowing down those that do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow, Subnormal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spec.pipeline import EpochUnit

Build = Callable[[Sequence[object]], pa.Array]

MICROSECONDS: dict[EpochUnit, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
EARLIEST = (datetime(1, 1, 1, tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)
LATEST = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)


def build_or_split(build: Build, values: Sequence[object], *, first: int, bad: list[int]) -> pa.Array:
    """Gives back `build(values)` with null for each value that can't be built; those positions go to `bad`.

    Halves what fails until the bad values are alone: a thousand values with three bad ones take some thirty builds.
    """
    try:
        return build(values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        if len(values) == 1:
            bad.append(first)
            return build([None])
    middle = len(values) // 2
    left = build_or_split(build, values[:middle], first=first, bad=bad)
    right = build_or_split(build, values[middle:], first=first + middle, bad=bad)
    return pa.concat_arrays([left, right])


def plain(arrow_type: pa.DataType) -> Build:
    return partial(_plain, arrow_type=arrow_type)


def floats() -> Build:
    """Builds 32-bit floats; Arrow makes infinity of a number that is too large, and JSON has no infinity of its own."""

    def build(values: Sequence[object]) -> pa.Array:
        array = pa.array(values, pa.float32())
        if pc.any(pc.is_inf(array)).as_py():
            raise OverflowError("a number too large for 32 bits")
        return array

    return build


def decimals(arrow_type: pa.Decimal128Type) -> Build:
    """Builds decimals. Arrow itself reads past its tables on more than 38 digits after the point: a wrong value, or a crash."""
    smallest = -(arrow_type.scale + 1)
    context = Context(prec=38, Emin=smallest, Emax=38, traps=[Inexact, InvalidOperation, Overflow, Subnormal])
    bound = context.plus

    def build(values: Sequence[object]) -> pa.Array:
        try:
            within = [None if value is None else bound(value) for value in values]  # type: ignore[arg-type]
        except DecimalException as error:
            raise OverflowError("a decimal with too many digits") from error
        return pa.array(within, arrow_type)

    return build


def moments(unit: EpochUnit, *, zoned: bool) -> Build:
    """Builds timestamps from ISO 8601 strings and epoch numbers, in UTC and to the microsecond. No offset means UTC."""
    return partial(_moments, factor=MICROSECONDS[unit], zoned=zoned)


def dates() -> Build:
    return lambda values: in_calendar(pa.array(values, pa.string()).cast(pa.date32()))


def _plain(values: Sequence[object], *, arrow_type: pa.DataType) -> pa.Array:
    return pa.array(values, arrow_type)


def _moments(values: Sequence[object], *, factor: int, zoned: bool) -> pa.Array:
    target = pa.timestamp("us", "UTC") if zoned else pa.timestamp("us")
    try:
        texts = pa.array(values, pa.string())
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.array([_moment(value, factor=factor) for value in values], pa.int64()).cast(target)
    return _texts(texts, target)


def _moment(value: object, *, factor: int) -> int | None:
    """Gives back microseconds since the epoch, exactly: a fraction is scaled as the decimal it was written as."""
    if value is None:
        return None
    if isinstance(value, str):
        micros = _texts(pa.array([value], pa.string()), pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py()
    elif isinstance(value, int):
        micros = value * factor
    else:
        micros = int((Decimal(repr(value)) * factor).to_integral_value())
    if not EARLIEST <= micros <= LATEST:
        raise ValueError("a time outside the years 1 to 9999")
    return int(micros)


def _texts(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Casts ISO strings. Strings with and without an offset are told apart only where they are mixed."""
    zoned = pa.timestamp("us", "UTC")
    try:
        return in_calendar(texts.cast(zoned)).cast(target)
    except pa.ArrowInvalid:
        pass
    # Digits past the microsecond are cut off, and a time without an offset is UTC.
    cut = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    has_offset = pc.match_substring_regex(cut, r"(Z|[+-]\d{2}(:?\d{2})?)$")
    has_time = pc.match_substring_regex(cut, r"\d{2}:\d{2}")
    marked = pc.if_else(pc.and_(has_time, pc.invert(has_offset)), pc.binary_join_element_wise(cut, "Z", ""), cut)
    with_time = pc.if_else(has_time, marked, pc.binary_join_element_wise(cut, "T00:00:00Z", ""))
    return in_calendar(with_time.cast(zoned)).cast(target)


def in_calendar(array: pa.Array) -> pa.Array:
    """Gives back the array; a time outside the years 1 to 9999, which few can read, raises."""
    bounds = pc.min_max(array.cast(pa.timestamp("us")).cast(pa.int64()))
    if bounds["min"].is_valid and not EARLIEST <= bounds["min"].as_py() <= bounds["max"].as_py() <= LATEST:
        raise ValueError("a time outside the years 1 to 9999")
    return array
