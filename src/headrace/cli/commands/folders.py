"""Commands for pipeline folders: create one, check it, and write its stage_tables.yaml."""

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
    source: Annotated[str, typer.Option("--from", help="the pipeline to copy")] = "lineage",
) -> None:
    """Create a pipeline in ./pipelines as a copy of another."""
    path = copy_pipeline(source, target_name=name, folder=Path.cwd())
    hint = f"Edit it and delete unused files, then run: headrace check {name}"
    out.print(f"Created {path}. {hint}", highlight=False, soft_wrap=True)


def check(pipeline: Annotated[Optional[str], typer.Argument(metavar="PIPELINE", help="default: all")] = None) -> None:
    """Check pipelines for errors; starts no server."""
    folder = Path.cwd()
    if pipeline:
        checks = [check_pipeline(pipeline, environ=os.environ, folder=folder)]
    else:
        checks = [*check_pipelines(environ=os.environ, folder=folder)]
    checks = [_with_outputs(check) for check in checks]
    for check in checks:
        for error in check.errors:
            err.print(str(error), highlight=False, markup=False, soft_wrap=True)
        if not check.errors:
            out.print(f"{check.name}: OK", highlight=False)
    if any(check.errors for check in checks):
        raise typer.Exit(2)


def _with_outputs(check: Check) -> Check:
    """Return the check, which also covers the `output` of streams if the pipeline sets one."""
    if check.pipeline is None or not any(stream.output for stream in check.pipeline.streams):
        return check
    from headrace.landing.places import check_outputs

    try:
        check_outputs(check.pipeline, home_settings())
    except SpecError as error:
        return Check(check.name, None, (error,))
    return check


def stage_config(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="a pipeline that captures a database")],
    write: Annotated[bool, typer.Option("--write", help="write the file that sources.postgres.stage names")] = False,
    schemas: Annotated[bool, typer.Option("--schemas", help="also write the streams' current schemas")] = False,
) -> None:
    """Print a stage_tables.yaml for a captured database."""
    from headrace.app.stage_config import config_text, live_schemas, write_schemas
    from headrace.spec.loading.stage_config import read_captured

    captured = read_captured(pipeline, environ=os.environ, folder=Path.cwd())
    if write and captured.stage is None:
        raise typer.BadParameter("--write requires a file in pipeline.yml: add stage: stage_tables.yaml to sources.postgres")
    live = live_schemas(settings_here(), captured, report=lambda line: err.print(line, highlight=False, markup=False))
    if schemas:
        with inherited_umask():
            write_schemas(live)
    text = config_text(live)
    if not write or captured.stage is None:
        out.print(text, end="", highlight=False, markup=False, soft_wrap=True)
        return
    with inherited_umask():
        captured.stage.write_text(text, encoding="utf-8")
    for schema in live:
        out.print(f"{schema.stream.name}: {schema.origin}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"Wrote {captured.stage}. Edit it, then run: headrace check {pipeline}", highlight=False, soft_wrap=True)
