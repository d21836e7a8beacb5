"""Select the refused messages of a replay: with their original bytes, or edited by hand in a file of JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from headrace.errors import LandingError, SettingsError
from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.ledgers.replay import Window
from headrace.operations.replay.choice import ReplayRequest, ReplayScope, choose
from headrace.operations.replay.edited_messages import read_lines, to_lines
from headrace.operations.replay.target import Coordinates, Target, coordinates, plan_target
from headrace.settings import Settings
from headrace.sources.encode import encoder_of
from headrace.spec.model.pipeline import Pipeline


def export_refused(settings: Settings, pipeline: Pipeline, request: ReplayRequest, path: Path) -> int:
    """Write the selected refused messages as JSON lines to edit by hand. Return their number."""
    catalog, lines = open_catalog(settings), []
    for stream in choose(pipeline, request).streams:
        target = plan_target(catalog, settings, pipeline, stream, window=Window())
        if target is not None:
            lines += to_lines(select_refused(target, request))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def read_edited(pipeline: Pipeline, path: Path) -> dict[str, dict[Coordinates, bytes]]:
    """Return the bytes of messages that were edited by hand, by stream."""
    streams = {f"{pipeline.name}.{stream.name}": stream for stream in pipeline.streams if stream.format != "debezium"}

    def encode(stream: str, event: Mapping[str, object]) -> bytes:
        if stream not in streams:
            raise TypeError("event is only supported for the pipeline's JSON and Avro streams")
        return encoder_of(streams[stream])(event)

    return read_lines(path, encode=encode)


def check_edited(pipeline: Pipeline, scope: ReplayScope, request: ReplayRequest) -> None:
    """Raise a SettingsError for edited messages outside the scope, such as refused rows of a layer table."""
    known = {f"{pipeline.name}.{stream.name}" for stream in scope.streams}
    for label in sorted((request.edited or {}).keys() - known):
        is_built = label in {str(table.table) for table in pipeline.tables}
        raise SettingsError(
            "rows of a layer table are computed from its inputs and can't be edited"
            if is_built
            else "the replay does not include the stream",
            where=label,
            next_step=f"Nothing was changed. The replay's streams are: {', '.join(sorted(known))}",
        )


def select_refused(target: Target, request: ReplayRequest) -> pa.Table:
    """Return the refused messages that the request selects."""
    rows = target.quarantined_rows()
    if request.reason is not None:
        rows = rows.filter(pa.array([request.reason in (reason or "") for reason in rows["reason"].to_pylist()], pa.bool_()))
    if request.edited is None:
        return rows
    edited = request.edited.get(target.label, {})
    places = coordinates(rows)
    unknown = sorted(edited.keys() - set(places))
    if unknown:
        partition, offset = unknown[0]
        raise LandingError(
            f"the quarantine has no message at partition {partition}, offset {offset}",
            where=target.label,
            next_step="Nothing was changed. It may have been replayed already. List the quarantined messages: "
            f"headrace replay {target.label.split('.')[0]} --quarantined --dry-run",
        )
    return rows.filter(pa.array([at in edited for at in places], pa.bool_()))
