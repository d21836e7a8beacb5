"""The writer schemas of change events: their columns, and how their messages are decoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.errors import SpecError
from headrace.iceberg.schema.columns import iceberg_schema
from headrace.landing.decode.avro import AvroDecoder
from headrace.landing.decode.decoded import Decoded
from headrace.landing.decode.fitting import fit_each
from headrace.landing.decode.json import JsonDecoder
from headrace.landing.decode.resolution import MismatchError, drop_defaults, resolve
from headrace.spec.loading.avro import parse_avro
from headrace.spec.loading.connect import ConnectSchemaError, connect_columns
from headrace.spec.model.columns import EXTRA
from headrace.spec.model.envelopes import all_optional
from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Map, Primitive, Struct
from headrace.spec.problems import Place, Problems

_AS_READ = {Primitive("date"): Primitive("int")}
_ROWS = 1_000  # few enough to stay in the processor's cache


class BadSchemaError(Exception):
    """A schema that no table can hold. The message has the reason."""


@dataclass(frozen=True)
class Writer:
    """One schema: its columns, all optional, and the function that decodes its messages into rows of the table."""

    columns: tuple[Column, ...]
    decode: Callable[[list[bytes]], Decoded]


def avro_writer(text: str, *, reader: str, schema: pa.Schema) -> Writer:
    """Return the writer of an Avro schema. Its messages come without the registry's prefix.

    They are resolved to `reader`, the stream's own schema; columns that `reader` lacks keep the writer's types.
    """
    try:
        _columns_of(text)  # refuse columns that no table can hold, by their own names
        resolution = resolve(text, reader, grow=True)
        columns = _columns_of(json.dumps(resolution.reader))
        decoder = AvroDecoder(text, schema=schema, resolution=resolution)
    except MismatchError as error:
        raise BadSchemaError(str(error)) from error
    return Writer(all_optional(columns), lambda values: decoder.decode(list(values)))


def _columns_of(text: str) -> tuple[Column, ...]:
    problems = Problems()
    try:
        columns = parse_avro(json.dumps(drop_defaults(json.loads(text))), place=Place("", ""), problems=problems)
    except (SpecError, ValueError, RecursionError) as error:
        raise BadSchemaError(error.what if isinstance(error, SpecError) else str(error)) from error
    if problems.errors:
        raise BadSchemaError(problems.errors[0].what)
    return columns


def json_writer(text: bytes, *, schema: pa.Schema) -> Writer:
    """Return the writer of an inline schema. Its messages are payloads only."""
    try:
        columns = connect_columns(json.loads(text))
    except (ConnectSchemaError, ValueError, RecursionError) as error:
        raise BadSchemaError(str(error)) from error
    return Writer(all_optional(columns), _Later(lambda: _PayloadDecoder(columns, schema=schema)).decode)


class _Later:
    """A decoder that is created on first use, because the table may lack its columns until then."""

    def __init__(self, make: Callable[[], _PayloadDecoder]) -> None:
        self._make = make
        self._decoder: _PayloadDecoder | None = None

    def decode(self, values: list[bytes]) -> Decoded:
        self._decoder = self._decoder or self._make()
        return self._decoder.decode(list(values))


class _PayloadDecoder:
    """Decode payloads of one schema into the types of the table."""

    def __init__(self, columns: tuple[Column, ...], *, schema: pa.Schema) -> None:
        read = tuple(replace(column, type=_as_read(column.type)) for column in columns)
        arrow = schema_to_pyarrow(iceberg_schema(read))
        self._json = JsonDecoder(read, schema=arrow, epoch_unit="ms", named_floats=True)
        self._names = [column.name for column in columns]
        self._schema = schema

    def decode(self, values: list[bytes | None]) -> Decoded:
        parts = [self._decode_some(values[at : at + _ROWS]) for at in range(0, len(values), _ROWS)]
        good = [(at * _ROWS, part) for at, part in enumerate(parts) if part.rows]
        return Decoded(
            {name: pa.concat_arrays([part.columns[name] for _, part in good]) for name in self._names} if good else {},
            [first + row for first, part in good for row in part.rows],
            {at * _ROWS + row: why for at, part in enumerate(parts) for row, why in part.bad.items()},
        )

    def _decode_some(self, values: list[bytes | None]) -> Decoded:
        read = self._json.decode(values)
        if not read.rows:
            return read
        columns: dict[str, pa.Array] = {}
        late: dict[int, str] = {}
        for name in self._names:
            columns[name], refused = fit_each(read.columns[name], self._schema.field(name).type, path=name)
            late.update(refused)
        unnamed = read.columns[EXTRA.name]
        for index in range(len(read.rows)) if unnamed.null_count < len(unnamed) else ():
            if unnamed[index].is_valid:
                late[index] = f"wrong type: its own schema does not name {', '.join(json.loads(unnamed[index].as_py()))}"
        return Decoded(columns, read.rows, read.bad).without(late)


def _as_read(kind: ColumnType) -> ColumnType:
    """Return the type of a value in JSON: decimals are bytes, and dates are days."""
    if isinstance(kind, Decimal):
        return Primitive("binary")
    if isinstance(kind, Struct):
        return Struct(tuple(replace(column, type=_as_read(column.type)) for column in kind.columns))
    if isinstance(kind, Array):
        return Array(_as_read(kind.element))
    if isinstance(kind, Map):
        return Map(_as_read(kind.value))
    return _AS_READ.get(kind, kind)
