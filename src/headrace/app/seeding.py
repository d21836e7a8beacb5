"""Run the seeder, the HTTP server that fills a source database, in the foreground or beside other commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from headrace.app.own_server import check_port_free, own_server, serve_app
from headrace.errors import ServiceError, SpecError, UnavailableError
from headrace.http.client import ask
from headrace.operations.compare.catching_up import CdcPath, wait_for_topics
from headrace.operations.compare.source_tables import open_snapshot
from headrace.plurals import count_that_are
from headrace.servers import embedded, ports
from headrace.servers.embedded import Embedded, Report
from headrace.servers.postgres import postgres
from headrace.servers.source_database import find_database, ready_database
from headrace.servers.status import SEEDER
from headrace.sessions.capturing import capture_of
from headrace.sessions.landing import Session
from headrace.settings import Settings
from headrace.sources.seeding import seeding_app
from headrace.spec.model.pipeline import Pipeline, Seeder

_FILL_SECONDS = 300.0
_IS_FILLED = 409


def seed(settings: Settings, pipeline: Pipeline, *, port: int | None, report: Report) -> None:
    """Serve the seeder until Ctrl-C or SIGTERM; the traffic that it generates ends with it."""
    chosen = port or _seeder_of(pipeline).port
    check_port_free(chosen, pipeline=pipeline)
    capture = capture_of(pipeline)
    with nullcontext() if capture.url else postgres(settings, report=report):
        database = ready_database(settings, capture, report=report)
        report(f"Seeding on http://{ports.HOST}:{chosen}/docs")
        serve_app(seeding_app(pipeline, dsn=database.dsn), port=chosen)


@contextmanager
def seeding(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[str | None]:
    """Yield the address of the pipeline's seeder, or None if it has none.

    Starts the seeder as a separate process if it does not run, and stops it at the end unless another command uses it.
    """
    if pipeline.capture is None or pipeline.capture.seeder is None:
        yield None
        return
    with embedded.use(seeder_server(pipeline), settings, report=report) as state:
        yield f"http://{ports.HOST}:{state.port}"


def fill_source(address: str, session: Session, *, report: Report) -> None:
    """Fill the source database unless it is already filled, and wait until Kafka has all its rows."""
    answer = ask(f"{address}/seed/full", method="POST", timeout=_FILL_SECONDS)
    if answer.is_fine:
        rows = answer.body["rows"]
        report(f"{count_that_are(sum(rows.values()), 'row')} in {len(rows)} tables of Postgres; Debezium is reading them")
    elif answer.status != _IS_FILLED:
        raise ServiceError(
            f"the source database could not be filled: {answer.message}",
            where=f"{address}/seed/full",
            next_step=f"Read the log: headrace logs {SEEDER}{session.pipeline.name}",
        )
    database = find_database(session.settings, capture_of(session.pipeline))
    assert database is not None
    path = CdcPath(session.pipeline, database.dsn, session.pipeline.name, session.bootstrap_servers)
    with open_snapshot(database.dsn) as snapshot:
        wait_for_topics(path, snapshot.lsn, seconds=_FILL_SECONDS)


@contextmanager
def traffic(address: str | None, *, report: Report) -> Iterator[None]:
    """Run a seeder's traffic for the duration of the block; do nothing without a seeder or if traffic is already running."""
    started = None if address is None else ask(f"{address}/traffic/start", method="POST")
    if started is None or not started.is_fine:
        yield
        return
    report(f"Generating traffic, {started.body['rate']:.0f} transactions per second: {address}/docs")
    try:
        yield
    finally:
        with suppress(UnavailableError):  # the same Ctrl-C may have ended the seeder
            ask(f"{address}/traffic/stop", method="POST")


def seeder_server(pipeline: Pipeline) -> Embedded:
    """Return the pipeline's seeder as a server that commands share."""
    name, title = f"{SEEDER}{pipeline.name}", f"{pipeline.name}'s seeder"
    return own_server(name, title, command=("seed", "serve", pipeline.name), usual=_seeder_of(pipeline).port)


def _seeder_of(pipeline: Pipeline) -> Seeder:
    if pipeline.capture is None or pipeline.capture.seeder is None:
        raise SpecError(
            "the pipeline has no seeder",
            where=f"pipeline {pipeline.name}",
            next_step="Add seeder: {file: sources/seeder.py, port: 8000} to sources: {postgres: …} in its pipeline.yml.",
        )
    return pipeline.capture.seeder
