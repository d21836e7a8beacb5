"""Run a pipeline's own HTTP server, in the foreground until Ctrl-C or as a process that commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from fastapi import FastAPI

from headrace.errors import ServiceError, UnavailableError
from headrace.garbage import freeze_loaded
from headrace.http.client import ask
from headrace.http.server import make_server, run_server
from headrace.servers import ports, process
from headrace.servers.embedded import Embedded, Report
from headrace.servers.launcher import choose_port, launch_until_ready, wait_until_ready
from headrace.sessions.landing import stop_on_signals
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline

_ANSWER_SECONDS = 5.0


def check_port_free(port: int, *, pipeline: Pipeline) -> None:
    """Raise a ServiceError if another program uses the port."""
    if not ports.becomes_free(port):
        raise ServiceError(
            f"port {port} is taken{ports.describe_holder(port)}",
            where=f"pipeline {pipeline.name}",
            next_step="Stop that program, or choose another port: --port NUMBER",
        )


def serve_app(app: FastAPI, *, port: int) -> None:
    """Answer requests until Ctrl-C or SIGTERM; requests in progress are answered first."""
    # Objects loaded by now are permanent; scanning them in garbage collections would pause all requests for 0.1 s.
    freeze_loaded()
    with stop_on_signals():  # uvicorn raises the signal again after it ended, which must not skip the cleanup
        run_server(make_server(app, host=ports.HOST, port=port))


def own_server(
    name: str,
    title: str,
    *,
    command: tuple[str, ...],
    usual: int,
    ready: Callable[[Report], None] = lambda report: None,
) -> Embedded:
    """Return the server that a Headrace command runs with `--port`: the usual port, or a free one if that is taken."""

    def launch(settings: Settings, detached: bool, report: Report) -> process.ServiceState:
        port = choose_port(title, "", settings, usual=usual, last=None, report=report)
        whole = (sys.executable, "-m", "headrace.cli", *command, "--port", str(port))
        start = process.Launch(name=name, command=whole, folder=settings.folder, environ=os.environ, port=port)
        state = launch_until_ready(settings, start, detached=detached, wait=lambda state: _wait_until_ready(state, title))
        report(f"{title} is ready on http://{ports.HOST}:{port}")
        ready(report)
        return state

    return Embedded(name, title, launch, answers=lambda settings, state: _answers(state.port))


def _wait_until_ready(state: process.ServiceState, title: str) -> None:
    def explain(text: str) -> ServiceError:
        lines = text.strip().splitlines()
        return ServiceError(
            f"{title} ended while it started ({lines[-1] if lines else 'its log is empty'})",
            where=state.log,
            next_step=f"Read the log: headrace logs {state.name}",
        )

    wait_until_ready(state, title=title, answers=lambda: _answers(state.port), explain=explain)


def _answers(port: int) -> bool:
    """Return whether a server answers on the port, even with the status of an outage."""
    try:
        ask(f"http://{ports.HOST}:{port}/health", timeout=_ANSWER_SECONDS)
    except UnavailableError:
        return False
    return True
