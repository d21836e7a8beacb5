"""Seeding as a command runs it: the server that fills a source database, in the foreground or beside other commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from headrace.errors import SpecError
from headrace.runs.capturing import capture_of
from headrace.runs.landing import Report
from headrace.runs.own_server import need_free, own_server, serve_app
from headrace.services import embedded, ports
from headrace.services.embedded import Embedded
from headrace.services.postgres import postgres
from headrace.services.source_database import ready_database
from headrace.services.status import SEEDER
from headrace.settings import Settings
from headrace.sources.seeding import seeding_app
from headrace.spec.pipeline import Pipeline, Seeder


def seed(settings: Settings, pipeline: Pipeline, *, port: int | None, report: Report) -> None:
    """Takes requests to fill and play with the source database until Ctrl-C or SIGTERM; traffic that it plays ends with it."""
    chosen = port or _seeder_of(pipeline).port
    need_free(chosen, pipeline=pipeline)
    capture = capture_of(pipeline)
    with nullcontext() if capture.url else postgres(settings, report=report):
        database = ready_database(settings, capture, report=report)
        report(f"Seeding on http://{ports.HOST}:{chosen}/docs")
        serve_app(seeding_app(pipeline, dsn=database.dsn), port=chosen)


@contextmanager
def seeding(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[str | None]:
    """Gives the address of the pipeline's seeder, started as a process of its own if it does not run, and stopped at the end
    if no other command uses it; None for a pipeline that has none."""
    if pipeline.capture is None or pipeline.capture.seeder is None:
        yield None
        return
    with embedded.use(seeder_server(pipeline), settings, report=report) as state:
        yield f"http://{ports.HOST}:{state.port}"


def seeder_server(pipeline: Pipeline) -> Embedded:
    """Gives back the pipeline's seeder as a server that commands share."""
    name, title = f"{SEEDER}{pipeline.name}", f"{pipeline.name}'s seeder"
    return own_server(name, title, command=("seeder", pipeline.name), usual=_seeder_of(pipeline).port)


def _seeder_of(pipeline: Pipeline) -> Seeder:
    if pipeline.capture is None or pipeline.capture.seeder is None:
        raise SpecError(
            "the pipeline has no seeder",
            where=f"pipeline {pipeline.name}",
            next_step="Add seeder: {file: sources/seeder.py, port: 8000} to sources: {postgres: …} in its pipeline.yml.",
        )
    return pipeline.capture.seeder
