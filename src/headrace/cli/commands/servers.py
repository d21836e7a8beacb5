"""Commands for the local servers and for Headrace's state."""

from __future__ import annotations

import os
from contextlib import nullcontext
from enum import Enum
from typing import Annotated, Optional

import typer

from headrace.cli.shared import AsJson, home_settings, load, out, quiet, say, say_aside, settings_here, settings_if_up
from headrace.settings import STACK


class Service(str, Enum):
    kafka = "kafka"
    postgres = "postgres"
    connect = "connect"
    registry = "registry"
    trino = "trino"


def up(
    services: Annotated[
        Optional[list[Service]],
        typer.Argument(
            metavar="[kafka|postgres|connect|registry|trino]…", help="default: Kafka and Postgres, or all servers of the stack"
        ),
    ] = None,
) -> None:
    """Start services and leave them running until `headrace down`.

    Creates the topics of the pipelines in this folder. Connect also starts Kafka. Trino is optional, and downloaded on first
    use. With --profile stack, starts all servers of the stack, including S3, the catalog and a Spark cluster.
    """
    from headrace.servers.connect import start_connect
    from headrace.servers.kafka import start_kafka
    from headrace.servers.postgres import start_postgres
    from headrace.servers.registry import start_registry
    from headrace.servers.stack import start_stack
    from headrace.servers.trino import start_trino
    from headrace.sessions.own_topics import make_topics_here

    settings = home_settings()
    if settings.profile == STACK and not services:
        start_stack(settings, report=say)
        make_topics_here(settings_here(), environ=os.environ, folder=settings.folder, report=say)
        return
    starts = {
        "kafka": start_kafka,
        "postgres": start_postgres,
        "connect": start_connect,
        "registry": start_registry,
        "trino": start_trino,
    }
    for service in services or (Service.kafka, Service.postgres):
        reads_lake = service == Service.trino
        starts[service.value](settings_here() if reads_lake else settings, detached=True, report=say)
        if service in (Service.kafka, Service.connect):
            make_topics_here(settings, environ=os.environ, folder=settings.folder, report=say)


def down() -> None:
    """Stop the services and the background generators."""
    from headrace.app.background import stop_background
    from headrace.servers.stack import stop_servers

    settings = home_settings()
    ended = stop_background(settings, target="", report=say) + stop_servers(settings, report=say)
    if not ended:
        say("nothing was running")


def env(
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="print passwords instead of commands that read them from their files")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the services' addresses and logins as shell exports.

    Use it as: eval "$(headrace env)". Passwords stay in their files, from which the shell reads them.
    """
    import json

    from headrace.app.client_settings import list_client_variables

    variables = list_client_variables(home_settings())
    if as_json:
        shown = {
            variable.name: variable.read() if show_secrets or not variable.secret else str(variable.secret)
            for variable in variables
        }
        typer.echo(json.dumps(shown, indent=2))
        return
    for variable in variables:
        typer.echo(variable.as_export(show_secret=show_secrets))
    if not variables:
        say_aside("No service is running. Start one with: headrace up")


def psql(
    pipeline: Annotated[
        Optional[str],
        typer.Argument(metavar="PIPELINE", help="the pipeline whose captured database to open; default: Headrace's own"),
    ] = None,
    command: Annotated[
        Optional[str], typer.Option("--command", "-c", help="run one statement and exit", show_default=False)
    ] = None,
) -> None:
    """Open psql on Headrace's or a captured Postgres database."""
    from headrace.servers.postgres import postgres
    from headrace.servers.psql import open_psql
    from headrace.servers.source_database import ready_database
    from headrace.sessions.capturing import capture_of

    settings = settings_here()
    capture = capture_of(load(pipeline)) if pipeline else None
    with nullcontext("") if capture and capture.url else postgres(settings, report=quiet) as server:
        dsn = ready_database(settings, capture, report=say).dsn if capture else server
        code = open_psql(dsn, ["--pset", "pager=off", "--command", command] if command else [])
    raise typer.Exit(code)


def status(
    pipeline: Annotated[Optional[str], typer.Argument(metavar="PIPELINE", help="default: all")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="also show the phases of each table's last build")] = False,
    as_json: AsJson = False,
) -> None:
    """Show services, and the lag and freshness of tables."""
    from headrace.app.figures import read_now
    from headrace.app.watching import load_pipelines
    from headrace.cli.render.status import show_status
    from headrace.servers.status import list_services
    from headrace.sessions.capturing import read_captured

    settings = settings_if_up()
    pipelines, broken = load_pipelines([pipeline] if pipeline else [], environ=os.environ, folder=settings.folder)
    show_status(
        out,
        list_services(settings),
        read_now(settings, pipelines, report=quiet if as_json else say),
        captured=[connector for loaded in pipelines for connector in read_captured(settings, loaded)],
        broken=broken,
        as_json=as_json,
        verbose=verbose,
    )


def logs(
    service: Annotated[
        str,
        typer.Argument(
            metavar="SERVICE",
            help="kafka, postgres, connect, registry, trino, spark, headrace, landing, build, publishing, maintenance, "
            "a receiver, or a background generator",
        ),
    ] = "kafka",
    lines: Annotated[int, typer.Option(min=1, help="number of lines")] = 50,
) -> None:
    """Print the end of a log."""
    from headrace.servers.status import read_log

    for line in read_log(home_settings(), service, lines):
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def doctor(as_json: AsJson = False) -> None:
    """Check the environment; show where each setting is from."""
    from headrace.cli.render.results import show_findings
    from headrace.operations.doctor import examine, origins_of

    settings = settings_if_up()
    findings = examine(settings, environ=os.environ)
    show_findings(out, findings, origins_of(settings), as_json=as_json)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)


def clean(yes: Annotated[bool, typer.Option("--yes", help="skip the confirmation")] = False) -> None:
    """Stop the services and remove all state.

    Removes Kafka's log, Postgres's data, the warehouse, the catalog and the logs.
    """
    from headrace.app.cleaning import remove_state, state_size

    settings = home_settings()
    if not settings.home.exists():
        say(f"nothing to remove: {settings.home} does not exist")
        return
    if not yes and not typer.confirm(f"Remove {settings.home} ({state_size(settings) >> 20} MB) with all landed data?"):
        raise typer.Exit(1)
    remove_state(settings, report=say)
