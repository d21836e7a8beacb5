"""Open the user's copy of a built-in notebook in JupyterLab."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import NoReturn

from headrace.errors import NotFoundError
from headrace.servers.jupyter import check_jupyter, exec_jupyter
from headrace.settings import Settings

FOLDER = "HEADRACE_NOTEBOOK_FOLDER"
"""The environment variable in which `headrace notebook` passes its working folder."""

_ENDING = ".ipynb"


def list_notebooks() -> tuple[str, ...]:
    """Return the names of the built-in notebooks."""
    files_in_package = (files("headrace") / "notebooks").iterdir()
    return tuple(sorted(file.name.removesuffix(_ENDING) for file in files_in_package if file.name.endswith(_ENDING)))


def copy_notebook(settings: Settings, name: str, *, report: Callable[[str], None]) -> Path:
    """Return the user's copy of a notebook, created on first use and never overwritten."""
    if name not in list_notebooks():
        raise NotFoundError(f'notebook not found: "{name}"', next_step=f"Notebooks are: {', '.join(list_notebooks())}.")
    copy = settings.home / "notebooks" / f"{name}{_ENDING}"
    if copy.exists():
        report(f"Using {copy}; remove it to get a new copy")
        return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    with as_file(files("headrace") / "notebooks" / copy.name) as original:
        shutil.copyfile(original, copy)
    report(f"Created {copy}")
    return copy


def open_notebook(
    settings: Settings,
    name: str,
    *,
    port: int,
    opens_browser: bool,
    environ: Mapping[str, str],
    report: Callable[[str], None],
) -> NoReturn:
    """Replace this process with JupyterLab on the user's copy of a notebook, with the lake of these settings."""
    check_jupyter()
    copy = copy_notebook(settings, name, report=report)
    own = {"HEADRACE_HOME": str(settings.home), FOLDER: str(settings.folder)}
    exec_jupyter(copy, port=port, opens_browser=opens_browser, environ={**environ, **own})
