"""Receiving as a command runs it: a server in the foreground, or one beside other commands that they share."""

from __future__ import annotations

import gc
import os
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import uvicorn

from headrace.errors import ServiceError, SpecError
from headrace.runs.landing import Report, stop_on_signals
from headrace.services import embedded, ports, process
from headrace.services.embedded import START_TIMEOUT, Embedded
from headrace.services.kafka import kafka
from headrace.services.status import RECEIVER
from headrace.services.topics import admin_client, ensure_topics
from headrace.settings import Settings
from headrace.sources.receiving import receiving_app
from headrace.sources.webhooks import Limits, Lock
from headrace.spec.pipeline import HttpSource, Pipeline

_ANSWER_SECONDS = 5.0
_ENDING_SECONDS = 10


def receive(settings: Settings, pipeline: Pipeline, *, port: int | None, report: Report) -> None:
    """Takes events over HTTP until Ctrl-C or SIGTERM; requests that are being answered then are answered first."""
    chosen = port or _source_of(pipeline).port
    if not ports.becomes_free(chosen):
        raise ServiceError(
            f"port {chosen} is taken{ports.name_holder(chosen)}",
            where=f"pipeline {pipeline.name}",
            next_step="Stop that program, or choose another port: --port NUMBER",
        )
    with kafka(settings, report=report) as servers:
        ensure_topics(admin_client(servers), {stream.topic: stream.partitions for stream in pipeline.streams})
        limits = Limits(settings.receive_max_body_bytes, settings.receive_public_url)
        app = receiving_app(pipeline, bootstrap_servers=servers, environ=os.environ, limits=limits)
        _tell_what_is_off(pipeline, report)
        report(f"Receiving on http://{ports.HOST}:{chosen}")
        # What is loaded by now stays: looking through it for garbage would stop every request for a tenth of a second.
        gc.collect()
        gc.freeze()
        with stop_on_signals():  # uvicorn raises the signal again that ended it, which must not end what comes after
            uvicorn.run(
                app,
                host=ports.HOST,
                port=chosen,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_ENDING_SECONDS,
            )


def secrets_to_play_with(pipeline: Pipeline, environ: Mapping[str, str]) -> dict[str, str]:
    """Gives back a secret for each webhook that has none: what is sent and taken by one command needs no one else's."""
    webhooks = pipeline.http.webhooks if pipeline.http else ()
    missing = {webhook.secret for webhook in webhooks if not environ.get(webhook.secret, "").strip()}
    return {name: secrets.token_hex(32) for name in sorted(missing)}


@contextmanager
def receiving(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[str | None]:
    """Gives the address of the pipeline's server, started as a process of its own if it does not run, and stopped at the end
    if no other command uses it; None for a pipeline that receives nothing."""
    if pipeline.http is None:
        yield None
        return
    with embedded.use(_server_of(pipeline), settings, report=report) as state:
        yield f"http://{ports.HOST}:{state.port}"


def _server_of(pipeline: Pipeline) -> Embedded:
    name, title = f"{RECEIVER}{pipeline.name}", f"{pipeline.name}'s receiver"

    def launch(settings: Settings, detached: bool, report: Report) -> process.ServiceState:
        usual = _source_of(pipeline).port
        port = embedded.choose_port(title, "", settings, usual=usual, last=None, report=report)
        command = (sys.executable, "-m", "headrace.cli", "receive", pipeline.name, "--port", str(port))
        start = process.Launch(name=name, command=command, folder=settings.folder, environ=os.environ, port=port)
        state = embedded.launch_until_ready(
            settings, start, detached=detached, wait=lambda state: _wait_until_ready(state, title)
        )
        report(f"{title} is ready on http://{ports.HOST}:{port}")
        _tell_what_is_off(pipeline, report)
        return state

    return Embedded(name, title, launch, answers=lambda settings, state: _answers(state.port))


def _tell_what_is_off(pipeline: Pipeline, report: Report) -> None:
    for webhook in _source_of(pipeline).webhooks:
        if Lock.of(webhook, os.environ).is_off:
            report(f"{webhook.path} is off: set {webhook.secret} to turn it on")


def _wait_until_ready(state: process.ServiceState, title: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not _answers(state.port):
        if process.find_process(state) is None:
            lines = embedded.read_log(state).strip().splitlines()
            raise ServiceError(
                f"{title} ended while it started ({lines[-1] if lines else 'its log is empty'})",
                where=state.log,
                next_step=f"Read the log: headrace logs {state.name}",
            )
        if time.monotonic() > deadline:
            raise embedded.no_answer(title, state)
        time.sleep(0.05)


def _answers(port: int) -> bool:
    """Gives back whether a server answers there, also if it answers that Kafka is away."""
    try:
        with urllib.request.urlopen(f"http://{ports.HOST}:{port}/health", timeout=_ANSWER_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _source_of(pipeline: Pipeline) -> HttpSource:
    if pipeline.http is None:
        raise SpecError(
            "the pipeline receives nothing over HTTP",
            where=f"pipeline {pipeline.name}",
            next_step="Add sources: {http: {file: sources/receive.py, port: 9998}} to its pipeline.yml.",
        )
    return pipeline.http
