"""Run a pipeline's HTTP receiver, in the foreground or as a process that commands share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headrace.app.own_server import check_port_free, own_server, serve_app
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
    """Receive events over HTTP until Ctrl-C or SIGTERM; requests in progress are answered first."""
    chosen = port or _source_of(pipeline).port
    check_port_free(chosen, pipeline=pipeline)
    with kafka(settings, report=report) as servers:
        make_topics(settings, servers, pipeline.streams)
        limits = Limits(settings.receive_max_body_bytes, settings.receive_public_url)
        app = receiving_app(pipeline, bootstrap_servers=servers, environ=os.environ, limits=limits)
        _report_disabled_webhooks(pipeline, report)
        report(f"Receiving on http://{ports.HOST}:{chosen}")
        serve_app(app, port=chosen)


def generate_missing_secrets(pipeline: Pipeline, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a generated secret for each webhook without one, for a command that both sends and receives."""
    webhooks = pipeline.http.webhooks if pipeline.http else ()
    missing = {webhook.secret for webhook in webhooks if not environ.get(webhook.secret, "").strip()}
    return {name: secrets.token_hex(32) for name in sorted(missing)}


@contextmanager
def receiving(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[str | None]:
    """Yield the address of the pipeline's receiver, or None if it receives nothing over HTTP.

    Starts the receiver as a separate process if it does not run, and stops it at the end unless another command uses it.
    """
    if pipeline.http is None:
        yield None
        return
    with embedded.use(_server_of(pipeline), settings, report=report) as state:
        yield f"http://{ports.HOST}:{state.port}"


def _server_of(pipeline: Pipeline) -> Embedded:
    name, title = f"{RECEIVER}{pipeline.name}", f"{pipeline.name}'s receiver"

    def ready(report: Report) -> None:
        _report_disabled_webhooks(pipeline, report)

    return own_server(name, title, command=("receive", pipeline.name), usual=_source_of(pipeline).port, ready=ready)


def _report_disabled_webhooks(pipeline: Pipeline, report: Report) -> None:
    for webhook in _source_of(pipeline).webhooks:
        if Lock.of(webhook, os.environ).is_off:
            report(f"{webhook.path} is disabled: set {webhook.secret} to enable it")


def _source_of(pipeline: Pipeline) -> HttpSource:
    if pipeline.http is None:
        raise SpecError(
            "the pipeline receives nothing over HTTP",
            where=f"pipeline {pipeline.name}",
            next_step="Add sources: {http: {file: sources/receive.py, port: 9998}} to its pipeline.yml.",
        )
    return pipeline.http
