"""A lake for the benchmarks of layers: raw tables that are filled without Kafka, and tables on top of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.charge_rows import START
from headrace.build.build import Built
from headrace.build.inputs import position_column
from headrace.build.lake import Lake
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.commits.build_phases import BuildPhases
from headrace.iceberg.files.row_counts import rows_after
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.build import InputState
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.sessions.building import Outcome, build, open_lake
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Stream, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = "charge_lake"
CHARGE_SCHEMA = (Path(__file__).parent / "schemas" / "layer_charges.sql").read_text(encoding="utf-8")
_YML = f"""\
name: {PIPELINE}
about: What the benchmarks of layers build.
namespace: bench
streams:
"""
_STREAM = "  {name}: {{topic: layer-{name}, format: json, schema: schemas/{name}.sql, table: bench.raw_{name}, {also}}}\n"


@dataclass(frozen=True)
class RawTable:
    """A raw table of a lake: `bench.raw_<name>`, its columns as DDL, and its partitioning."""

    name: str
    schema: str
    partition_by: str = ""

    @property
    def stream(self) -> str:
        """The table's stream as an entry of pipeline.yml."""
        return _STREAM.format(name=self.name, also=f"partition_by: [{self.partition_by}]" if self.partition_by else "")


CHARGES = RawTable("charges", CHARGE_SCHEMA, partition_by="days(created_at)")


@dataclass(frozen=True)
class Cost:
    """What one build of one table took, all that a build does included.

    `change_bytes` are the sizes of the files of the drivers that hold the change, `target_bytes` of the table's own that were
    read. `io_read_bytes` and `io_written_bytes` are what Spark's process moved by the kernel's count, whatever it was for.
    """

    seconds: float
    cpu_seconds: float
    phases: BuildPhases
    rows: int
    change_bytes: int
    target_bytes: int
    written_bytes: int
    io_read_bytes: int
    io_written_bytes: int


class _Landing:
    """A raw table as an application holds it that lands into it."""

    def __init__(self, table: Table, stream: Stream) -> None:
        self.table = table
        self.topic = stream.topic
        self.format = TableFormat(table.schema(), table.spec())

    def rows(self, rows: pa.Table, *, checkpoint: int, offset: int) -> pa.Table:
        """Return rows with the columns that landing adds; a column that they lack is null."""
        count = rows.num_rows
        given = {
            "kafka_topic": pa.repeat(self.topic, count),
            "kafka_partition": pa.repeat(0, count),
            "kafka_offset": pa.array(range(offset, offset + count), pa.int64()),
            "kafka_timestamp": pa.repeat(pa.scalar(START, pa.timestamp("us", "UTC")), count),
            "checkpoint_id": pa.repeat(checkpoint, count),
            **{name: rows[name] for name in rows.column_names},
        }
        schema = self.format.arrow_schema
        columns = [
            given[field.name].cast(field.type) if field.name in given else pa.nulls(count, field.type) for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)


class ChargeLake:
    """A lake of its own in a folder, with some raw tables and the layer tables that are given (file: text)."""

    def __init__(
        self, folder: Path, spark: SparkSession, tables: Mapping[str, str], *, raw_tables: Sequence[RawTable] = (CHARGES,)
    ) -> None:
        home = folder / "pipelines" / PIPELINE
        schemas = {f"schemas/{table.name}.sql": table.schema for table in raw_tables}
        files = {"pipeline.yml": _YML + "".join(table.stream for table in raw_tables), **schemas, **tables}
        for name, text in files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        self.settings: Settings = load_settings(flags={}, environ={}, folder=folder)
        self.catalog = open_catalog(self.settings)
        self.pipeline: Pipeline = load_pipeline(PIPELINE, environ={}, folder=folder)
        self._landing = {stream.name: self._start_landing(stream) for stream in self.pipeline.streams}
        self.lake: Lake = open_lake(self.settings, self.pipeline, spark)
        self._spark_process = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]

    def _start_landing(self, stream: Stream) -> _Landing:
        table = ensure_table(
            self.catalog,
            stream.table,
            columns=landed_columns(stream),
            partition_by=stream.partition_by,
            location=table_location(self.settings, stream.table),
        )
        return _Landing(table, stream)

    def land(self, rows: pa.Table, *, raw: str = CHARGES.name) -> None:
        """Append rows to a raw table as one checkpoint."""
        landing = self._landing[raw]
        planned = read_ledger(landing.table)
        checkpoint, offset = planned.checkpoint_id + 1, planned.offsets.get(0, 0)
        files = TableFiles(landing.format, folder=f"{landing.table.location()}/output", name=uuid.uuid4().hex)
        files.write(landing.rows(rows, checkpoint=checkpoint, offset=offset))
        new = Ledger(checkpoint, {0: offset + rows.num_rows}, writer=str(uuid.uuid4()))
        landing.table = append_checkpoint(self.catalog, landing.table, files=files.close(), planned=planned, new=new)

    def build(self, name: str, *, full_refresh: bool = False) -> Built:
        """Build one table and its upstream tables, as `headrace build --table` does in an application that runs already.

        Raise the error of a table that failed, and a RuntimeError if there was nothing to build.
        """
        return self._build(name, full_refresh=full_refresh)[-1]

    def _build(self, name: str, *, full_refresh: bool) -> list[Built]:
        """Return what was built, the named table last."""
        outcomes: Sequence[Outcome] = build(self.lake, table=name, full_refresh=full_refresh)
        for outcome in outcomes:
            if outcome.error:
                raise outcome.error
        if outcomes[-1].built is None:
            raise RuntimeError(f"there was nothing to build in {name}")
        return [outcome.built for outcome in outcomes if outcome.built]

    def measure(self, name: str, *, full_refresh: bool = False) -> Cost:
        """Return what a build of one table took. Raise a RuntimeError if a table that it reads had to be built, too."""
        spark = self._spark_process
        before, io, own, started = spark.cpu_times(), _io(spark.pid), time.process_time(), time.monotonic()
        *others, built = self._build(name, full_refresh=full_refresh)
        seconds = time.monotonic() - started
        after, io_after = spark.cpu_times(), _io(spark.pid)
        if others:
            upstream = ", ".join(str(other.plan.table.table) for other in others)
            raise RuntimeError(f"{upstream} had to be built before {name}: its cost would count")
        cpu = after.user + after.system - before.user - before.system + time.process_time() - own
        whole = InputState() if full_refresh else None
        change = sum(
            self._bytes_between(driver, since=whole or built.plan.since[driver], until=built.plan.until[driver])
            for driver in built.plan.table.drivers
        )
        return Cost(
            seconds,
            cpu,
            built.phases,
            built.rows,
            change,
            built.read_bytes,
            built.written_bytes,
            io_after["rchar"] - io["rchar"],
            io_after["wchar"] - io["wchar"],
        )

    def count(self, name: str) -> int:
        """Return how many rows a table has, as its current snapshot says."""
        snapshot = self.catalog.load_table(f"bench.{name}").current_snapshot()
        return rows_after(snapshot) if snapshot else 0

    def _bytes_between(self, name: TableName, *, since: InputState, until: InputState) -> int:
        """Return the sizes of the files that can hold rows which came between two positions, found as a reader finds them."""
        column = position_column(name, self.pipeline)
        came = f"{column} > {since.position} and {column} <= {until.position}"
        scan = self.catalog.load_table(str(name)).scan(row_filter=came, snapshot_id=until.snapshot_id)
        return sum(task.file.file_size_in_bytes for task in scan.plan_files())


def _io(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}
