"""Serve the control room until it is stopped."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping, Sequence

from headrace.app.watching import Watch, load_pipelines
from headrace.errors import SettingsError
from headrace.http.server import BACKLOG, make_server, run_server
from headrace.servers.ports import describe_holder
from headrace.servers.postgres import find_postgres
from headrace.servers.status import list_services
from headrace.serving.web.app import make_app
from headrace.serving.web.context import WebContext
from headrace.serving.web.guard import make_lock
from headrace.serving.web.pages import OwnPages, load_pages
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline


def serve(
    settings: Settings,
    names: Sequence[str],
    *,
    host: str,
    port: int,
    environ: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    """Serve on an address until Ctrl-C or SIGTERM. Starts neither Spark nor a server, and writes nothing."""
    lock = make_lock(host, environ)
    pipelines, broken = load_pipelines(names, environ=environ, folder=settings.folder)
    watch = Watch(settings, pipelines)
    context = WebContext(
        pipelines,
        watch.figures,
        watch.catalog,
        watch.topics,
        services=lambda: list_services(settings),
        postgres=lambda: find_postgres(settings),
        broken=broken,
    )
    app = make_app(context, lock, own_pages=load_own_pages(pipelines))
    server = make_server(app)
    with listen(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        report(f"The control room is at http://{shown}:{listening.getsockname()[1]}  (Ctrl-C to stop)")
        try:
            run_server(server, sockets=[listening])
        finally:
            watch.close()


def load_own_pages(pipelines: Sequence[Pipeline]) -> tuple[OwnPages, ...]:
    """Return the pages that pipelines define."""
    return tuple(load_pages(pipeline, pipeline.serving.pages) for pipeline in pipelines if pipeline.serving.pages is not None)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises a SettingsError if the address is not available."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        number = error.errno or 0
        if number < 0 or number == errno.EADDRNOTAVAIL:  # below 0: the name could not be resolved
            raise SettingsError(
                f'"{host}" is not an address of this machine',
                where="--host",
                next_step="Omit --host, or pass an address of this machine.",
            ) from error
        taken = number == errno.EADDRINUSE
        raise SettingsError(
            f"port {port} of {host} is "
            + (f"taken{describe_holder(port)}" if taken else f"not available: {os.strerror(number)}"),
            where="--port",
            next_step="Choose another port, or any free one: headrace serve --port 0",
        ) from error
