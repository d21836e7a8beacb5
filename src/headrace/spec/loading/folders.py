"""Where pipelines are: at a path, in ./pipelines, or among those that come with Headrace."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SpecError
from headrace.spec.problems import show_path, suggest

FILE = "pipeline.yml"
OWN = "pipelines"
BUILT_IN = Path(__file__).resolve().parents[2] / "pipelines"


@dataclass(frozen=True)
class PipelineFolder:
    name: str
    path: Path
    built_in: bool


def list_pipelines(folder: Path) -> tuple[PipelineFolder, ...]:
    """Return the pipelines that have a name here, by name; one of ./pipelines hides a built-in one."""
    found: dict[str, PipelineFolder] = {}
    for parent, built_in in ((BUILT_IN, True), (absolute(folder) / OWN, False)):
        for file in sorted(parent.glob(f"*/{FILE}")):
            found[file.parent.name] = PipelineFolder(file.parent.name, file.parent, built_in)
    return tuple(found[name] for name in sorted(found))


def find_pipeline(name_or_path: str, *, folder: Path, to_copy: bool = False) -> Path:
    """Return the folder of a pipeline: the path if it is one, else ./pipelines/<name>, else the built-in one.

    Who looks for one `to_copy` is starting one, and is not told how.
    """
    path = absolute(folder / name_or_path)
    if path.name == FILE and path.is_file():
        return path.parent
    if name_or_path and (path / FILE).is_file():
        return path
    if os.sep in name_or_path or "/" in name_or_path or name_or_path in (".", ".."):
        raise SpecError(
            f"there is no {FILE} here",
            where=show_path(path, folder=absolute(folder)),
            next_step="Give the folder of a pipeline, or start one: headrace new <name>",
        )
    pipelines = list_pipelines(folder)
    for each in pipelines:
        if each.name == name_or_path:
            return each.path
    own = absolute(folder) / OWN / name_or_path
    if name_or_path and own.is_dir():
        raise SpecError(
            f"the folder is there, and no {FILE} in it",
            where=show_path(own, folder=absolute(folder)),
            next_step=f"Put {FILE} back, or remove the folder and start again: headrace new {name_or_path}",
        )
    hint = suggest(name_or_path, [each.name for each in pipelines], plural="Pipelines")
    more = "" if to_copy else f" Or start your own: headrace new {name_or_path}"
    raise SpecError(f'there is no pipeline "{name_or_path}"', where="--from" if to_copy else "", next_step=f"{hint}{more}")


def absolute(path: Path) -> Path:
    """Return the path from the root, with its symbolic links as they are: a pipeline's folder keeps its name."""
    return Path(os.path.abspath(path))
