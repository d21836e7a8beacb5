"""A lake for the benchmarks of layers: a raw table of charges that is filled without Kafka, and tables on top of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.charge_rows import START
from headrace.build.build import Built
from headrace.build.lake import Lake
from headrace.runs.building import build, open_lake
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.columns import landed_columns
from headrace.tables.append import append_checkpoint
from headrace.tables.build_ledger import InputState
from headrace.tables.catalog import ensure_table, open_catalog, table_location
from headrace.tables.files import TableFiles, TableFormat
from headrace.tables.ledger import Ledger, read_ledger
from headrace.tables.row_counts import rows_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = "charge_lake"
_TOPIC = "layer-charges"
_SCHEMA = Path(__file__).parent / "schemas" / "layer_charges.sql"
_YML = f"""\
name: {PIPELINE}
about: What the benchmarks of layers build.
namespace: bench
streams:
  charges:
    {{topic: {_TOPIC}, format: json, schema: schemas/charge.sql, table: bench.raw_charges, partition_by: [days(created_at)]}}
"""


@dataclass(frozen=True)
class Cost:
    """What one build of one table took, all that a build does included.

    `change_bytes` are the sizes of the driver's files that hold the change, `target_bytes` of the table's own that were read.
    `io_read_bytes` and `io_written_bytes` are what Spark's process moved by the kernel's count, whatever it was for.
    """

    seconds: float
    cpu_seconds: float
    rows: int
    change_bytes: int
    target_bytes: int
    written_bytes: int
    io_read_bytes: int
    io_written_bytes: int


class ChargeLake:
    """A lake of its own in a folder, with the layer tables that are given (file: text)."""

    def __init__(self, folder: Path, spark: SparkSession, tables: Mapping[str, str]) -> None:
        home = folder / "pipelines" / PIPELINE
        files = {"pipeline.yml": _YML, "schemas/charge.sql": _SCHEMA.read_text(encoding="utf-8"), **tables}
        for name, text in files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        self.settings: Settings = load_settings(flags={}, environ={}, folder=folder)
        self.catalog = open_catalog(self.settings)
        self.pipeline: Pipeline = load_pipeline(PIPELINE, environ={}, folder=folder)
        stream = self.pipeline.streams[0]
        self._raw = ensure_table(
            self.catalog,
            stream.table,
            columns=landed_columns(stream),
            partition_by=stream.partition_by,
            location=table_location(self.settings, stream.table),
        )
        self._format = TableFormat(self._raw.schema(), self._raw.spec())
        self.lake: Lake = open_lake(self.settings, self.pipeline, spark)
        self._spark_process = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]

    def land(self, rows: pa.Table) -> None:
        """Appends charges to the raw table as one checkpoint."""
        planned = read_ledger(self._raw)
        checkpoint, offset, count = planned.checkpoint_id + 1, planned.offsets.get(0, 0), rows.num_rows
        schema = self._format.arrow_schema
        given = {
            "kafka_topic": pa.repeat(_TOPIC, count),
            "kafka_partition": pa.repeat(0, count),
            "kafka_offset": pa.array(range(offset, offset + count), pa.int64()),
            "kafka_timestamp": pa.repeat(pa.scalar(START, pa.timestamp("us", "UTC")), count),
            "checkpoint_id": pa.repeat(checkpoint, count),
            **{name: rows[name] for name in rows.column_names},
        }
        columns = [
            given[field.name].cast(field.type) if field.name in given else pa.nulls(count, field.type) for field in schema
        ]
        files = TableFiles(self._format, folder=f"{self._raw.location()}/output", name=uuid.uuid4().hex)
        files.write(pa.Table.from_arrays(columns, schema=schema))
        new = Ledger(checkpoint, {0: offset + count}, writer=str(uuid.uuid4()))
        self._raw = append_checkpoint(self.catalog, self._raw, files=files.close(), planned=planned, new=new)

    def build(self, name: str, *, full_refresh: bool = False) -> Built:
        """Builds one table, as `headrace build --table` does in an application that runs already."""
        outcomes = build(self.lake, table=name, full_refresh=full_refresh)
        for outcome in outcomes:
            if outcome.error:
                raise outcome.error
        built = outcomes[-1].built
        if built is None:
            raise RuntimeError(f"there was nothing to build in {name}")
        return built

    def measure(self, name: str, *, full_refresh: bool = False) -> Cost:
        """Gives back what a build took."""
        spark = self._spark_process
        before, io, own, started = spark.cpu_times(), _io(spark.pid), time.process_time(), time.monotonic()
        built = self.build(name, full_refresh=full_refresh)
        seconds = time.monotonic() - started
        after, io_after = spark.cpu_times(), _io(spark.pid)
        cpu = after.user + after.system - before.user - before.system + time.process_time() - own
        whole = InputState() if full_refresh else None
        change = sum(
            _bytes_between(self._raw, since=whole or built.plan.since[driver], until=built.plan.until[driver])
            for driver in built.plan.table.drivers
        )
        return Cost(
            seconds,
            cpu,
            built.rows,
            change,
            built.read_bytes,
            built.written_bytes,
            io_after["rchar"] - io["rchar"],
            io_after["wchar"] - io["wchar"],
        )

    def count(self, name: str) -> int:
        """Gives back how many rows a table has, as its current snapshot says."""
        snapshot = self.catalog.load_table(f"bench.{name}").current_snapshot()
        return rows_after(snapshot) if snapshot else 0


def _bytes_between(raw: Table, *, since: InputState, until: InputState) -> int:
    """Gives back the sizes of the files that can hold rows of these checkpoints, found as a reader finds them."""
    came = f"checkpoint_id > {since.position} and checkpoint_id <= {until.position}"
    return sum(task.file.file_size_in_bytes for task in raw.scan(row_filter=came, snapshot_id=until.snapshot_id).plan_files())


def _io(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}
