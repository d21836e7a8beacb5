"""Commands that read the lake: queries, topics, quality, lineage, history and exports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Optional

import typer

from headrace.cli.shared import AsJson, PipelineName, load, out, project_here, quiet, refuse_both, say, settings_here
from headrace.errors import SettingsError
from headrace.serving.sql.engines.names import Engine
from headrace.settings.private import inherited_umask


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help='such as "SELECT count(*) FROM lineage.events"')],
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    engine: Annotated[Engine, typer.Option(help="the query engine; each has its own SQL dialect")] = Engine.duckdb,
    at: Annotated[
        Optional[str],
        typer.Option("--at", metavar="WHEN", help="read tables as of a time (UTC without offset) or a snapshot id"),
    ] = None,
) -> None:
    """Query the lake with SQL, on any of six engines.

    Spark takes a few seconds to start. Trino starts for the query, unless headrace up trino runs it.
    """
    refuse_both(json=as_json, csv=as_csv)
    from headrace.cli.render.results import show_rows

    with project_here(report=quiet if as_json or as_csv else say) as project:
        show_rows(out, project.query(sql, engine=engine.value, at=at).to_arrow(), as_json=as_json, as_csv=as_csv)


def serve(
    pipelines: Annotated[Optional[list[str]], typer.Argument(metavar="PIPELINE", help="default: all")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port to listen on; 0 chooses a free one")] = 3000,
    host: Annotated[
        str, typer.Option(help="the address to listen on; a non-loopback address requires HEADRACE_TOKEN")
    ] = "127.0.0.1",
) -> None:
    """Serve the control room: live pipelines in a browser."""
    from headrace.app.serving import serve as serve_pages

    serve_pages(settings_here(), pipelines or [], host=host, port=port, environ=os.environ, report=say)


def quality(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """List expectations: rows failing now and in the last build."""
    from headrace.cli.render.results import show_quality

    with project_here() as project:
        show_quality(out, project.quality(pipeline), pipeline=project.pipeline(pipeline), as_json=as_json)


def topics(
    name: Annotated[Optional[str], typer.Argument(metavar="TOPIC", help="default: all")] = None,
    last: Annotated[int, typer.Option(min=0, max=1000, help="number of messages of TOPIC")] = 5,
    partition: Annotated[Optional[int], typer.Option(min=0, help="only messages of this partition")] = None,
    offset: Annotated[
        Optional[int], typer.Option(min=0, help="messages of the partition from this offset on; default: the newest")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show topics: offsets, lag, schemas and decoded messages.

    Reads committed messages only, joins no consumer group and starts no broker.
    """
    if name is None and (partition, offset) != (None, None):
        raise SettingsError("--partition and --offset require a topic", next_step="Name it: headrace topics TOPIC")
    from headrace.app.topics import open_topics
    from headrace.app.watching import load_pipelines
    from headrace.cli.render.topics import show_topic, show_topics
    from headrace.serving.web.topics import Wanted

    settings = settings_here()
    pipelines, broken = load_pipelines([], environ=os.environ, folder=settings.folder)
    for broken_name in broken:
        (quiet if as_json else say)(f"{broken_name} can't be loaded and is left out; see: headrace check {broken_name}")
    service = open_topics(settings, pipelines)
    if name is None:
        show_topics(out, service.all(), as_json=as_json)
        return
    messages = service.messages(name, Wanted(last, partition, offset)) if last else ()
    show_topic(out, service.one(name), service.schemas(name), messages, as_json=as_json)


def notebook(
    name: Annotated[str, typer.Argument(metavar="NOTEBOOK", help="a notebook that comes with Headrace")] = "storefront",
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="the port to listen on; if it is taken, the next free one")
    ] = 8888,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="print the address and open no browser")] = False,
) -> None:
    """Open a notebook on the lake in JupyterLab.

    Headrace copies the notebook to its home once and never overwrites your copy.
    """
    from headrace.app.notebook import open_notebook

    opens_browser = not no_browser
    open_notebook(settings_here(), name, port=port, opens_browser=opens_browser, environ=os.environ, report=say)


def lineage(
    pipeline: PipelineName,
    target: Annotated[
        Optional[str],
        typer.Argument(metavar="TABLE[.COLUMN]", help="what to trace upstream and downstream; default: all tables"),
    ] = None,
    as_json: AsJson = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="print a Mermaid flowchart")] = False,
) -> None:
    """Show the upstream and downstream of a table or column.

    Traces from topic to mart, and starts no server.
    """
    refuse_both(json=as_json, mermaid=as_mermaid)
    from headrace.cli.render.lineage import show_lineage
    from headrace.spec.sql.lineage import trace_lineage

    traced = trace_lineage(load(pipeline))
    show_lineage(out, traced, traced.find(target) if target else None, as_json=as_json, as_mermaid=as_mermaid)


def export_dbt(
    pipeline: PipelineName,
    into: Annotated[
        Optional[Path], typer.Option(help="the project's folder; default: dbt/PIPELINE", show_default=False)
    ] = None,
    dialect: Annotated[str, typer.Option(metavar="duckdb|spark", help="the engine that dbt runs on")] = "duckdb",
) -> None:
    """Write a dbt project of a pipeline: sources, models and tests."""
    from headrace.export.dbt_project import export_project

    loaded = load(pipeline)
    folder = into or Path("dbt") / loaded.name
    settings = settings_here()
    with inherited_umask():
        for sentence in export_project(settings, loaded, folder=folder, dialect=dialect):
            say(sentence)


def export_airflow(
    pipeline: PipelineName,
    into: Annotated[Path, typer.Option(help="the folder for the DAG's file")] = Path("dags"),
    dag: Annotated[
        Optional[str], typer.Option(metavar="NAME", help="the DAG's id; default: the pipeline's name", show_default=False)
    ] = None,
    schedule: Annotated[
        Optional[str],
        typer.Option(metavar="CRON", help="such as @hourly; default: only when triggered", show_default=False),
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="number of retries of a failed task")] = 2,
    land_first: Annotated[bool, typer.Option("--land", help="land all pending messages before building")] = False,
) -> None:
    """Write an Airflow DAG for a pipeline: one task per table."""
    from headrace.export.airflow import DagSettings, export_dag

    loaded = load(pipeline)
    asked = DagSettings(dag or loaded.name, pipeline, schedule=schedule, retries=retries, land_first=land_first)
    settings = settings_here()
    with inherited_umask():
        for sentence in export_dag(settings, loaded, asked, into=into):
            say(sentence)


def export_dagster(
    pipeline: PipelineName,
    into: Annotated[Path, typer.Option(help="the folder for the file of definitions")] = Path("defs"),
    name: Annotated[
        Optional[str], typer.Option(help="the job's name; default: the pipeline's name", show_default=False)
    ] = None,
    schedule: Annotated[str, typer.Option(metavar="CRON", help="the schedule, once it is turned on in Dagster")] = "@hourly",
    retries: Annotated[int, typer.Option(min=0, help="number of retries of a failed asset")] = 2,
    land_first: Annotated[bool, typer.Option("--land", help="land all pending messages before building")] = False,
) -> None:
    """Write Dagster definitions for a pipeline: one asset per table."""
    from headrace.export.dagster import DagsterSettings, export_definitions

    loaded = load(pipeline)
    asked = DagsterSettings(name or loaded.name, pipeline, schedule=schedule, retries=retries, land_first=land_first)
    settings = settings_here()
    with inherited_umask():
        for sentence in export_definitions(settings, loaded, asked, into=into):
            say(sentence)


def commits(
    pipeline: PipelineName,
    checkpoint: Annotated[Optional[int], typer.Option(min=1, help="only this checkpoint")] = None,
    as_json: AsJson = False,
) -> None:
    """List the commit log's files: committed or orphan, offsets."""
    from headrace.cli.render.results import show_commits
    from headrace.operations.verify.inspection import commits_of

    show_commits(out, commits_of(settings_here(), load(pipeline), checkpoint_id=checkpoint), as_json=as_json)


def verify(
    pipeline: PipelineName,
    as_json: AsJson = False,
    wait: Annotated[float, typer.Option(min=1, help="seconds to wait for the lake to catch up with Postgres")] = 300.0,
) -> None:
    """Compare the lake with its topics and with Postgres.

    Compares topics offset by offset, and captured and published tables row by row. The exit code is 1 if a row is missing,
    duplicated or different.
    """
    from headrace.cli.render.results import show_verified

    with project_here(report=quiet if as_json else say) as project:
        verification = project.verify(pipeline, wait=wait)
    show_verified(out, verification.streams, verification.tables, as_json=as_json)
    if not verification.holds:
        raise typer.Exit(1)
