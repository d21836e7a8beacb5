"""A pipeline's own HTTP server: in the foreground until Ctrl-C, or as a process beside other commands that they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from fastapi import FastAPI

from headrace.errors import ServiceError, UnavailableError
from headrace.garbage import freeze_loaded
from headrace.http.client import ask
from headrace.http.server import make_server, run_server
from headrace.servers import embedded, ports, process
from headrace.servers.embedded import Embedded, Report
from headrace.sessions.landing import stop_on_signals
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline

_ANSWER_SECONDS = 5.0


def need_free(port: int, *, pipeline: Pipeline) -> None:
    """Refuse a port that another program has."""
    if not ports.becomes_free(port):
        raise ServiceError(
            f"port {port} is taken{ports.name_holder(port)}",
            where=f"pipeline {pipeline.name}",
            next_step="Stop that program, or choose another port: --port NUMBER",
        )


def serve_app(app: FastAPI, *, port: int) -> None:
    """Answers requests until Ctrl-C or SIGTERM; those that are being answered then are answered first."""
    # What is loaded by now stays: looking through it for garbage would stop every request for a tenth of a second.
    freeze_loaded()
    with stop_on_signals():  # uvicorn raises the signal again that ended it, which must not end what comes after
        run_server(make_server(app, host=ports.HOST, port=port))


def own_server(
    name: str,
    title: str,
    *,
    command: tuple[str, ...],
    usual: int,
    ready: Callable[[Report], None] = lambda report: None,
) -> Embedded:
    """Return the server that a command of ours starts with `--port`: its usual one, or another where that is taken."""

    def launch(settings: Settings, detached: bool, report: Report) -> process.ServiceState:
        port = embedded.choose_port(title, "", settings, usual=usual, last=None, report=report)
        whole = (sys.executable, "-m", "headrace.cli", *command, "--port", str(port))
        start = process.Launch(name=name, command=whole, folder=settings.folder, environ=os.environ, port=port)
        state = embedded.launch_until_ready(
            settings, start, detached=detached, wait=lambda state: _wait_until_ready(state, title)
        )
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

    embedded.wait_until_ready(state, title=title, answers=lambda: _answers(state.port), explain=explain)


def _answers(port: int) -> bool:
    """Return whether a server answers there, also if it answers that what it needs is away."""
    try:
        ask(f"http://{ports.HOST}:{port}/health", timeout=_ANSWER_SECONDS)
    except UnavailableError:
        return False
    return True
