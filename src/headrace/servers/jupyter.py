"""JupyterLab for a notebook of ours: on this machine alone, with a token, until it is stopped."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from headrace.errors import ServiceError
from headrace.servers.ports import HOST

_RUNNER = "jupyterlab"


def need_jupyter() -> None:
    """Refuse where JupyterLab is not installed."""
    if importlib.util.find_spec(_RUNNER) is None:
        raise ServiceError(
            "JupyterLab is not installed", where="headrace notebook", next_step="Run: pip install 'headrace[notebook]'"
        )


def jupyter_command(notebook: Path, *, port: int, opens_browser: bool) -> tuple[str, ...]:
    """Return the command that opens a notebook. JupyterLab generates a token and prints it; the command has none.

    JupyterLab checks Host, Origin and its XSRF cookie. These flags keep a configuration of the user's from relaxing that: this
    server can read and run anything.
    """
    return (
        sys.executable,
        "-m",
        _RUNNER,
        f"--LabApp.default_url=/lab/tree/{notebook.name}",
        f"--ServerApp.ip={HOST}",
        f"--ServerApp.port={port}",
        f"--ServerApp.root_dir={notebook.parent}",
        "--ServerApp.allow_remote_access=False",
        "--ServerApp.allow_origin=",
        "--ServerApp.allow_origin_pat=",
        "--ServerApp.disable_check_xsrf=False",
        *(() if opens_browser else ("--no-browser",)),
        *(("--allow-root",) if os.geteuid() == 0 else ()),  # it answers this machine alone, and only with the token
    )


def become_jupyter(notebook: Path, *, port: int, opens_browser: bool, environ: Mapping[str, str]) -> NoReturn:
    """Turn this process into JupyterLab, which says its address with the token and end with Ctrl-C."""
    command = jupyter_command(notebook, port=port, opens_browser=opens_browser)
    sys.stdout.flush()
    os.execve(command[0], command, dict(environ))
