"""Commands about pipeline folders: start one, and find what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

from headrace.cli.shared import err, home_settings, out, settings_here
from headrace.errors import SpecError
from headrace.settings.private import inherited_umask
from headrace.spec import Check, check_pipeline, check_pipelines, copy_pipeline


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the new pipeline's name")],
    source: Annotated[str, typer.Option("--from", help="the pipeline to start from")] = "lineage",
) -> None:
    """Copy a pipeline to start from into ./pipelines."""
    path = copy_pipeline(source, target_name=name, folder=Path.cwd())
    out.print(f"{path} is yours to edit. Next: headrace check {name}", highlight=False, soft_wrap=True)


def check(pipeline: Annotated[Optional[str], typer.Argument(metavar="PIPELINE", help="all, if left out")] = None) -> None:
    """Find what is wrong with pipelines, and start nothing."""
    folder = Path.cwd()
    if pipeline:
        checks = [check_pipeline(pipeline, environ=os.environ, folder=folder)]
    else:
        checks = [*check_pipelines(environ=os.environ, folder=folder)]
    checks = [_with_outputs(one) for one in checks]
    for one in checks:
        for error in one.errors:
            err.print(str(error), highlight=False, markup=False, soft_wrap=True)
        if not one.errors:
            out.print(f"{one.name}: nothing is wrong", highlight=False)
    if any(one.errors for one in checks):
        raise typer.Exit(2)


def _with_outputs(one: Check) -> Check:
    """Return a check that has also looked where a pipeline puts its files, if it says that itself."""
    if one.pipeline is None or not any(stream.output for stream in one.pipeline.streams):
        return one
    from headrace.landing.places import check_outputs

    try:
        check_outputs(one.pipeline, home_settings())
    except SpecError as error:
        return Check(one.name, None, (error,))
    return one


def stage_config(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="a pipeline that captures a database")],
    write: Annotated[bool, typer.Option("--write", help="write the file that sources.postgres.stage names")] = False,
    schemas: Annotated[bool, typer.Option("--schemas", help="write the streams' schemas too, as they are now")] = False,
) -> None:
    """Show a stage_tables.yaml of a captured database as it is."""
    from headrace.app.stage_config import config_text, live_schemas, write_schemas
    from headrace.spec.loading.stage_config import read_captured

    captured = read_captured(pipeline, environ=os.environ, folder=Path.cwd())
    if write and captured.stage is None:
        raise typer.BadParameter("pipeline.yml names no file: add stage: stage_tables.yaml to sources.postgres")
    found = live_schemas(settings_here(), captured, report=lambda line: err.print(line, highlight=False, markup=False))
    if schemas:
        with inherited_umask():
            write_schemas(found)
    text = config_text(found)
    if not write or captured.stage is None:
        out.print(text, end="", highlight=False, markup=False, soft_wrap=True)
        return
    with inherited_umask():
        captured.stage.write_text(text, encoding="utf-8")
    for each in found:
        out.print(f"{each.stream.name}: {each.found}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"{captured.stage} is yours to edit. Next: headrace check {pipeline}", highlight=False, soft_wrap=True)
