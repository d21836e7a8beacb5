"""The parent process of an embedded server: stops the server when no command uses it any more.

Commands that use the server hold a shared lock on the lease file. The kernel releases a lock when its holder dies, even by
SIGKILL, so once the watchdog gets the exclusive lock, no user is left. A server whose state file names no owner was started by
`headrace up`, and keeps running.

Runs as a script of its own (`python -I -S watchdog.py …`) and imports only the standard library, so that it starts in
milliseconds and stays small. Arguments: a JSON object with report (a file descriptor), lease, state, grace, command, user (or
null), ending (a signal) and gate (or null): the public port, the private port and the file with credentials of gate.py.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

EVERY = 0.2
PORT_TAKEN = "its port is taken"


def main(arguments: dict[str, Any]) -> None:
    report = int(arguments["report"])
    if os.fork() > 0:
        os._exit(0)  # the command has no child to wait for: init adopts this watchdog
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        open_gate(arguments["gate"])
    except OSError as error:
        os.write(report, f"{PORT_TAKEN} ({error})\n".encode())
        return
    try:
        server = subprocess.Popen(arguments["command"], stdin=subprocess.DEVNULL, **as_user(arguments["user"]))
    except OSError as error:
        os.write(report, f"{error}\n".encode())
        return
    os.write(report, f"{server.pid}\n".encode())
    os.close(report)
    ending = signal.Signals(arguments["ending"])
    signal.signal(signal.SIGTERM, lambda *_: server.send_signal(ending))
    lease = os.open(arguments["lease"], os.O_RDWR | os.O_CREAT, 0o644)
    while server.poll() is None:
        if not is_kept(Path(arguments["state"])) and is_unused(lease):
            stop(server, ending, grace=float(arguments["grace"]))
            remove_state(Path(arguments["state"]), pid=server.pid)
            return
        time.sleep(EVERY)
    print(f"headrace: process {server.pid} ended with {server.returncode}", flush=True)
    if server.returncode == 0:  # it finished, such as a generator that has sent all its events
        remove_state(Path(arguments["state"]), pid=server.pid)


def open_gate(wanted: dict[str, Any] | None) -> None:
    """Start the server's HTTP gate in a thread, if it has one. Raises an OSError if its port is taken."""
    if wanted is None:
        return
    gate, rule = load_http_module("gate"), load_http_module("local_requests")
    path = wanted["credentials"]
    credentials = Path(path).read_text(encoding="ascii").strip() if path else None
    listener = gate.listen(wanted["port"])
    gate.start(listener, private_port=wanted["private_port"], check=rule.refuse_foreign, credentials=credentials)


def load_http_module(name: str) -> ModuleType:
    """Return a module of the `http` folder that needs only the standard library; Headrace can't be imported here."""
    spec = importlib.util.spec_from_file_location(f"headrace_{name}", Path(__file__).parent.parent / "http" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def as_user(name: str | None) -> dict[str, Any]:
    """Return the `Popen` arguments that run a child as another user, without this user's groups."""
    return {} if name is None else {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


def is_kept(state: Path) -> bool:
    try:
        return json.loads(state.read_bytes())["owner"] is None
    except (OSError, ValueError, KeyError):
        return False  # not written yet, or damaged: only the lease counts


def is_unused(lease: int) -> bool:
    """Try to take the exclusive lease. Once taken it is kept, so that no command can join a server that is stopping."""
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def stop(server: subprocess.Popen[bytes], ending: signal.Signals, *, grace: float) -> None:
    server.send_signal(ending)
    try:
        server.wait(grace)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def remove_state(state: Path, *, pid: int) -> None:
    try:
        if json.loads(state.read_bytes())["pid"] == pid:
            state.unlink()
    except (OSError, ValueError, KeyError):
        pass


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
