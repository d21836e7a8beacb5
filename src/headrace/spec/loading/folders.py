"""Find pipelines: by path, in ./pipelines, or among the built-in ones."""

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
    """Return the pipelines that can be referred to by name, sorted. A pipeline in ./pipelines hides a built-in one."""
    pipelines: dict[str, PipelineFolder] = {}
    for parent, built_in in ((BUILT_IN, True), (absolute(folder) / OWN, False)):
        for file in sorted(parent.glob(f"*/{FILE}")):
            pipelines[file.parent.name] = PipelineFolder(file.parent.name, file.parent, built_in)
    return tuple(pipelines[name] for name in sorted(pipelines))


def find_pipeline(name_or_path: str, *, folder: Path, to_copy: bool = False) -> Path:
    """Return the folder of a pipeline: the path if it is one, else ./pipelines/<name>, else the built-in pipeline.

    With `to_copy`, the error does not suggest `headrace new`, since that is the command that asks.
    """
    path = absolute(folder / name_or_path)
    if path.name == FILE and path.is_file():
        return path.parent
    if name_or_path and (path / FILE).is_file():
        return path
    if os.sep in name_or_path or "/" in name_or_path or name_or_path in (".", ".."):
        raise SpecError(
            f"not found: {FILE}",
            where=show_path(path, folder=absolute(folder)),
            next_step="Pass the folder of a pipeline, or create one: headrace new <name>",
        )
    pipelines = list_pipelines(folder)
    for pipeline in pipelines:
        if pipeline.name == name_or_path:
            return pipeline.path
    own = absolute(folder) / OWN / name_or_path
    if name_or_path and own.is_dir():
        raise SpecError(
            f"the pipeline's folder has no {FILE}",
            where=show_path(own, folder=absolute(folder)),
            next_step=f"Write {FILE}, or remove the folder and run: headrace new {name_or_path}",
        )
    hint = suggest(name_or_path, [pipeline.name for pipeline in pipelines], plural="Pipelines")
    more = "" if to_copy else f" Or create it: headrace new {name_or_path}"
    if not to_copy and not (absolute(folder) / OWN).is_dir():
        more += f". Your own pipelines are looked up in ./{OWN} of the working folder, which does not exist"
    raise SpecError(f'not found: pipeline "{name_or_path}"', where="--from" if to_copy else "", next_step=f"{hint}{more}")


def absolute(path: Path) -> Path:
    """Return the absolute path without resolving symbolic links: a pipeline's folder keeps its name."""
    return Path(os.path.abspath(path))
