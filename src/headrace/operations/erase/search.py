"""Search every file of a table for a person, whether a snapshot refers to it or not.

Data files are searched value by value, at any depth. Iceberg's metadata files are searched too, because a manifest has the
lower and upper bounds of every column. An unreadable file counts as a hit.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.iceberg.files.storage import DISK, Storage, open_input
from headrace.logs import log_trace
from headrace.operations.erase.identifiers import Identifiers, text_pattern

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = logging.getLogger(__name__)
_UNREADABLE = "(unreadable)"
_NAME = "(the file's name)"
_PARTS_PER_CORE = 4


@dataclass(frozen=True)
class Target:
    """A file to search. In a shared table, only rows whose `column` has one of `values` belong to this pipeline."""

    table: str
    uri: str
    column: str | None = None
    values: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Hit:
    """A column of a file that contains the person, and the number of hits."""

    table: str
    uri: str
    column: str
    count: int


@dataclass(frozen=True)
class Needle:
    """The search terms, as sent to Spark's tasks."""

    pattern: str | None
    ids: tuple[str, ...]
    numbers: tuple[int, ...] = ()


def search_files(spark: SparkContext, targets: Sequence[Target], person: Identifiers, *, storage: Storage) -> tuple[Hit, ...]:
    """Return the hits for a person: emails and phones in any text, long ids as whole values."""
    if not targets:
        return ()
    needle = needle_of(person)
    parts = min(len(targets), spark.defaultParallelism * _PARTS_PER_CORE)
    files = spark.parallelize(list(targets), parts)
    hits = files.flatMap(lambda target: list(search_file(target, needle, storage=storage))).collect()
    return tuple(sorted(hits, key=lambda hit: (hit.table, hit.uri, hit.column)))


def needle_of(person: Identifiers) -> Needle:
    ids = tuple(sorted(person.long_ids))
    return Needle(text_pattern(person), ids, tuple(int(value) for value in ids if re.fullmatch(r"[1-9][0-9]{9,17}", value)))


def search_file(target: Target, needle: Needle, *, storage: Storage = DISK) -> Iterator[Hit]:
    """Yield the columns of one file that contain the person."""
    text = re.compile(needle.pattern) if needle.pattern else None
    if text and text.search(unquote(target.uri)):
        yield Hit(target.table, target.uri, _NAME, 1)
    try:
        with open_input(target.uri, storage=storage) as stream:
            content = io.BytesIO(stream.read()) if not target.uri.endswith(".parquet") else None
            hits = _search_parquet(stream, target, needle, text) if content is None else _search_other(content, target, text)
            yield from list(hits)
    except Exception as error:  # not searched, for whatever reason
        log_trace(_LOG, f"a file of {target.table} could not be searched", error, level=logging.WARNING)
        yield Hit(target.table, target.uri, _UNREADABLE, 1)


def _search_parquet(stream: Any, target: Target, needle: Needle, text: re.Pattern[str] | None) -> Iterator[Hit]:
    counts: dict[str, int] = {}
    for batch in pq.ParquetFile(stream).iter_batches():
        rows = pa.Table.from_batches([batch])
        if target.column:
            rows = rows.filter(pc.is_in(rows[target.column].cast(pa.string()), pa.array(sorted(target.values), pa.string())))
        for name in rows.column_names:
            for chunk in rows[name].chunks:
                for leaf in _leaves(chunk):
                    counts[name] = counts.get(name, 0) + _count(leaf, needle, text)
    for name, count in counts.items():
        if count:
            yield Hit(target.table, target.uri, name, count)


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the flat arrays in an array at every depth."""
    if pa.types.is_dictionary(array.type):
        yield from _leaves(array.dictionary_decode())
    elif pa.types.is_struct(array.type):
        for leaf in array.flatten():
            yield from _leaves(leaf)
    elif pa.types.is_map(array.type):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        yield from _leaves(array.flatten())
    else:
        yield array


def _count(values: pa.Array, needle: Needle, text: re.Pattern[str] | None) -> int:
    kind = values.type
    if pa.types.is_int64(kind):
        return pc.sum(pc.is_in(values, pa.array(needle.numbers, kind))).as_py() or 0
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        same = pc.sum(pc.is_in(values, pa.array(needle.ids, kind))).as_py() or 0
        return same + _count_texts(values.to_pylist(), text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _count_texts([value and value.decode("utf-8", "replace") for value in values.to_pylist()], text)
    return 0


def _count_texts(values: Sequence[str | None], text: re.Pattern[str] | None) -> int:
    return sum(1 for value in values if value and text.search(value)) if text else 0


def _search_other(content: io.BytesIO, target: Target, text: re.Pattern[str] | None) -> Iterator[Hit]:
    """Search Iceberg's metadata, the commit log, and other files beside the data."""
    if target.uri.endswith(".avro"):
        values = [value for record in fastavro.reader(content) for value in _texts_of(record)]
    else:
        values = [content.getvalue().decode("utf-8", "replace")]
    count = _count_texts(values, text)
    if count:
        yield Hit(target.table, target.uri, "(metadata)", count)


def _texts_of(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_of(item)
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, str):
        yield value
