"""Random schemas with nested nullability: every engine reads back the values that were decoded and written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from headrace.iceberg.catalog.tables import ensure_table, list_tables, open_catalog, table_location
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files.storage import local_path
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.landing import Ledger
from headrace.iceberg.schema.columns import iceberg_schema, partition_spec
from headrace.kafka.records import Messages
from headrace.landing.rows import rows_of_block, split_bad_rows
from headrace.serving.sql.engines.names import DIALECTS, Engine
from headrace.serving.sql.engines.spark import ask as ask_spark
from headrace.serving.sql.question import read_question
from headrace.settings import Settings, load_settings
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Stream, TableName
from headrace.spec.model.types import Column, Primitive
from tests.landing.random_schemas import (
    RandomTypes,
    as_arrow_row,
    as_avro,
    as_json,
    avro_schema,
    random_row,
    required_paths,
    without,
)
from tests.landing.stored import Stored, batch_of
from tests.landing.streams import NAME, avro_stream, decoder_for, json_stream, messages_of, records_of_topic, schema_of
from tests.support.engine_rows import IN_PROCESS, check_same, read_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_N = Column("n", Primitive("long"), required=True)


@dataclass
class Warehouse:
    """Tables of random schemas, and their expected rows."""

    settings: Settings
    catalog: Catalog
    truth: dict[str, pa.Table]
    columns: int = 0

    def add(self, stream: Stream, rows: Sequence[Mapping[str, Any]], tables: Sequence[pa.Table]) -> None:
        """Write the decoded rows to a new table of the stream's schema, and read the Parquet files back."""
        name = TableName("random", f"{stream.format}_{len(self.truth)}")
        table = ensure_table(self.catalog, name, columns=landed_columns(stream), location=table_location(self.settings, name))
        form = TableFormat(table.schema(), table.spec())
        files = TableFiles(form, folder=f"{table.location()}/output", name="random")
        for rows_in_arrow in tables:
            files.write(rows_in_arrow)
        written = files.close()
        append_checkpoint(self.catalog, table, files=written, planned=Ledger(), new=Ledger(1, {0: len(rows)}, "me"))
        truth = _truth(stream, rows)
        self.truth[str(name)] = truth
        self.columns += len(stream.columns) - 1
        plain = pa.concat_tables([pq.read_table(local_path(file.file_path), columns=truth.column_names) for file in written])
        check_same(Engine.duckdb, {str(name): truth}, {str(name): plain})


@dataclass(frozen=True)
class Drawn:
    """A stream of random columns, the rows that were sent, and the decoded rows."""

    stream: Stream
    rows: Sequence[Mapping[str, Any]]
    decoded: pa.Table


def draw(number: int, *, columns: int, rows: int, seed: int) -> Drawn:
    """Draw columns and rows. The number decides whether they are sent as JSON, Avro, or Avro that decodes as a block."""
    random = Random(f"{seed}-{number}")
    in_blocks = number % 3 == 2
    chosen = (_N, *RandomTypes(random, in_blocks=in_blocks).columns(columns))
    sent = [{**random_row(chosen, random), "n": index} for index in range(rows)]
    if number % 3 == 0:
        stream = Stream("things", "things", 1, "json", chosen, NAME)
        values = [as_json(chosen, row, random) for row in sent]
    else:
        stream = avro_stream(avro_schema(chosen))
        values = as_avro(stream.avro_schema or "", sent)
    assert stream.columns == chosen
    decoded = _by_messages(stream, messages_of(values))
    if in_blocks:
        block = _by_block(stream, values)
        assert block.select([column.name for column in chosen]).equals(decoded.select(block.column_names[: len(chosen)]))
        decoded = block
    return Drawn(stream, sent, decoded)


def fill(folder: Path, *, tables: int, columns: int, rows: int, seed: int) -> Warehouse:
    """Create tables of random columns from messages in JSON and in Avro."""
    settings = load_settings(flags={}, environ={}, folder=folder)
    warehouse = Warehouse(settings, open_catalog(settings), {})
    for number in range(tables):
        drawn = draw(number, columns=columns, rows=rows, seed=seed)
        warehouse.add(drawn.stream, drawn.rows, [drawn.decoded])
    return warehouse


def check_files(folder: Path, *, schemas: int, seed: int) -> None:
    """Write and read back a file for each of many schemas, without a table."""
    for number in range(schemas):
        drawn = draw(number, columns=3, rows=2, seed=seed)
        schema = iceberg_schema(landed_columns(drawn.stream))
        files = TableFiles(TableFormat(schema, partition_spec((), schema)), folder=folder.as_uri(), name=str(number))
        files.write(drawn.decoded)
        (written,) = files.close()
        path = local_path(written.file_path)
        assert path is not None
        truth = _truth(drawn.stream, drawn.rows)
        check_same(Engine.duckdb, {"t": truth}, {"t": pq.read_table(path, columns=truth.column_names)})
        path.unlink()


def _truth(stream: Stream, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    landed = schema_of(stream)
    schema = pa.schema([landed.field(column.name) for column in stream.columns])
    return pa.Table.from_pylist([as_arrow_row(stream.columns, dict(row)) for row in rows], schema=schema)


def _by_messages(stream: Stream, messages: Messages) -> pa.Table:
    table, decoded = split_bad_rows(
        messages, decoder=decoder_for(stream), stream=stream, schema=schema_of(stream), checkpoint_id=1
    )
    assert not decoded.bad
    return table


def _by_block(stream: Stream, values: Sequence[bytes]) -> pa.Table:
    records = records_of_topic(batch_of([Stored(value, offset) for offset, value in enumerate(values)]))
    table = rows_of_block(records, decoder=decoder_for(stream), stream=stream, schema=schema_of(stream), checkpoint_id=1)
    assert table is not None
    return table


def check_duckdb(warehouse: Warehouse, *, at_once: int = 10) -> None:
    names = list(warehouse.truth)
    for first in range(0, len(names), at_once):
        truth = {name: warehouse.truth[name] for name in names[first : first + at_once]}
        tables = read_at_once(warehouse.catalog, list(truth))
        check_same(Engine.duckdb, truth, {name: tables[name].select(truth[name].column_names) for name in truth})


def check_others(warehouse: Warehouse, names: Sequence[str]) -> None:
    """Compare what the other engines of this process read from some tables."""
    for name in names:
        truth = warehouse.truth[name]
        for engine, ask in IN_PROCESS.items():
            if engine != Engine.duckdb:
                quoted = ", ".join(f'"{column}"' for column in truth.column_names)
                answer = ask(warehouse.catalog, f"SELECT {quoted} FROM {name}")
                check_same(engine, {name: truth}, {name: answer})


def check_spark(warehouse: Warehouse, spark: SparkSession, names: Sequence[str]) -> None:
    known = list_tables(warehouse.catalog)
    for name in names:
        truth = warehouse.truth[name]
        sql = f"SELECT {', '.join(truth.column_names)} FROM {name}"
        question = read_question(sql, dialect=DIALECTS[Engine.spark], known=known)
        answer = ask_spark(question, settings=warehouse.settings, spark=spark)
        check_same(Engine.spark, {name: truth}, {name: answer})


def test_random_schemas_are_read_back_by_every_engine_in_this_process(tmp_path: Path) -> None:
    warehouse = fill(tmp_path, tables=6, columns=12, rows=15, seed=1)
    check_duckdb(warehouse)
    check_others(warehouse, list(warehouse.truth)[:3])


@pytest.mark.spark
def test_random_schemas_are_read_back_by_spark(tmp_path: Path, spark: SparkSession) -> None:
    warehouse = fill(tmp_path, tables=3, columns=8, rows=15, seed=2)
    check_spark(warehouse, spark, list(warehouse.truth))


def test_random_schemas_are_written_and_read_back(tmp_path: Path) -> None:
    check_files(tmp_path, schemas=60, seed=4)


@pytest.mark.long
def test_ten_thousand_random_schemas(tmp_path: Path) -> None:
    check_files(tmp_path, schemas=10_000, seed=5)


@pytest.mark.long
@pytest.mark.spark
def test_ten_thousand_random_columns_and_messages_in_every_engine(tmp_path: Path, spark: SparkSession) -> None:
    warehouse = fill(tmp_path, tables=400, columns=25, rows=25, seed=3)
    assert warehouse.columns == sum(table.num_rows for table in warehouse.truth.values()) == 10_000
    check_duckdb(warehouse)
    sample = list(warehouse.truth)[::10]
    check_others(warehouse, sample)
    check_spark(warehouse, spark, sample)


@pytest.mark.parametrize("seed", range(20))
def test_null_in_any_required_field_is_refused_with_its_name(seed: int) -> None:
    random = Random(seed)
    columns = RandomTypes(random).columns(10)
    stream = Stream("things", "things", 1, "json", columns, NAME)
    row = random_row(columns, random)
    paths = required_paths(columns, row)
    values = [as_json(columns, row, random), *(json_with_null(columns, row, path, random) for path in paths)]
    decoded = decoder_for(stream).decode(list(values))
    assert list(decoded.rows) == [0]
    assert sorted(decoded.bad) == list(range(1, len(values)))
    for index, path in enumerate(paths, 1):
        place = "".join(f".{part}" for part in path)
        assert f"`${place}`" in decoded.bad[index] or f"required field `{path[-1]}`" in decoded.bad[index], decoded.bad[index]


def json_with_null(columns: tuple[Column, ...], row: dict[str, Any], path: tuple[str, ...], random: Random) -> bytes:
    return as_json(columns, without(row, path), random)


def test_null_record_with_a_required_field_lands(tmp_path: Path) -> None:
    ddl = """n BIGINT NOT NULL, inner STRUCT<x: INT NOT NULL, y: STRING>, l ARRAY<STRUCT<x: INT NOT NULL>>,
             m MAP<STRING, STRUCT<x: INT NOT NULL>>, d STRUCT<o: STRUCT<x: INT NOT NULL> NOT NULL>"""
    stream = json_stream(ddl)
    full: dict[str, Any] = {
        "inner": {"x": 1, "y": None},
        "l": [{"x": 1}, None],
        "m": {"a": None, "b": {"x": 2}},
        "d": {"o": {"x": 3}},
    }
    rows: list[dict[str, Any]] = [{"n": 0, **dict.fromkeys(full)}, {"n": 1, **full}, {"n": 2, **full, "inner": None, "d": None}]
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    warehouse = Warehouse(settings, open_catalog(settings), {})
    warehouse.add(stream, rows, [_by_messages(stream, messages_of([json.dumps(row).encode() for row in rows]))])
    check_duckdb(warehouse)
    check_others(warehouse, list(warehouse.truth))
