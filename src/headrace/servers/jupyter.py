"""Run JupyterLab for a built-in notebook: on the loopback address, with a token."""

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


def check_jupyter() -> None:
    """Raise a ServiceError if JupyterLab is not installed."""
    if importlib.util.find_spec(_RUNNER) is None:
        raise ServiceError(
            "JupyterLab is not installed", where="headrace notebook", next_step="Run: pip install 'headrace[notebook]'"
        )


def jupyter_command(notebook: Path, *, port: int, opens_browser: bool) -> tuple[str, ...]:
    """Return the command that opens a notebook. JupyterLab generates and prints its token, so the command line has none.

    JupyterLab checks Host, Origin and its XSRF cookie. It can read and run anything, so these flags keep the user's own
    configuration from disabling the checks.
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
        *(("--allow-root",) if os.geteuid() == 0 else ()),  # it answers only on the loopback address and with the token
    )


def exec_jupyter(notebook: Path, *, port: int, opens_browser: bool, environ: Mapping[str, str]) -> NoReturn:
    """Replace this process with JupyterLab, which prints its address with the token and runs until Ctrl-C."""
    command = jupyter_command(notebook, port=port, opens_browser=opens_browser)
    sys.stdout.flush()
    os.execve(command[0], command, dict(environ))
