"""The command that submits a pipeline to a cluster."""

from __future__ import annotations

import os
from enum import Enum
from typing import Annotated, Optional

import typer

from headrace.cli.shared import PipelineName, load, say, say_aside, settings_here


class SubmitCommand(str, Enum):
    """The command that the cluster runs."""

    run = "run"
    land = "land"
    build = "build"


def submit(
    pipeline: PipelineName,
    what: Annotated[
        SubmitCommand, typer.Option("--run", help="what the cluster runs: the pipeline live, or landing or a build once")
    ] = SubmitCommand.run,
    profile: Annotated[Optional[str], typer.Option(help="the section of headrace.toml that names the cluster")] = None,
    in_image: Annotated[bool, typer.Option("--in-image", help="on Kubernetes: the pipeline is in the image")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the command and its settings without secrets, and submit nothing")
    ] = False,
) -> None:
    """Submit a pipeline to the cluster of a profile."""
    from headrace.app.submitting import describe, plan_submission
    from headrace.app.submitting import submit as submit_plan

    if profile:
        os.environ["HEADRACE_PROFILE"] = profile
    settings, loaded = settings_here(), load(pipeline)
    planned = plan_submission(settings, loaded, what=what.value, in_image=in_image, environ=os.environ, report=say_aside)
    if dry_run:
        for line in describe(settings, planned):
            say(line)
        return
    code = submit_plan(settings, planned)
    if code:
        raise typer.Exit(code)
