"""Other tools in separate environments, installed once from a lock file, and their processes."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

CACHE = Path(__file__).resolve().parents[2] / ".cache"


def install_tool(title: str, *, lock: Path, cost: str) -> Path:
    """Return the folder of a tool's environment, which is installed once from its lock file."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = CACHE / f"{title.lower()}-{version}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not (folder / "installed").exists():
        print(f"Setting up an environment for {title} (once, {cost})", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        subprocess.run([folder / "bin/python", "-m", "pip", *install, "-r", lock], check=True)
        (folder / "installed").touch()
    return folder


@contextmanager
def running_parts(commands: Mapping[str, Sequence[str | Path]], *, home: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Run a tool's processes in `home`, each with a log file of its name. They end with the block."""
    parts: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in commands.items():
            with (home / f"{name}.txt").open("wb") as output:
                started = subprocess.Popen(
                    [*command], env=dict(environ), cwd=home, stdout=output, stderr=output, start_new_session=True
                )
            parts.append(started)
        yield
    finally:
        _end(parts)


def _end(parts: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate the processes, and kill the remaining ones."""
    children = [child for part in parts if part.poll() is None for child in psutil.Process(part.pid).children(recursive=True)]
    for part in parts:
        part.send_signal(signal.SIGTERM)
    psutil.wait_procs([psutil.Process(part.pid) for part in parts if part.poll() is None], timeout=20)
    for part in parts:
        part.kill()
        part.wait()
    _, alive = psutil.wait_procs(children, timeout=5)
    for child in alive:
        child.kill()
