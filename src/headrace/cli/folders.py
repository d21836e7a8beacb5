"""Commands about pipeline folders: start one, and find what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

from headrace.cli.shared import err, out
from headrace.spec import check_pipeline, check_pipelines, copy_pipeline


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the new pipeline's name")],
    source: Annotated[str, typer.Option("--from", help="the pipeline to start from")] = "lineage",
) -> None:
    """Copy a pipeline to start from into ./pipelines."""
    path = copy_pipeline(source, target_name=name, folder=Path.cwd())
    out.print(f"{path} is yours to edit. Next: headrace check {name}", highlight=False, soft_wrap=True)


def check(pipeline: Annotated[Optional[str], typer.Argument(metavar="PIPELINE", help="all, if left out")] = None) -> None:
    """Find what is wrong with pipelines, without starting anything."""
    folder = Path.cwd()
    if pipeline:
        checks = [check_pipeline(pipeline, environ=os.environ, folder=folder)]
    else:
        checks = [*check_pipelines(environ=os.environ, folder=folder)]
    for one in checks:
        for error in one.errors:
            err.print(str(error), highlight=False, markup=False, soft_wrap=True)
        if not one.errors:
            out.print(f"{one.name}: nothing is wrong", highlight=False)
    if any(one.errors for one in checks):
        raise typer.Exit(2)
