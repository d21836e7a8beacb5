"""Opens a notebook that comes with Headrace, as a copy that is the user's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import NoReturn

from headrace.app.exploring import FOLDER
from headrace.errors import NotFoundError
from headrace.servers.jupyter import become_jupyter, need_jupyter
from headrace.settings import Settings

_ENDING = ".ipynb"


def list_notebooks() -> tuple[str, ...]:
    """Return the names of the notebooks that come with Headrace."""
    found = (files("headrace") / "notebooks").iterdir()
    return tuple(sorted(each.name.removesuffix(_ENDING) for each in found if each.name.endswith(_ENDING)))


def copy_notebook(settings: Settings, name: str, *, report: Callable[[str], None]) -> Path:
    """Return the user's copy of a notebook, made where there is none yet: what they have written in theirs stays."""
    if name not in list_notebooks():
        raise NotFoundError(f'there is no notebook "{name}"', next_step=f"Notebooks are: {', '.join(list_notebooks())}.")
    copy = settings.home / "notebooks" / f"{name}{_ENDING}"
    if copy.exists():
        report(f"{copy} is yours; remove it to start from a new one")
        return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    with as_file(files("headrace") / "notebooks" / copy.name) as original:
        shutil.copyfile(original, copy)
    report(f"{copy} is a copy of your own")
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
    """Become JupyterLab on a copy of a notebook, whose lake is the one of these settings."""
    need_jupyter()
    copy = copy_notebook(settings, name, report=report)
    own = {"HEADRACE_HOME": str(settings.home), FOLDER: str(settings.folder)}
    become_jupyter(copy, port=port, opens_browser=opens_browser, environ={**environ, **own})
