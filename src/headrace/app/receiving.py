"""Receiving as a command runs it: a server in the foreground, or one beside other commands that they share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headrace.app.own_server import need_free, own_server, serve_app
from headrace.errors import SpecError
from headrace.servers import embedded, ports
from headrace.servers.embedded import Embedded, Report
from headrace.servers.kafka import kafka
from headrace.servers.status import RECEIVER
from headrace.sessions.own_topics import make_topics
from headrace.settings import Settings
from headrace.sources.receiving import receiving_app
from headrace.sources.webhooks import Limits, Lock
from headrace.spec.model.pipeline import HttpSource, Pipeline


def receive(settings: Settings, pipeline: Pipeline, *, port: int | None, report: Report) -> None:
    """Take events over HTTP until Ctrl-C or SIGTERM; requests that are being answered then are answered first."""
    chosen = port or _source_of(pipeline).port
    need_free(chosen, pipeline=pipeline)
    with kafka(settings, report=report) as servers:
        make_topics(settings, servers, pipeline.streams)
        limits = Limits(settings.receive_max_body_bytes, settings.receive_public_url)
        app = receiving_app(pipeline, bootstrap_servers=servers, environ=os.environ, limits=limits)
        _tell_what_is_off(pipeline, report)
        report(f"Receiving on http://{ports.HOST}:{chosen}")
        serve_app(app, port=chosen)


def secrets_to_play_with(pipeline: Pipeline, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a secret for each webhook that has none: what is sent and taken by one command needs no one else's."""
    webhooks = pipeline.http.webhooks if pipeline.http else ()
    missing = {webhook.secret for webhook in webhooks if not environ.get(webhook.secret, "").strip()}
    return {name: secrets.token_hex(32) for name in sorted(missing)}


@contextmanager
def receiving(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[str | None]:
    """Yield the address of the pipeline's server, started as a process of its own if it does not run, and stopped at the end
    if no other command uses it; None for a pipeline that receives nothing."""
    if pipeline.http is None:
        yield None
        return
    with embedded.use(_server_of(pipeline), settings, report=report) as state:
        yield f"http://{ports.HOST}:{state.port}"


def _server_of(pipeline: Pipeline) -> Embedded:
    name, title = f"{RECEIVER}{pipeline.name}", f"{pipeline.name}'s receiver"

    def ready(report: Report) -> None:
        _tell_what_is_off(pipeline, report)

    return own_server(name, title, command=("receive", pipeline.name), usual=_source_of(pipeline).port, ready=ready)


def _tell_what_is_off(pipeline: Pipeline, report: Report) -> None:
    for webhook in _source_of(pipeline).webhooks:
        if Lock.of(webhook, os.environ).is_off:
            report(f"{webhook.path} is off: set {webhook.secret} to turn it on")


def _source_of(pipeline: Pipeline) -> HttpSource:
    if pipeline.http is None:
        raise SpecError(
            "the pipeline receives nothing over HTTP",
            where=f"pipeline {pipeline.name}",
            next_step="Add sources: {http: {file: sources/receive.py, port: 9998}} to its pipeline.yml.",
        )
    return pipeline.http
