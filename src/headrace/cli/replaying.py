"""The command that reads messages again."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from headrace.cli.shared import AsJson, PipelineName, load, out, quiet, say, settings_here
from headrace.errors import SettingsError

if TYPE_CHECKING:
    from headrace.landing.replay.target import Coordinates
    from headrace.spec import Pipeline

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
    edit: Annotated[
        bool, typer.Option("--edit", help="with --quarantined: mend the messages in $EDITOR, and take what it saves")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done, and change nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Read messages again, and put right what became of them.

    Rows are replaced in one step for each table, beside a live run; what is made of them is written anew.
    """
    from headrace.runs.board import lines
    from headrace.runs.publishing import publishing
    from headrace.runs.replaying import Wanted, refused_rows, replaying_session
    from headrace.runs.replaying import replay as replay_pipeline
    from headrace.show_replay import show_replayed
    from headrace.tables.replay_ledger import Window

    _check(
        since=since, until=until, from_raw=from_raw, quarantined=quarantined, edits=[reason, export, from_file, edit or None]
    )
    settings, loaded = settings_here(), load(pipeline)
    window = None if since is None else Window(_utc(since), _utc(until))
    mended = _read_mended(loaded, from_file) if from_file else None
    wanted = Wanted(window, quarantined, table, reason, mended)
    tell, board = (quiet if as_json else say), lines(out)
    published = (lambda done: None) if as_json else board.published
    changes = not (dry_run or export)
    publishes = publishing(settings, loaded, report=tell, published=published) if changes else nullcontext()
    with (
        publishes as publisher,
        replaying_session(settings, loaded, needs_kafka=window is not None, report=tell) as replaying,
    ):
        if export or edit:
            from headrace.landing.replay.mended import to_lines

            rows = refused_rows(replaying, wanted)
            exported = to_lines(rows) if rows is not None else []
            if export:
                export.write_text("".join(f"{line}\n" for line in exported), encoding="utf-8")
                say(f"{len(exported):,} messages are in {export}")
                return
            wanted = Wanted(None, True, table, reason, _edit(loaded, exported))
        done = replay_pipeline(replaying, wanted, dry_run=dry_run, built=(lambda one: None) if as_json else board.built)
        if publisher is not None:
            publisher.publish()
    show_replayed(out, done, as_json=as_json)
    if not done.holds:
        raise typer.Exit(1)


def _check(
    *, since: datetime | None, until: datetime | None, from_raw: bool, quarantined: bool, edits: list[object | None]
) -> None:
    if [since is not None, from_raw, quarantined].count(True) != 1:
        raise typer.BadParameter("say what: --from TIME, --from-raw or --quarantined")
    if until is not None and (since is None or _utc(until) <= _utc(since)):
        raise typer.BadParameter("--to needs a --from before it")
    if not quarantined and any(each is not None for each in edits):
        raise typer.BadParameter("--reason, --export, --from-file and --edit are for --quarantined")
    if sum(each is not None for each in edits[1:]) > 1:
        raise typer.BadParameter("leave all but one of --export, --from-file and --edit out")


def _utc(moment: datetime | None) -> datetime | None:
    """Gives back a moment; one without a zone is meant in UTC."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=timezone.utc)


def _read_mended(pipeline: Pipeline, path: Path) -> dict[str, dict[Coordinates, bytes]]:
    from headrace.landing.replay.mended import read_lines
    from headrace.sources.encode import encoder_of

    encoders = {f"{pipeline.name}.{each.name}": each for each in pipeline.streams if each.format != "debezium"}

    def encode(stream: str, event: object) -> bytes:
        if stream not in encoders or not isinstance(event, dict):
            raise TypeError("only events of the pipeline's JSON and Avro streams can be encoded")
        return encoder_of(encoders[stream])(event)

    return read_lines(path, encode=encode)


def _edit(pipeline: Pipeline, exported: list[str]) -> dict[str, dict[Coordinates, bytes]]:
    """Gives back what the editor saved; lines that were taken out are left as they are."""
    if not exported:
        return {}
    saved = typer.edit("".join(f"{line}\n" for line in exported), extension=".jsonl")
    if saved is None:
        raise SettingsError("the editor saved nothing", next_step="Nothing was changed.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mended.jsonl"
        path.write_text(saved, encoding="utf-8")
        return _read_mended(pipeline, path)
