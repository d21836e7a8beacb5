"""Refused messages that are meant: as they are, or mended by hand in a file of JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from headrace.errors import LandingError, SettingsError
from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.ledgers.replay import Window
from headrace.operations.replay.choice import Chosen, Wanted, choose
from headrace.operations.replay.mended import read_lines, to_lines
from headrace.operations.replay.target import Coordinates, Target, coordinates, plan_target
from headrace.settings import Settings
from headrace.sources.encode import encoder_of
from headrace.spec.model.pipeline import Pipeline


def export_refused(settings: Settings, pipeline: Pipeline, wanted: Wanted, path: Path) -> int:
    """Write the refused messages that are meant as lines of JSON, to be mended by hand, and return how many they are."""
    catalog, lines = open_catalog(settings), []
    for stream in choose(pipeline, wanted).streams:
        target = plan_target(catalog, settings, pipeline, stream, window=Window())
        if target is not None:
            lines += to_lines(select_refused(target, wanted))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def read_mended(pipeline: Pipeline, path: Path) -> dict[str, dict[Coordinates, bytes]]:
    """Return the bytes of messages that were mended by hand, by stream."""
    streams = {f"{pipeline.name}.{each.name}": each for each in pipeline.streams if each.format != "debezium"}

    def encode(stream: str, event: Mapping[str, object]) -> bytes:
        if stream not in streams:
            raise TypeError("only events of the pipeline's JSON and Avro streams can be encoded")
        return encoder_of(streams[stream])(event)

    return read_lines(path, encode=encode)


def check_mended(pipeline: Pipeline, chosen: Chosen, wanted: Wanted) -> None:
    """Refuse mended messages of what is not read again: rows that a layer table refuses are made of its inputs."""
    known = {f"{pipeline.name}.{each.name}" for each in chosen.streams}
    for label in sorted((wanted.mended or {}).keys() - known):
        is_built = label in {str(each.table) for each in pipeline.tables}
        raise SettingsError(
            "rows of a layer table are made of its inputs, and can't be mended there"
            if is_built
            else "no such stream is meant",
            where=label,
            next_step=f"Nothing was changed. Streams are: {', '.join(sorted(known))}",
        )


def select_refused(target: Target, wanted: Wanted) -> pa.Table:
    """Return the refused messages that are meant."""
    rows = target.quarantined_rows()
    if wanted.reason is not None:
        rows = rows.filter(pa.array([wanted.reason in (each or "") for each in rows["reason"].to_pylist()], pa.bool_()))
    if wanted.mended is None:
        return rows
    mended = wanted.mended.get(target.label, {})
    places = coordinates(rows)
    unknown = sorted(mended.keys() - set(places))
    if unknown:
        partition, offset = unknown[0]
        raise LandingError(
            f"the quarantine has no message at partition {partition}, offset {offset} of it",
            where=target.label,
            next_step="Nothing was changed. It may have been replayed already; see what is there with: "
            f"headrace replay {target.label.split('.')[0]} --quarantined --dry-run",
        )
    return rows.filter(pa.array([at in mended for at in places], pa.bool_()))
