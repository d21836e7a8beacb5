"""The stack's object store: S3Proxy, which serves S3 from local files (for its lifecycle see embedded.py).

`<home>/s3/` holds `data/` (a folder per bucket), `port`, and `access-key`, `secret-key` and `server.properties` with both keys;
these three are readable only by their owner. The server listens on 127.0.0.1 only and requires the keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import UnavailableError
from headrace.http.client import ask
from headrace.secret_files import keep_secret, write_privately
from headrace.servers import embedded, ports, process
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.failed_start import signs_in_stack
from headrace.servers.jars import resolve_jars
from headrace.servers.java import SERVER_OPTIONS, SIMPLE_LOG, choose_java, clear_temporary
from headrace.servers.launcher import Launcher
from headrace.settings import Settings

NAME = "s3"
BUCKET = "lake"
REGION = "us-east-1"
_FORBIDDEN = 403
_PROPERTIES = """\
s3proxy.endpoint=http://{host}:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={access_key}
s3proxy.credential={secret_key}
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""


@dataclass(frozen=True)
class Keys:
    """The keys of this home's object store."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return "Keys(…)"


@dataclass(frozen=True)
class ObjectStoreService(RunningService):
    """A running object store; `endpoint` is its S3 endpoint."""

    @property
    def endpoint(self) -> str:
        return f"http://{ports.HOST}:{self.port}"


def running_object_store(settings: Settings) -> ObjectStoreService | None:
    """Return this home's object store if it runs and has been ready, else None."""
    state = embedded.running(SERVER, settings)
    return None if state is None else ObjectStoreService.of(state)


def find_keys(settings: Settings) -> Keys:
    """Return the keys of this home's object store; the first call generates them."""
    folder = settings.home / NAME
    return Keys(keep_secret(folder / "access-key"), keep_secret(folder / "secret-key"))


def _prepare(settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    folder = settings.home / NAME
    clear_temporary(folder)
    (folder / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    (folder / "data" / BUCKET).chmod(0o700)  # S3Proxy makes a bucket public if others may read its folder
    keys = find_keys(settings)
    jars = resolve_jars(NAME, report=report)
    java = choose_java(os.environ).program

    def launch(port: int) -> process.Launch:
        _write_properties(folder, keys, port=port)
        log = "-Dorg.slf4j.simpleLogger.cacheOutputStream=true"  # S3Proxy redirects standard error to its logger
        class_path = os.pathsep.join(map(str, jars))
        options = ("-Xms32m", "-Xmx256m", *SERVER_OPTIONS, *SIMPLE_LOG, log)
        command = (str(java), *options, "-cp", class_path, "org.gaul.s3proxy.Main", "--properties", "server.properties")
        return process.Launch(name=NAME, command=command, folder=folder, environ=os.environ, port=port)

    return launch


def _write_properties(folder: Path, keys: Keys, *, port: int) -> None:
    data = str((folder / "data").resolve()).replace("\\", "\\\\")  # with a relative path it loses parts of uploads
    text = _PROPERTIES.format(host=ports.HOST, port=port, access_key=keys.access_key, secret_key=keys.secret_key, data=data)
    write_privately(folder / "server.properties", text)


def _is_ready(settings: Settings, state: process.ServiceState) -> bool:
    """Return whether the server denies a request without keys, which it does once it is ready."""
    try:
        return ask(f"http://{ports.HOST}:{state.port}/{BUCKET}", timeout=5.0).status == _FORBIDDEN
    except UnavailableError:
        return False


_SIGNS = signs_in_stack(NAME, memory_mb=400)
_LAUNCHER = Launcher(
    NAME,
    "The object store",
    port=lambda settings: 9000,
    prepare=_prepare,
    is_ready=_is_ready,
    signs=lambda home: _SIGNS,
)
SERVER = Embedded(NAME, _LAUNCHER.title, launch=_LAUNCHER, answers=_is_ready)
