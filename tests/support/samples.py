"""The samples that pipelines come with, as messages; and the rows of a lake, as `expected/` has them.

`expected/<stream>.jsonl` has the rows of a raw table, `expected/<layer>/<table>.jsonl` those of a layer table.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from headrace.sources.encode import encoder_of
from headrace.spec import list_pipelines, load_pipeline
from headrace.spec.loading.folders import BUILT_IN
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import HIDDEN, LayerTable
from headrace.spec.model.pipeline import Pipeline, Stream
from tests.support.changes import change_values
from tests.support.lake import Lake
from tests.support.topics import make_topic, produce

Row = dict[str, Any]

NAMES = [pipeline.name for pipeline in list_pipelines(BUILT_IN) if pipeline.built_in]


def send_sample(lake: Lake, pipeline: Pipeline, *, until: Sequence[float] = (1.0,)) -> Iterator[float]:
    """Make the pipeline's topics and send its sample to them, in parts: of each topic's up to a share, then to the next."""
    for stream in pipeline.streams:
        make_topic(lake.servers, stream.topic, partitions=stream.partitions)
    for start, end in zip((0.0, *until), until, strict=False):
        for stream in pipeline.streams:
            sample = values_of(stream, pipeline.folder / "sample" / f"{stream.name}.jsonl")
            first, last = (round(len(sample) * share) for share in (start, end))
            produce(lake.servers, stream.topic, sample[first:last], partitions=stream.partitions, first=first)
        yield end


def found_lines(lake: Lake, pipeline: Pipeline) -> dict[str, list[str]]:
    """Return what there is of a pipeline's tables, by the names of the files in `expected/`."""
    by_default = load_pipeline(pipeline.name, environ={}, folder=lake.folder)
    lines = {
        f"{stream.name}.jsonl": raw_lines(lake, stream, topic=default.topic)
        for stream, default in zip(pipeline.streams, by_default.streams, strict=True)
    }
    return lines | {f"{table.layer}/{table.table.name}.jsonl": layer_lines(lake, table) for table in pipeline.tables}


def check_expected(pipeline: Pipeline, lines_by_file: Mapping[str, list[str]]) -> None:
    """Hold the tables against `expected/`, which has a file for each."""
    folder = pipeline.folder / "expected"
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.jsonl")} == set(lines_by_file), (
        "a file for every table"
    )
    for file, lines in lines_by_file.items():
        assert lines == (folder / file).read_text(encoding="utf-8").splitlines(), file


def values_of(stream: Stream, path: Path) -> list[bytes | None]:
    """Return a sample as messages: a JSON line is one as it stands, an Avro event is encoded, a change gets its schema."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if stream.format == "debezium":
        return change_values((path.parent.parent / "schemas" / f"{stream.name}.avsc").read_text(encoding="utf-8"), lines)
    if stream.format == "json":
        return [line.encode() for line in lines]
    return [encoder_of(stream)(json.loads(line)) for line in lines]


def as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, (date, Decimal)):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_json(inner) for inner in value]
    return value


def lines_of(rows: Iterable[Row]) -> list[str]:
    return [json.dumps({name: as_json(value) for name, value in row.items()}, ensure_ascii=False) for row in rows]


def raw_lines(lake: Lake, stream: Stream, *, topic: str) -> list[str]:
    """Return the rows of a raw table in the order of its sample, without what differs from run to run."""
    names = [column.name for column in landed_columns(stream) if column.name not in ("checkpoint_id", "kafka_timestamp")]
    in_order = sorted(lake.rows(str(stream.table)), key=lambda row: (row["kafka_offset"], row["kafka_partition"]))
    return lines_of({name: row[name] for name in names} | {"kafka_topic": topic} for row in in_order)


def layer_lines(lake: Lake, table: LayerTable) -> list[str]:
    """Return the rows of a layer table by its keys, without what builds keep in them for themselves."""
    rows = [{name: value for name, value in row.items() if name not in HIDDEN} for row in lake.rows(str(table.table))]
    by = [*table.keys, *table.sequence_by]
    return lines_of(sorted(rows, key=lambda row: ([(row[name] is not None, row[name]) for name in by], str(row))))
