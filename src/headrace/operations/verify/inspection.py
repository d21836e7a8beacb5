"""Inspect how a pipeline landed, without Spark: list its commits and verify it."""

from __future__ import annotations

from pyiceberg.table import Table

from headrace.errors import LandingError
from headrace.iceberg.catalog.registration import check_unregistered
from headrace.iceberg.catalog.tables import find_catalog, load_table, table_location
from headrace.iceberg.ledgers.landing import offsets_label, read_ledger
from headrace.iceberg.metadata.erasures import read_erased_offsets
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.landing.places import places_of
from headrace.operations.verify.log_history import LoggedFile, list_commits
from headrace.operations.verify.verify import Verified, verify_stream
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, Stream


def commits_of(settings: Settings, pipeline: Pipeline, *, checkpoint_id: int | None) -> tuple[LoggedFile, ...]:
    """Return every file in the pipeline's commit logs, or the files of one checkpoint."""
    return tuple(
        file
        for stream, table, quarantine in _landed_streams(settings, pipeline)
        for file in list_commits(
            places_of(stream, settings).commit_log, table=table, quarantine=quarantine, checkpoint_id=checkpoint_id
        )
    )


def need_landed(settings: Settings, pipeline: Pipeline) -> None:
    """Raise a LandingError if nothing has been landed, before servers are started."""
    _landed_streams(settings, pipeline)


def verify(settings: Settings, pipeline: Pipeline, *, bootstrap_servers: KafkaServers) -> tuple[Verified, ...]:
    """Compare each stream's tables with its topic."""
    admin, catalog = admin_client(bootstrap_servers), find_catalog(settings)
    return tuple(
        verify_stream(
            f"{pipeline.name}.{stream.name}",
            stream.topic,
            table=table,
            quarantine=quarantine,
            commit_log=places_of(stream, settings).commit_log,
            admin=admin,
            consumer=bootstrap_servers.task_config(),
            erased=read_erased_offsets(
                catalog, offsets_label(f"{pipeline.name}.{stream.name}", read_ledger(table).first_checkpoint)
            ),
        )
        for stream, table, quarantine in _landed_streams(settings, pipeline)
    )


def _landed_streams(settings: Settings, pipeline: Pipeline) -> list[tuple[Stream, Table, Table]]:
    """Return the streams that have a table. Raise a SettingsError for a table with files that the catalog lacks."""
    catalog = find_catalog(settings)
    quarantine = load_table(catalog, QUARANTINE)
    tables = [(stream, load_table(catalog, stream.table)) for stream in pipeline.streams]
    lacking = [stream.table for stream, table in tables if table is None]
    for name in (*lacking, *(() if quarantine else (QUARANTINE,))):
        check_unregistered(catalog, name, table_location(settings, name))
    landed = [(stream, table, quarantine) for stream, table in tables if table is not None and quarantine is not None]
    if not landed:
        raise LandingError("nothing has been landed yet", where=f"pipeline {pipeline.name}", next_step=_first_steps(pipeline))
    return landed


def _first_steps(pipeline: Pipeline) -> str:
    """Return the first steps for landing messages."""
    name = pipeline.name
    if any(stream.generator for stream in pipeline.streams):
        return (
            f"Run the demo: headrace demo {name}   or: headrace generate {name} --count 1000, then headrace land {name} --once"
        )
    topics = ", ".join(stream.topic for stream in pipeline.streams)
    return f"Send events to {topics}, then run: headrace land {name} --once"
