"""Open the tables of a pipeline's streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyiceberg.catalog import Catalog

from headrace.errors import HeadraceError, SettingsError, SpecError
from headrace.iceberg.catalog.tables import ensure_table
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.landing.commit_log import claim_log
from headrace.landing.landed import LandingStream
from headrace.landing.places import places_of
from headrace.landing.stream_failures import StreamFailures
from headrace.settings import Settings
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Pipeline, Stream


class OpenedStreams(NamedTuple):
    """The streams whose tables could be opened, and the error of every other stream by its label."""

    streams: tuple[LandingStream, ...]
    errors: Mapping[str, HeadraceError]


def open_streams(settings: Settings, pipeline: Pipeline, *, catalog: Catalog, failures: StreamFailures) -> OpenedStreams:
    """Open the streams' tables. A table that the pipeline or the settings don't allow stops only its stream.

    Raises the first error if no stream can be opened.
    """
    streams: list[LandingStream] = []
    errors: dict[str, HeadraceError] = {}
    for stream in pipeline.streams:
        try:
            streams.append(_open(settings, pipeline, stream, catalog))
        except (SpecError, SettingsError) as error:
            label = f"{pipeline.name}.{stream.name}"
            errors[label] = error
            failures.log(label, "its table can't be opened", error)
    if not streams:
        raise next(iter(errors.values()))
    return OpenedStreams(tuple(streams), errors)


def _open(settings: Settings, pipeline: Pipeline, stream: Stream, catalog: Catalog) -> LandingStream:
    places = places_of(stream, settings)
    table = ensure_table(
        catalog,
        stream.table,
        columns=landed_columns(stream),
        partition_by=stream.partition_by,
        location=places.table,
        properties={"write.data.path": places.output},
    )
    if stream.commit_log:  # a log in the table's own folder has no other owner
        storage = Storage.of(catalog.properties)
        claim_log(places.commit_log, table=str(stream.table), owner=str(table.metadata.table_uuid), storage=storage)
    return LandingStream(stream, f"{pipeline.name}.{stream.name}", table, places, read_ledger(table))
