"""The command that replays messages."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Optional

import typer

from headrace.cli.shared import AsJson, PipelineName, load, out, quiet, say, settings_here
from headrace.plurals import count_of

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]


def replay(
    pipeline: PipelineName,
    since: Annotated[
        Optional[datetime],
        typer.Option("--from", formats=_TIMES, help="messages with a Kafka timestamp from this time on, in UTC"),
    ] = None,
    until: Annotated[
        Optional[datetime],
        typer.Option("--to", formats=_TIMES, help="and before this time; default: up to the last landed message"),
    ] = None,
    table: Annotated[
        Optional[str], typer.Option("--table", help="one raw table, or one table with its upstream raw tables")
    ] = None,
    from_raw: Annotated[bool, typer.Option("--from-raw", help="rebuild tables from the raw tables, without Kafka")] = False,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="decode quarantined messages again with the current schema")
    ] = False,
    reason: Annotated[
        Optional[str], typer.Option(help="with --quarantined: only messages whose reason contains this text")
    ] = None,
    export: Annotated[
        Optional[Path], typer.Option(help="with --quarantined: write the messages to a file of JSON lines, and stop")
    ] = None,
    from_file: Annotated[
        Optional[Path], typer.Option(help="with --quarantined: replay the messages of such a file after you corrected it")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be done, and change no row")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay messages and correct the rows made from them.

    Replaces the rows of each table in one commit, also beside a live run, and rebuilds the downstream tables.
    """
    from headrace.app.board import lines
    from headrace.app.publish_queue import publish_queue
    from headrace.cli.render.replay import show_replayed
    from headrace.iceberg.ledgers.replay import Window
    from headrace.operations.replay.choice import ReplayRequest
    from headrace.operations.replay.refused_messages import export_refused, read_edited
    from headrace.operations.replay.replaying import replay as replay_pipeline
    from headrace.operations.replay.replaying import replaying_session
    from headrace.sessions.publishing import publishing
    from headrace.sessions.retry_policy import for_command

    _check(since, until, from_raw=from_raw, quarantined=quarantined, narrowed=any((reason, export, from_file)))
    settings, loaded = settings_here(), load(pipeline)
    window = None if since is None else Window(_utc(since), None if until is None else _utc(until))
    request = ReplayRequest(window, quarantined, table, reason, read_edited(loaded, from_file) if from_file else None)
    tell, board = (quiet if as_json else say), lines(say)
    if export:
        tell(f"Wrote {count_of(export_refused(settings, loaded, request, export), 'message')} to {export}")
        return
    published = (lambda done: None) if as_json else board.published
    publishes = nullcontext() if dry_run else publishing(settings, loaded, report=tell, published=published)
    with (
        publishes as publisher,
        replaying_session(settings, loaded, needs_kafka=window is not None, report=tell) as replaying,
    ):
        built = (lambda outcome: None) if as_json else board.built
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
        raise typer.BadParameter("pass exactly one of --from TIME, --from-raw and --quarantined")
    if until is not None and (since is None or _utc(until) <= _utc(since)):
        raise typer.BadParameter("--to requires --from and must be later")
    if narrowed and not quarantined:
        raise typer.BadParameter("--reason, --export and --from-file require --quarantined")


def _utc(moment: datetime) -> datetime:
    """Return the time; without a zone it is in UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
