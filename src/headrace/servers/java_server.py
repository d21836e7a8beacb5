"""Start a server of the stack that is a Java program: choose its port, wait for it, and explain a failed start."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServiceError
from headrace.servers import embedded, ports, process
from headrace.servers.embedded import Report
from headrace.servers.kafka_server import find_error_line
from headrace.settings import Settings

PORT_TAKEN = "its port is taken"


@dataclass(frozen=True)
class JavaServer:
    """A Java server: its name in state files, its title in messages, its default port and its maximum memory.

    `answers` returns whether the server answers on a port, given the home's settings.
    """

    name: str
    title: str
    port: int
    memory_mb: int
    answers: Callable[[Settings, int], bool]


def start_server(
    server: JavaServer,
    settings: Settings,
    *,
    command: Callable[[int], Sequence[str]],
    environ: Mapping[str, str],
    detached: bool,
    report: Report,
) -> process.ServiceState:
    """Start a server and return its state once it answers.

    `command` returns the command line for a port, and may write the server's files.
    """
    folder = settings.home / server.name
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)

    def choose() -> int:
        last = embedded.last_port(folder)
        title, setting = _in_a_sentence(server.title), f"{server.name}.port"
        return embedded.choose_port(title, setting, settings, usual=server.port, last=last, report=report)

    port = choose()
    report(f"{server.title} is starting")
    began = time.monotonic()

    def wait(state: process.ServiceState) -> None:
        embedded.wait_until_ready(
            state,
            title=server.title,
            answers=lambda: server.answers(settings, state.port),
            explain=lambda text: _explain_failure(server, text, log=Path(state.log)),
            pause=0.1,
        )

    def start(port: int) -> process.ServiceState:
        launch = process.Launch(
            name=server.name,
            command=tuple(command(port)),
            folder=folder,
            environ={**os.environ, **environ},
            port=port,
        )
        return embedded.launch_until_ready(settings, launch, detached=detached, wait=wait)

    state = embedded.retry_start(start, port=port, choose=choose, retryable=[PORT_TAKEN])
    embedded.save_port(folder, state.port)
    report(f"{server.title} is ready on {ports.HOST}:{state.port} ({time.monotonic() - began:.1f} s)")
    return state


def _explain_failure(server: JavaServer, text: str, *, log: Path) -> ServiceError:
    """Return the error for a server that ended during its start, from its log."""
    if "Address already in use" in text or "BindException" in text:
        what, step = PORT_TAKEN, "Run the command again."
    elif "OutOfMemoryError" in text or "Could not reserve enough space" in text:
        what, step = "not enough memory", f"End other programs: it takes up to {server.memory_mb} MB."
    else:
        what, step = "it ended during its start", f"Read the log: headrace --profile stack logs {server.name}"
    return ServiceError(f"{server.title} did not start: {what} ({find_error_line(text)})", where=str(log), next_step=step)


def _in_a_sentence(title: str) -> str:
    return f"the {title.removeprefix('The ')}" if title.startswith("The ") else title
