"""Commands that move data: demo, generate, receive, land, build, publish and run."""

from __future__ import annotations

import os
from typing import Annotated, Optional

import typer

from headrace.cli.shared import (
    AsJson,
    PipelineName,
    TableOption,
    TakeOver,
    load,
    load_all,
    out,
    project_here,
    say,
    say_aside,
    settings_here,
    settings_of_demo,
)
from headrace.landing.topic_choice import ReplacedTopic
from headrace.plurals import count_that_are
from headrace.settings import LOCAL, STACK, Settings
from headrace.spec import Pipeline, list_pipelines


def demo(
    pipeline: Annotated[
        Optional[str],
        typer.Argument(
            metavar="PIPELINE", help="the pipeline to show; default: lineage, or on the stack every built-in pipeline"
        ),
    ] = None,
    events: Annotated[int, typer.Option(min=1, help="number of initial events of the busiest stream")] = 1_000,
    leave: Annotated[bool, typer.Option("--exit", help="exit after showing the results")] = False,
) -> None:
    """Run a pipeline end to end on generated events.

    Starts services, generates, lands, builds and queries events. Then it runs live until Ctrl-C on a terminal, and ends if its
    output goes to a file or pipe. With --profile stack, starts the stack if needed, leaves it running, and shows one built-in
    pipeline after the other.
    """
    settings = settings_of_demo()
    if settings.profile != LOCAL:
        say(f"The commands shown below need the profile: export HEADRACE_PROFILE={settings.profile}")
    if pipeline or settings.profile != STACK:
        _show(settings, load(pipeline or "lineage"), events=events, leave=leave)
        return
    for listed in list_pipelines(settings.folder):
        if listed.built_in:
            _show(settings, load(listed.name), events=events, leave=True)
    say("The stack keeps running. See: headrace status --profile stack   Stop it: headrace down --profile stack")


def _show(settings: Settings, loaded: Pipeline, *, events: int, leave: bool) -> None:
    """Show one pipeline, and run it live at the end unless `leave` is set or the output is not a terminal."""
    from headrace.app.board import lines, live_board
    from headrace.app.demo import build_tables, generators, land_events, read_results
    from headrace.app.live import land_and_build
    from headrace.app.manual_change import change_by_hand
    from headrace.app.publish_queue import publish_queue
    from headrace.app.receiving import generate_missing_secrets, receiving
    from headrace.app.seeding import fill_source, seeding, traffic
    from headrace.cli.render.results import show_demo, show_manual_change
    from headrace.sessions.landing import landing_session, stop_on_signals
    from headrace.sessions.publishing import publishing

    os.environ.update(generate_missing_secrets(loaded, os.environ))
    board = lines(say)
    with (
        landing_session(settings, loaded, report=board.report) as session,
        receiving(settings, loaded, report=board.report),
        publishing(settings, loaded, report=board.report, published=board.published) as publisher,
        seeding(settings, loaded, report=board.report) as source,
    ):
        if source is not None:
            fill_source(source, session, report=board.report)
        land_events(session, count=events, landed=board.landed, report=board.report)
        with publish_queue(publisher) as queue:
            build_tables(session, built=queue.after(board.built), report=board.report)
        if publisher is not None:
            publisher.publish()
        show_demo(out, read_results(session), settings=settings, pipeline=loaded)
        if loaded.capture is not None and loaded.capture.by_hand is not None:
            show_manual_change(out, change_by_hand(session, loaded.capture.by_hand, board=board), pipeline=loaded)
        if leave:
            return
        if not out.is_terminal:
            say(f"The demo ends here, because its output is not a terminal. To go on: headrace run {loaded.name}")
            return
        with (
            generators(session),
            traffic(source, report=board.report),
            live_board(out, title=f"{loaded.name}, live") as live,
            stop_on_signals() as stop,
        ):
            land_and_build(session, stop=stop, board=live, publisher=publisher)


def generate(
    target: Annotated[
        Optional[str], typer.Argument(metavar="PIPELINE[.STREAM]", help="the generators to run, or to stop with --stop")
    ] = None,
    rate: Annotated[
        Optional[float],
        typer.Option(min=0, help="events per second; 0: as fast as possible; default: each stream's own", show_default=False),
    ] = None,
    count: Annotated[Optional[int], typer.Option(min=1, help="number of events; default: unlimited")] = None,
    seed: Annotated[Optional[int], typer.Option(help="random seed; the same seed gives the same events")] = None,
    problem: Annotated[
        Optional[list[str]], typer.Option(metavar="NAME=RATE", help="rate of a data-quality problem, from 0 to 1")
    ] = None,
    background: Annotated[bool, typer.Option("--background", help="run in the background until --stop")] = False,
    stop_them: Annotated[bool, typer.Option("--stop", help="stop background generators; default: all")] = False,
) -> None:
    """Send generated events to a pipeline's topics.

    --rate and --count apply to the busiest stream; the other streams scale with it.
    """
    from headrace.app.background import start_background, stop_background
    from headrace.app.generating import generate_all
    from headrace.sessions.landing import stop_on_signals
    from headrace.sources.generators import Rate, read_problems

    settings = settings_here()
    if stop_them:
        if not stop_background(settings, target=target or "", report=say):
            say(f"no background generator{f' of {target}' if target else ''} was running")
        return
    if target is None:
        raise typer.BadParameter("name a pipeline, such as: headrace generate lineage")
    name, _, stream = target.partition(".")
    asked = Rate("own" if rate is None else rate or None, count, seed, read_problems(problem or []))
    loaded = load(name)
    if background:
        start_background(settings, loaded, stream=stream, rate=asked, report=say)
        return
    with stop_on_signals() as stop:
        sent = generate_all(settings, loaded, stream=stream, rate=asked, stop=stop, report=say, console=out)
    say(f"{count_that_are(sent, 'event')} acknowledged by Kafka")


def receive(
    pipeline: PipelineName,
    port: Annotated[Optional[int], typer.Option(min=1, max=65_535, help="override the pipeline's port")] = None,
) -> None:
    """Receive a pipeline's events over HTTP until Ctrl-C.

    A request is answered after Kafka has acknowledged its event.
    """
    from headrace.app.receiving import receive as receive_events

    receive_events(settings_here(), load(pipeline), port=port, report=say)


def serve_seeder(
    pipeline: PipelineName,
    port: Annotated[Optional[int], typer.Option(min=1, max=65_535, help="override the pipeline's port")] = None,
) -> None:
    """Serve a source database's seeder over HTTP until Ctrl-C.

    Its endpoints fill tables, generate traffic and change a schema: see /docs.
    """
    from headrace.app.seeding import seed

    seed(settings_here(), load(pipeline), port=port, report=say)


def land(
    pipeline: PipelineName,
    once: Annotated[bool, typer.Option("--once", help="land all pending messages, then stop")] = False,
    accept_gaps: Annotated[bool, typer.Option("--accept-gaps", help="continue past offsets that Kafka has deleted")] = False,
    replaced_topic: Annotated[
        Optional[ReplacedTopic],
        typer.Option(
            "--replaced-topic",
            help="how to go on after a topic was deleted and created again: restart lands the new topic from its beginning and "
            "keeps the landed rows; continue resumes at the recorded offsets, for a restored or mirrored topic",
        ),
    ] = None,
    take_over: TakeOver = False,
) -> None:
    """Land a pipeline's topics in its raw tables."""
    with project_here() as project:
        project.land(
            pipeline,
            once=once,
            accept_gaps=accept_gaps,
            replaced_topic=replaced_topic.value if replaced_topic else None,
            take_over=take_over,
        )


def run(
    pipelines: Annotated[
        Optional[list[str]], typer.Argument(metavar="PIPELINE", help="pipeline names, or paths of their folders")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="all pipelines of ./pipelines, or the built-in ones if it has none")
    ] = False,
    take_over: TakeOver = False,
) -> None:
    """Land, build and publish pipelines live until Ctrl-C.

    Also runs their HTTP receivers. Several pipelines share one Spark; a pipeline that can't be started is reported, and the
    others run.
    """
    from headrace.app.application import live_pipelines
    from headrace.app.board import live_board
    from headrace.app.live import run_live
    from headrace.sessions.landing import stop_on_signals

    if bool(pipelines) is everything:
        raise typer.BadParameter("name the pipelines, such as: headrace run payments   or pass --all")
    settings = settings_here()
    loaded, broken = load_all(settings) if everything else ([load(name) for name in dict.fromkeys(pipelines or ())], [])
    with live_pipelines(settings, loaded, report=say, take_over=take_over) as (live, failed):
        title = f"{', '.join(run.pipeline.name for run in live)}, live"
        with stop_on_signals() as stop, live_board(out, title=title) as board:
            run_live(live, stop=stop, board=board)
    for error in (*broken, *failed):
        raise error


def build(
    pipeline: PipelineName,
    table: TableOption = None,
    full_refresh: Annotated[bool, typer.Option("--full-refresh", help="rebuild all rows")] = False,
    no_deps: Annotated[
        bool, typer.Option("--no-deps", help="with --table: build that table without its upstream, and report its expectations")
    ] = False,
    alone: Annotated[bool, typer.Option("--alone", hidden=True)] = False,  # the name of 0.1
    as_json: Annotated[
        bool, typer.Option("--json", help="with --no-deps: print the result as JSON, everything else to stderr")
    ] = False,
) -> None:
    """Build the tables of a pipeline whose inputs have changed.

    The exit code is 1 if a table fails.
    """
    if no_deps or alone:
        if table is None:
            raise typer.BadParameter("--no-deps requires --table TABLE")
        _build_without_upstream(pipeline, table, full_refresh=full_refresh, as_json=as_json)
        return
    if as_json:
        raise typer.BadParameter("--json requires --no-deps and --table TABLE")
    from headrace.cli.render.results import nothing_to_build

    with project_here() as project:
        builds = project.build(pipeline, table=table, full_refresh=full_refresh, check=False)
        if not builds:
            say(nothing_to_build(project.pipeline(pipeline)))
    if any(build.state == "failed" for build in builds):
        raise typer.Exit(1)
    if builds and not any(build.state == "built" for build in builds):
        say("nothing has changed since the last build")


def publish(
    pipeline: PipelineName,
    table: Annotated[
        Optional[str], typer.Option("--table", help="one table, by its name in Postgres or in the lake; default: all")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="compare every row, and change each table to the columns and types of its DDL")
    ] = False,
) -> None:
    """Publish a pipeline's tables to Postgres.

    Without --full, publishes only the builds since the last publication.
    """
    with project_here() as project:
        if not project.pipeline(pipeline).serving.postgres:
            say(f"{project.pipeline(pipeline).name} publishes nothing: pipeline.yml has no serving.postgres")
        elif not project.publish(pipeline, table=table, full=full):
            say("Postgres is up to date")


def plan(
    pipeline: PipelineName,
    table: TableOption = None,
    full_refresh: Annotated[bool, typer.Option("--full-refresh", help="plan a rebuild of all rows")] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="explain how each table, or only --table, is built, and which columns locate its rows"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a build would read and write, and why."""
    from headrace.app.explaining import explain_plans
    from headrace.cli.render.results import show_plan
    from headrace.sessions.building import is_meant
    from headrace.sessions.building import plan as plan_tables

    settings, loaded = settings_here(), load(pipeline)
    plans = plan_tables(settings, loaded, table=table, full_refresh=full_refresh)
    selected = [plan for plan in plans if is_meant(plan.table, table)] if explain else []
    explained = {explanation.plan.table.table: explanation for explanation in explain_plans(settings, loaded, selected)}
    show_plan(out, plans, pipeline=loaded, as_json=as_json, explained=explained)


def _build_without_upstream(pipeline: str, table: str, *, full_refresh: bool, as_json: bool) -> None:
    from headrace.app.board import lines
    from headrace.app.building import build_without_upstream
    from headrace.cli.render.results import show_report

    settings, loaded, board = settings_here(), load(pipeline), lines(say_aside if as_json else say)
    report = build_without_upstream(settings, loaded, table=table, full_refresh=full_refresh, board=board)
    if as_json:
        show_report(report)
    if report.problem is not None:
        raise typer.Exit(1)
