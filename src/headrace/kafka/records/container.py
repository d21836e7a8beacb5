"""Build Avro container files in memory, so that polars reads many rows at once."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from tempfile import TemporaryFile
from threading import Lock

import polars as pl
import pyarrow as pa

REFUSED = (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError, OverflowError, ValueError)
"""Errors that a damaged block, or a value that does not fit its type, may raise."""

_SYNC = bytes(range(16))
_STDERR = 2
_STDERR_LOCK = Lock()


def container_header(avro_schema: str) -> bytes:
    """Return the start of a container file."""
    entries = {b"avro.schema": avro_schema.encode(), b"avro.codec": b"null"}
    pairs = b"".join(_long(len(key)) + key + _long(len(value)) + value for key, value in entries.items())
    return b"Obj\x01" + _long(len(entries)) + pairs + _long(0) + _SYNC


def container_file(header: bytes, count: int, size: int, body: Iterable[bytes | memoryview]) -> tuple[bytes, int]:
    """Return a file with one block of `count` rows, encoded in the `size` bytes of `body`, and the position of the rows."""
    start = b"".join((header, _long(count), _long(size)))
    return b"".join((start, *body, _SYNC)), len(start)


def read_container(file: bytes) -> pl.DataFrame:
    """Return the rows of a container file. Raise one of REFUSED if its bytes are invalid, without any text on stderr.

    Polars panics on a length beyond the end of the block, and Rust prints panics to the stderr of the process before Python can
    catch them. What other threads print meanwhile is passed on, except after a panic.
    """
    with _STDERR_LOCK, TemporaryFile(buffering=0) as printed:
        stderr = os.dup(_STDERR)
        os.dup2(printed.fileno(), _STDERR)
        try:
            return pl.read_avro(io.BytesIO(file))
        except pl.exceptions.PanicException:
            printed.truncate(0)
            raise
        finally:
            os.dup2(stderr, _STDERR)
            os.close(stderr)
            printed.seek(0)
            os.write(_STDERR, printed.read())


def number_size(number: pl.Expr) -> pl.Expr:
    """Return the size of each number's shortest encoding: 7 bits per byte, for all bits but redundant sign bits."""
    return (71 - (number.bitwise_leading_zeros() + number.bitwise_leading_ones())) // 7


def _long(number: int) -> bytes:
    """Return Avro's encoding of a non-negative integer."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
