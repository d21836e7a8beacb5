"""Find the messages that make decoding or writing fail, by bisection.

A decoder refuses values that it knows to be bad. Other bad values raise an exception that names no message: a library fails on
them, or Parquet can't store the row. To find them, parts of the batch are decoded and encoded in memory, without storage. A
message that fails alone is refused, with the exception as its reason.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace

import msgspec
import polars as pl
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.iceberg.catalog.outages import find_outage
from headrace.iceberg.files.write import TableFormat, check_writable
from headrace.kafka.records import Messages
from headrace.landing.decode import Decoded, Decoder, GrowthError
from headrace.landing.rows import split_bad_rows
from headrace.spec.model.pipeline import Stream

_OF_DATA = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    pa.ArrowException,
    pl.exceptions.PanicException,
    pl.exceptions.PolarsError,
)
_OF_INFRASTRUCTURE = (GrowthError, HeadraceError, MemoryError, OSError)
_REASON_CHARACTERS = 500


def may_be_data(error: BaseException) -> bool:
    """Return whether a value may have caused this error. Errors of disks, memory, Kafka and servers never count."""
    return isinstance(error, _OF_DATA) and not isinstance(error, _OF_INFRASTRUCTURE) and find_outage(error) is None


def split_isolated(
    messages: Messages, *, decoder: Decoder, stream: Stream, form: TableFormat, checkpoint_id: int
) -> tuple[pa.Table, Decoded, tuple[str, ...]]:
    """Return the result of `split_bad_rows` with every message that fails alone as bad, and the tracebacks of those.

    Raise the error if no single message causes it: rows fail only together, even zero rows fail (the table can't be written),
    or the infrastructure fails.
    """

    def decode(part: Messages, known_bad: dict[int, str]) -> tuple[pa.Table, Decoded]:
        return split_bad_rows(
            part, decoder=decoder, stream=stream, schema=form.arrow_schema, checkpoint_id=checkpoint_id, known_bad=known_bad
        )

    check_writable(form, form.arrow_schema.empty_table())
    failing = find_failing(messages, lambda part: check_writable(form, decode(part, {})[0]))
    reasons = {row: reason_of(error) for row, error in failing.items()}
    table, decoded = decode(messages, reasons)
    distinct = dict(zip(reasons.values(), failing.values(), strict=True))
    traces = tuple("".join(traceback.format_exception(error)) for error in distinct.values())
    return table, replace(decoded, refused=(*decoded.refused, *distinct)), traces


def find_failing(messages: Messages, attempt: Callable[[Messages], None]) -> dict[int, BaseException]:
    """Return the error of each message for which `attempt` fails on that message alone, by its position."""
    failing: dict[int, BaseException] = {}
    parts = [(0, len(messages))]
    while parts:
        start, end = parts.pop()
        try:
            attempt(Messages(messages.topic, messages.values[start:end], messages.places.slice(start, end - start)))
        except (Exception, pl.exceptions.PanicException) as error:
            if not may_be_data(error):
                raise
            if end - start == 1:
                failing[start] = error
            else:
                middle = (start + end) // 2
                parts += [(middle, end), (start, middle)]
    return failing


def reason_of(error: BaseException) -> str:
    """Return the quarantine reason for a message that caused this error."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_REASON_CHARACTERS]
