"""Where a stream's table, data files and commit log are."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from headrace.errors import SpecError
from headrace.iceberg.catalog.tables import table_location
from headrace.iceberg.files.storage import Storage, as_uri, local_path
from headrace.iceberg.maintenance.purge import plain_location
from headrace.landing.commit_log import is_log_of, read_log
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, Stream


@dataclass(frozen=True)
class Places:
    """URIs. A pipeline can name `output` and `commit_log` itself; a relative path is relative to the working folder."""

    table: str
    output: str
    commit_log: str


def places_of(stream: Stream, settings: Settings) -> Places:
    location = table_location(settings, stream.table)
    folder = settings.folder
    return Places(
        table=location,
        output=as_uri(stream.output, folder=folder) if stream.output else f"{location}/output",
        commit_log=as_uri(stream.commit_log, folder=folder) if stream.commit_log else f"{location}/write-ahead-commit-log",
    )


def check_outputs(pipeline: Pipeline, settings: Settings) -> None:
    """Raise a SpecError if a stream's `output` overlaps the warehouse.

    Maintenance of another table would delete the stream's files there as orphan files.
    """
    for stream in pipeline.streams:
        places = places_of(stream, settings)
        if stream.output is None or _lies_in(places.output, places.table):
            continue
        if _lies_in(places.output, settings.warehouse) or _lies_in(settings.warehouse, places.output):
            raise SpecError(
                f"its output {places.output} overlaps the warehouse {settings.warehouse}",
                where=f"stream {stream.name} of pipeline {pipeline.name}",
                next_step=f"Choose an output outside the warehouse, or remove it to use {places.table}/output. "
                f"Then run: headrace check {pipeline.name}",
            )


def logged_elsewhere(stream: Stream, table: Table, settings: Settings) -> frozenset[str]:
    """Return the files outside the warehouse that the commit log of the stream's table names."""
    places, storage = places_of(stream, settings), Storage.of(table.io.properties)
    if _lies_in(places.output, settings.warehouse):
        return frozenset()
    owner = str(table.metadata.table_uuid)
    if stream.commit_log and not is_log_of(places.commit_log, owner=owner, storage=storage):
        return frozenset()
    named = (plain_location(entry.s3_key) for entry in read_log(places.commit_log, storage=storage))
    return frozenset(path for path in named if not _lies_in(path, settings.warehouse))


def _lies_in(place: str, folder: str) -> bool:
    return f"{_comparable(place)}/".startswith(f"{_comparable(folder)}/")


def _comparable(place: str) -> str:
    path = local_path(place)
    return f"file://{path.resolve()}" if path else plain_location(place).rstrip("/")
