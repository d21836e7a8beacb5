"""Build Arrow arrays from Python values, and find the values that don't fit without slowing down the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow, Subnormal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spec.model.pipeline import EpochUnit

Builder = Callable[[Sequence[object], list[int]], pa.Array]
_Build = Callable[[Sequence[object]], pa.Array]

MICROSECONDS: dict[EpochUnit, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
NAMED_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
EARLIEST = (datetime(1, 1, 1, tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)
_UTC = pa.timestamp("us", "UTC")
_ISO = re.compile(
    r"[+-]?\d{4,6}-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])"
    r"(?:[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?"
)
_BASIC = re.compile(
    r"(\d{4})(0\d|1[0-2])([0-2]\d|3[01])"
    r"(?:[T ]([01]\d|2[0-3])(?:([0-5]\d)(?:([0-5]\d)(\.\d+)?)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?"
)
"""ISO 8601 without its hyphens and colons."""
_DOES_NOT_FIT = (pa.ArrowException, OverflowError, ValueError, TypeError)
LATEST = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)


def plain(arrow_type: pa.DataType) -> Builder:
    """Return a builder for a type that Arrow builds directly.

    A builder takes values and a list. It returns an array with null for each value that doesn't fit, and adds the positions of
    these values to the list.
    """
    return _splitting(lambda values: pa.array(values, arrow_type))


def floats(arrow_type: pa.DataType) -> Builder:
    """Return a builder of floats, which also accepts the names NaN, Infinity and -Infinity.

    Arrow turns a number too large for 32 bits into infinity; this builder refuses it.
    """

    def build(values: Sequence[object]) -> pa.Array:
        try:
            array = pa.array(values, arrow_type)
        except (pa.ArrowException, TypeError):
            values = [NAMED_FLOATS.get(value, value) if isinstance(value, str) else value for value in values]
            array = pa.array(values, arrow_type)
        if pc.any(pc.is_inf(array)).as_py() and not pc.is_inf(array).equals(pc.is_inf(pa.array(values, pa.float64()))):
            raise OverflowError("a number too large for 32 bits")
        return array

    return _splitting(build)


def decimals(arrow_type: pa.Decimal128Type) -> Builder:
    """Return a builder of decimals. It checks digits first: on more than 38 decimals Arrow reads out of bounds."""
    smallest = -(arrow_type.scale + 1)
    context = Context(prec=38, Emin=smallest, Emax=38, traps=[Inexact, InvalidOperation, Overflow, Subnormal])
    bound = context.plus

    def build(values: Sequence[object]) -> pa.Array:
        try:
            within = [None if value is None else bound(value) for value in values]  # type: ignore[arg-type]
        except DecimalException as error:
            raise OverflowError("a decimal with too many digits") from error
        return pa.array(within, arrow_type)

    return _splitting(build)


def dates() -> Builder:
    """Return a builder of dates from ISO 8601 strings, with or without hyphens."""

    def build(values: Sequence[object]) -> pa.Array:
        return in_calendar(pa.array(values, pa.string()).cast(pa.date32()))

    build_or_split = _splitting(build)

    def build_any(values: Sequence[object], bad: list[int]) -> pa.Array:
        try:
            return build(values)
        except _DOES_NOT_FIT:
            return build_or_split([_extended(value, with_time=False) for value in values], bad)

    return build_any


def moments(unit: EpochUnit, *, zoned: bool) -> Builder:
    """Return a builder of UTC timestamps in microseconds from ISO 8601 strings and epoch numbers. No offset means UTC."""
    target = pa.timestamp("us", "UTC") if zoned else pa.timestamp("us")
    cast = partial(_with_offsets, target=target)
    cast_or_split = _splitting(cast)
    convert_or_split = _splitting(partial(_moments, factor=MICROSECONDS[unit], target=target))

    def build(values: Sequence[object], bad: list[int]) -> pa.Array:
        try:
            return cast(values)
        except _DOES_NOT_FIT:
            pass
        values = [_extended(value, with_time=True) for value in values]
        # Drop values that are no time at all first: the lenient parsers below are many times slower.
        odd = [index for index, value in enumerate(values) if isinstance(value, str) and not _ISO.fullmatch(value)]
        if odd:
            bad += odd
            out = set(odd)
            values = [None if index in out else value for index, value in enumerate(values)]
            try:
                return cast(values)
            except _DOES_NOT_FIT:
                pass
        if all(value is None or isinstance(value, str) for value in values):
            return cast_or_split(_spelled_alike(pa.array(values, pa.string())), bad)
        return convert_or_split(values, bad)

    return build


def _extended(value: object, *, with_time: bool) -> object:
    """Return a time in ISO 8601's basic form with hyphens and colons; return any other value unchanged."""
    basic = _BASIC.fullmatch(value) if isinstance(value, str) else None
    if basic is None:
        return value
    year, month, day, hour, minute, second, fraction, offset = basic.groups(default="")
    if not hour or not with_time:
        return value if hour else f"{year}-{month}-{day}"
    return f"{year}-{month}-{day}T{hour}:{minute or '00'}:{second or '00'}{fraction}{offset}"


def _splitting(build: _Build) -> Builder:
    """Return a builder that bisects failing values until each bad value is alone.

    A thousand values with three bad ones take about thirty builds.
    """

    def build_part(values: Sequence[object], first: int, bad: list[int]) -> pa.Array:
        try:
            return build(values)
        except _DOES_NOT_FIT:
            if len(values) == 1:
                bad.append(first)
                return build([None])
        middle = len(values) // 2
        left = build_part(values[:middle], first, bad)
        return pa.concat_arrays([left, build_part(values[middle:], first + middle, bad)])

    return lambda values, bad: build_part(values, 0, bad)


def _moments(values: Sequence[object], *, factor: int, target: pa.DataType) -> pa.Array:
    return pa.array([_moment(value, factor=factor) for value in values], pa.int64()).cast(target)


def _moment(value: object, *, factor: int) -> int | None:
    """Return the exact microseconds since the epoch: a fraction is scaled as the decimal in the message."""
    if value is None:
        return None
    if isinstance(value, str):
        micros = _with_offsets(_spelled_alike(pa.array([value], pa.string())), _UTC).cast(pa.int64())[0].as_py()
    elif isinstance(value, int):
        micros = value * factor
    else:
        micros = int((Decimal(repr(value)) * factor).to_integral_value())
    if not EARLIEST <= micros <= LATEST:
        raise ValueError("a time outside the years 1 to 9999")
    return int(micros)


def _with_offsets(texts: Sequence[object] | pa.Array, target: pa.DataType) -> pa.Array:
    """Cast ISO strings that all have an offset, in one pass."""
    return in_calendar(pa.array(texts, pa.string()).cast(_UTC)).cast(target)


def _spelled_alike(texts: pa.Array) -> pa.Array:
    """Return ISO strings with an offset (UTC if they have none) and without digits past the microsecond."""
    cut = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    has_offset = pc.match_substring_regex(cut, r"(Z|[+-]\d{2}(:?\d{2})?)$")
    has_time = pc.match_substring_regex(cut, r"\d{2}:\d{2}")
    marked = pc.if_else(pc.and_(has_time, pc.invert(has_offset)), pc.binary_join_element_wise(cut, "Z", ""), cut)
    return pc.if_else(has_time, marked, pc.binary_join_element_wise(cut, "T00:00:00Z", ""))


def in_calendar(array: pa.Array) -> pa.Array:
    """Return the array. Raise a ValueError for a time outside the years 1 to 9999, which few engines can read."""
    bounds = pc.min_max(array.cast(pa.timestamp("us")).cast(pa.int64()))
    if bounds["min"].is_valid and not EARLIEST <= bounds["min"].as_py() <= bounds["max"].as_py() <= LATEST:
        raise ValueError("a time outside the years 1 to 9999")
    return array
