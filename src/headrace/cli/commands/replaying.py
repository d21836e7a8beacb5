"""The command that reads messages again."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Optional

import typer

from headrace.cli.shared import AsJson, PipelineName, load, out, quiet, say, settings_here

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]


def replay(
    pipeline: PipelineName,
    since: Annotated[
        Optional[datetime], typer.Option("--from", formats=_TIMES, help="Kafka's timestamps from this time on, in UTC")
    ] = None,
    until: Annotated[
        Optional[datetime], typer.Option("--to", formats=_TIMES, help="and before this one; without it, all that was landed")
    ] = None,
    table: Annotated[
        Optional[str], typer.Option("--table", help="one raw table, or one table with the raw tables that it is made of")
    ] = None,
    from_raw: Annotated[
        bool, typer.Option("--from-raw", help="no Kafka: write tables anew from the raw tables as they are")
    ] = False,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="decode again what was refused, with the schema of now")
    ] = False,
    reason: Annotated[
        Optional[str], typer.Option(help="with --quarantined: only what was refused for a reason that has this in it")
    ] = None,
    export: Annotated[
        Optional[Path], typer.Option(help="with --quarantined: write the messages to a file of JSON lines, and stop")
    ] = None,
    from_file: Annotated[
        Optional[Path], typer.Option(help="with --quarantined: take the bytes of such a file, mended by hand")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done, and change no row")] = False,
    as_json: AsJson = False,
) -> None:
    """Read messages again, and put right what became of them.

    Rows are replaced in one step for each table, beside a live run; what is made of them is written anew.
    """
    from headrace.app.board import lines
    from headrace.app.publish_queue import publish_queue
    from headrace.cli.render.replay import show_replayed
    from headrace.iceberg.ledgers.replay import Window
    from headrace.operations.replay.choice import ReplayRequest
    from headrace.operations.replay.mending import export_refused, read_mended
    from headrace.operations.replay.replaying import replay as replay_pipeline
    from headrace.operations.replay.replaying import replaying_session
    from headrace.sessions.publishing import publishing
    from headrace.sessions.retry_policy import for_command

    _check(since, until, from_raw=from_raw, quarantined=quarantined, narrowed=any((reason, export, from_file)))
    settings, loaded = settings_here(), load(pipeline)
    window = None if since is None else Window(_utc(since), None if until is None else _utc(until))
    request = ReplayRequest(window, quarantined, table, reason, read_mended(loaded, from_file) if from_file else None)
    tell, board = (quiet if as_json else say), lines(out)
    if export:
        tell(f"{export_refused(settings, loaded, request, export):,} messages are in {export}")
        return
    published = (lambda done: None) if as_json else board.published
    publishes = nullcontext() if dry_run else publishing(settings, loaded, report=tell, published=published)
    with (
        publishes as publisher,
        replaying_session(settings, loaded, needs_kafka=window is not None, report=tell) as replaying,
    ):
        built = (lambda one: None) if as_json else board.built
        retry_policy = for_command("replay", report=tell)
        with publish_queue(publisher) as queue:
            done = replay_pipeline(replaying, request, dry_run=dry_run, built=queue.after(built), retry_policy=retry_policy)
        if publisher is not None:
            publisher.publish()
    show_replayed(out, done, as_json=as_json)
    if not done.holds:
        raise typer.Exit(1)


def _check(since: datetime | None, until: datetime | None, *, from_raw: bool, quarantined: bool, narrowed: bool) -> None:
    if [since is not None, from_raw, quarantined].count(True) != 1:
        raise typer.BadParameter("say what, and one of them alone: --from TIME, --from-raw or --quarantined")
    if until is not None and (since is None or _utc(until) <= _utc(since)):
        raise typer.BadParameter("--to is the end of a time that --from begins: give both, --to the later one")
    if narrowed and not quarantined:
        raise typer.BadParameter("--reason, --export and --from-file are for --quarantined")


def _utc(moment: datetime) -> datetime:
    """Return a moment; one without a zone is meant in UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
