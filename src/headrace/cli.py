"""The command `headrace`: each command parses, calls one function and prints."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from headrace import __version__
from headrace.errors import HeadraceError
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, check_pipeline, check_pipelines, copy_pipeline, list_pipelines, load_pipeline

app = typer.Typer(
    name="headrace",
    help="A streaming lakehouse: Kafka topics land exactly once in Apache Iceberg.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# What is piped is not cut to the width of a terminal that isn't there.
out = Console(width=None if sys.stdout.isatty() else 240)
err = Console(stderr=True, width=None if sys.stderr.isatty() else 240)

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="a pipeline's name, or the path of its folder")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
TakeOver = Annotated[bool, typer.Option("--take-over", help="start although another application holds this pipeline")]


def main() -> None:
    """Runs the command line; an error of ours becomes its message and exit code."""
    try:
        app(standalone_mode=True)
    except HeadraceError as error:
        err.print(str(error), style="bold red" if err.is_terminal else None, highlight=False, markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    profile: Annotated[Optional[str], typer.Option(help="the section of headrace.toml to use")] = None,
) -> None:
    if version:
        out.print(__version__, highlight=False)
        raise typer.Exit
    if profile:
        os.environ["HEADRACE_PROFILE"] = profile


@app.command()
def demo(
    pipeline: Annotated[str, typer.Argument(help="the pipeline to show")] = "lineage",
    events: Annotated[int, typer.Option(min=1, help="events to start with, of the stream that sends most often")] = 1_000,
    leave: Annotated[bool, typer.Option("--exit", help="end when the results are shown")] = False,
) -> None:
    """Show a pipeline at work: services, events, landing, queries, then live until Ctrl-C."""
    from headrace.runs.board import lines, live_board
    from headrace.runs.demo import generators, land_events, show_results
    from headrace.runs.landing import land, landing_session, stop_on_signals
    from headrace.show import show_demo

    settings, loaded = _settings(), _pipeline(pipeline)
    board = lines(out)
    with landing_session(settings, loaded, report=board.report) as session:
        land_events(session, count=events, landed=board.landed, report=board.report)
        show_demo(out, *show_results(session), settings=settings, pipeline=loaded)
        if leave or not out.is_terminal:
            return
        with (
            generators(session),
            live_board(out, title=f"{loaded.name}, live") as live,
            stop_on_signals() as stop,
        ):
            land(session, once=False, stop=stop, landed=live.landed, report=live.report, idle=live.idle)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="the new pipeline's name")],
    source: Annotated[str, typer.Option("--from", help="the pipeline to start from")] = "lineage",
) -> None:
    """Copy a pipeline to start from into ./pipelines."""
    path = copy_pipeline(source, target_name=name, folder=Path.cwd())
    out.print(f"{path} is yours to edit. Next: headrace check {name}", highlight=False, soft_wrap=True)


@app.command()
def check(pipeline: Annotated[Optional[str], typer.Argument(metavar="[PIPELINE]", help="all, if left out")] = None) -> None:
    """Find what is wrong with a pipeline folder, without starting anything."""
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


@app.command()
def up() -> None:
    """Start the services and leave them running until `headrace down`."""
    from headrace.services.kafka import start_kafka

    start_kafka(_settings(), detached=True, report=_say)


@app.command()
def down() -> None:
    """Stop the services, and the generators in the background."""
    from headrace.runs.background import stop_background
    from headrace.services.kafka import stop_kafka

    settings = _settings()
    generators = stop_background(settings, target="", report=_say)
    if stop_kafka(settings, report=_say):
        _say("Kafka is stopped")
    elif not generators:
        _say("nothing was running")


@app.command()
def status(
    pipeline: Annotated[Optional[str], typer.Argument(metavar="[PIPELINE]", help="all, if left out")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the services, and how far each stream is."""
    from headrace.runs.inspection import list_streams
    from headrace.services.kafka import running_kafka
    from headrace.services.status import list_services
    from headrace.show import show_status

    settings = _settings()
    names = [pipeline] if pipeline else [found.name for found in list_pipelines(Path.cwd())]
    service = running_kafka(settings)
    servers = settings.kafka_bootstrap_servers or (service.bootstrap_servers if service else None)
    streams = [stream for name in names for stream in list_streams(settings, _pipeline(name), bootstrap_servers=servers)]
    show_status(out, list_services(settings), streams, as_json=as_json)


@app.command()
def logs(
    service: Annotated[str, typer.Argument(help="kafka or spark")] = "kafka",
    lines: Annotated[int, typer.Option(min=1, help="how many of the last lines")] = 50,
) -> None:
    """Print the end of a service's log."""
    from headrace.services.status import read_log

    for line in read_log(_settings(), service, lines):
        out.print(line, highlight=False, markup=False, soft_wrap=True)


@app.command()
def generate(
    target: Annotated[
        Optional[str], typer.Argument(metavar="PIPELINE[.STREAM]", help="which generators to run, or with --stop to stop")
    ] = None,
    rate: Annotated[
        Optional[float],
        typer.Option(min=0, help="events per second; 0: as fast as it can; left out: each stream's own", show_default=False),
    ] = None,
    count: Annotated[Optional[int], typer.Option(min=1, help="how many events; without end, if left out")] = None,
    seed: Annotated[Optional[int], typer.Option(help="the same seed gives the same events")] = None,
    problem: Annotated[
        Optional[list[str]], typer.Option(metavar="NAME=RATE", help="how often a data-quality problem strikes, from 0 to 1")
    ] = None,
    background: Annotated[bool, typer.Option("--background", help="go on in the background until --stop")] = False,
    stop_them: Annotated[bool, typer.Option("--stop", help="stop generators in the background, all if none is named")] = False,
) -> None:
    """Send made-up events to a pipeline's topics. Rate and count are of the stream that sends most often; the others keep
    their proportion to it."""
    from headrace.runs.background import start_background, stop_background
    from headrace.runs.generating import generate_all
    from headrace.runs.landing import stop_on_signals
    from headrace.sources.generators import Rate, read_problems

    settings = _settings()
    if stop_them:
        if not stop_background(settings, target=target or "", report=_say):
            _say("no generator was running in the background")
        return
    if target is None:
        raise typer.BadParameter("name a pipeline, such as: headrace generate lineage")
    name, _, stream = target.partition(".")
    asked = Rate("own" if rate is None else rate or None, count, seed, read_problems(problem or []))
    loaded = _pipeline(name)
    if background:
        start_background(settings, loaded, stream=stream, rate=asked, report=_say)
        return
    with stop_on_signals() as stop:
        sent = generate_all(settings, loaded, stream=stream, rate=asked, stop=stop, report=_say, console=out)
    _say(f"{sent:,} events are acknowledged by Kafka")


@app.command()
def land(
    pipeline: PipelineName,
    once: Annotated[bool, typer.Option("--once", help="land all there is now, then stop")] = False,
    accept_gaps: Annotated[bool, typer.Option("--accept-gaps", help="go on past offsets that Kafka has deleted")] = False,
    take_over: TakeOver = False,
) -> None:
    """Land a pipeline's topics in its raw tables."""
    _land(pipeline, once=once, accept_gaps=accept_gaps, take_over=take_over)


@app.command()
def run(pipeline: PipelineName, take_over: TakeOver = False) -> None:
    """Run a pipeline, live, until Ctrl-C."""
    _land(pipeline, once=False, accept_gaps=False, take_over=take_over)


@app.command()
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help='such as "SELECT count(*) FROM lineage.events"')],
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
) -> None:
    """Ask the lake with SQL (DuckDB)."""
    from headrace.serving.query import run_query
    from headrace.show import show_rows
    from headrace.tables.catalog import open_catalog

    show_rows(out, run_query(open_catalog(_settings()), sql), as_json=as_json, as_csv=as_csv)


@app.command()
def commits(
    pipeline: PipelineName,
    checkpoint: Annotated[Optional[int], typer.Option(min=1, help="only this checkpoint")] = None,
    as_json: AsJson = False,
) -> None:
    """List the data files that the commit log names: committed or orphan, rows, offsets."""
    from headrace.runs.inspection import commits_of
    from headrace.show import show_commits

    show_commits(out, commits_of(_settings(), _pipeline(pipeline), checkpoint_id=checkpoint), as_json=as_json)


@app.command()
def verify(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Hold the lake against the topic, offset by offset; exit 1 if anything is missing or doubled."""
    from headrace.runs.inspection import verify as verify_pipeline
    from headrace.services.kafka import kafka
    from headrace.show import show_verified

    settings, loaded = _settings(), _pipeline(pipeline)
    with kafka(settings, report=_quiet if as_json else _say) as servers:
        found = verify_pipeline(settings, loaded, bootstrap_servers=servers)
    show_verified(out, found, as_json=as_json)
    if not all(stream.holds for stream in found):
        raise typer.Exit(1)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Look at everything Headrace needs, and say where each setting came from."""
    from headrace.runs.doctor import examine, origins_of
    from headrace.show import show_findings

    settings = _settings()
    findings = examine(settings, environ=os.environ)
    show_findings(out, findings, origins_of(settings), as_json=as_json)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)


@app.command()
def clean(yes: Annotated[bool, typer.Option("--yes", help="don't ask")] = False) -> None:
    """Stop the services and remove all state: Kafka's log, the warehouse, the catalog."""
    from headrace.runs.cleaning import remove_state, state_size

    settings = _settings()
    if not settings.home.exists():
        _say(f"there is nothing to remove: {settings.home} does not exist")
        return
    if not yes and not typer.confirm(
        f"Remove {settings.home} ({state_size(settings) >> 20} MB) and all that was landed there?"
    ):
        raise typer.Exit(1)
    remove_state(settings, report=_say)


def _land(name: str, *, once: bool, accept_gaps: bool, take_over: bool) -> None:
    from headrace.runs.board import live_board
    from headrace.runs.landing import land as land_pipeline
    from headrace.runs.landing import landing_session, stop_on_signals

    settings, pipeline = _settings(), _pipeline(name)
    with (
        landing_session(settings, pipeline, report=_say, take_over=take_over) as session,
        stop_on_signals() as stop,
        live_board(out, title=pipeline.name if once else f"{pipeline.name}, live") as board,
    ):
        for label, (partition, start, end) in session.lander.accept_gaps() if accept_gaps else ():
            board.report(f"{label}: gap accepted and recorded: partition {partition}, offsets {start} to {end - 1}")
        land_pipeline(session, once=once, stop=stop, landed=board.landed, report=board.report, idle=board.idle)


def _settings() -> Settings:
    return load_settings(flags={}, environ=os.environ, folder=Path.cwd())


def _pipeline(name: str) -> Pipeline:
    return load_pipeline(name, environ=os.environ, folder=Path.cwd())


def _say(sentence: str) -> None:
    out.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _quiet(sentence: str) -> None:
    pass


if __name__ == "__main__":
    main()
