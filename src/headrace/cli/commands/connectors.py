"""Commands for the connectors that capture the changes of a Postgres."""

from __future__ import annotations

import os
from typing import Annotated, Optional

import typer

from headrace.cli.shared import AsJson, load, out, say, settings_here

connectors = typer.Typer(
    help="Capture a Postgres's changes: connectors register, status …",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Pipeline = Annotated[str, typer.Argument(metavar="PIPELINE", help="a pipeline that captures a Postgres")]
MaybePipeline = Annotated[Optional[str], typer.Argument(metavar="PIPELINE", help="default: all")]


@connectors.command("register")
def register(pipeline: Pipeline) -> None:
    """Register a pipeline's connectors, or update them.

    An existing connector is updated to its template. Services that this starts run until `headrace down`.
    """
    from headrace.sessions.capturing import capture_session, keep_services

    settings, loaded = settings_here(), load(pipeline)
    with capture_session(settings, loaded, report=say) as session:
        keep_services(session)
        session.register()
        session.wait_until_running()


@connectors.command("list")
def list_them(pipeline: MaybePipeline = None, as_json: AsJson = False) -> None:
    """List the connectors of pipelines, and all others in Connect."""
    _show(pipeline, as_json=as_json, brief=True)


@connectors.command("status")
def status(pipeline: MaybePipeline = None, as_json: AsJson = False) -> None:
    """Show connectors: tasks, failures and the lag of slots."""
    _show(pipeline, as_json=as_json, brief=False)


@connectors.command("restart")
def restart(pipeline: Pipeline) -> None:
    """Restart a pipeline's connectors and their tasks."""
    from headrace.sessions.capturing import Capturing, capture_of

    loaded = load(pipeline)
    Capturing(settings_here(), loaded, capture_of(loaded), say).restart()


@connectors.command("delete")
def delete(pipeline: Pipeline) -> None:
    """Delete a pipeline's connectors.

    Deletes their slots, publications and offsets too. Their topics stay in Kafka.
    """
    from headrace.sessions.capturing import capture_session

    with capture_session(settings_here(), load(pipeline), report=say) as session:
        session.delete()


@connectors.command("reset")
def reset(pipeline: Pipeline) -> None:
    """Delete and register connectors, for a new snapshot."""
    from headrace.sessions.capturing import capture_session, keep_services

    settings, loaded = settings_here(), load(pipeline)
    with capture_session(settings, loaded, report=say) as session:
        keep_services(session)
        session.delete()
        session.register()
        session.wait_until_running()


def _show(pipeline: str | None, *, as_json: bool, brief: bool) -> None:
    from headrace.app.watching import load_pipelines
    from headrace.cli.render.status import show_captured
    from headrace.sessions.capturing import read_captured

    settings = settings_here()
    pipelines, _ = load_pipelines([pipeline] if pipeline else [], environ=os.environ, folder=settings.folder)
    show_captured(
        out, [connector for loaded in pipelines for connector in read_captured(settings, loaded)], as_json=as_json, brief=brief
    )
