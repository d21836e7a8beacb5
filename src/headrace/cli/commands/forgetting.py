"""The command that erases a person."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from headrace.cli.shared import AsJson, PipelineName, err, load, out, quiet, say, settings_here

if TYPE_CHECKING:
    from headrace.operations.erase.identifiers import Identifiers


def forget(
    pipeline: PipelineName,
    email: Annotated[
        Optional[list[str]], typer.Option(help="the person's email; - reads it from the input, so that no shell remembers it")
    ] = None,
    identity: Annotated[
        Optional[list[str]], typer.Option("--id", metavar="SOURCE:ID", help="an id of the person's, such as shopify:706405506")
    ] = None,
    requested: Annotated[
        bool, typer.Option("--requested", help="all whose requests came in, such as customers/redact")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go, and change nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="don't ask")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a person from all tables of a pipeline, and prove it.

    Their history and the quarantine are included. Without a person it finishes an erasure that was interrupted. The exit code
    is 1 if anything of the person is left.
    """
    from headrace.app.board import lines
    from headrace.cli.render.erasure import show_look, show_proof
    from headrace.operations.erase.forgetting import (
        begin_erasure,
        catch_up,
        erasing_session,
        finish_erasure,
        preview_erasure,
        unfinished_erasures,
    )
    from headrace.sessions.publishing import publishing

    asked = _read_asked(email or [], identity or [])
    settings, loaded = settings_here(), load(pipeline)
    waiting = unfinished_erasures(settings, loaded)
    if not (asked or requested or waiting):
        raise typer.BadParameter("say who: --email ADDRESS, --id SOURCE:ID or --requested")
    tell = quiet if as_json else say
    published = (lambda done: None) if as_json else lines(out).published
    publishes = nullcontext() if dry_run else publishing(settings, loaded, report=tell, published=published)
    with publishes as publisher, erasing_session(settings, loaded, report=tell) as erasing:
        proofs = []

        def publish() -> None:
            if publisher is not None:
                publisher.publish()

        for note in waiting:
            if dry_run:
                err.print(f"an erasure of {note.begun_at:%Y-%m-%d %H:%M} UTC is not finished", highlight=False)
                continue
            tell(f"finishing the erasure that was begun at {note.begun_at:%Y-%m-%d %H:%M} UTC")
            proofs.append(finish_erasure(erasing, note, publish=publish, report=tell))
        unclear: tuple[str, ...] = ()
        if asked or requested:
            if not dry_run:
                catch_up(erasing)
            looked = preview_erasure(erasing, asked, requested=requested)
            unclear = looked.unclear
            if not as_json or dry_run:
                show_look(out, looked, as_json=as_json)
            if dry_run:
                return
            if looked.persons or looked.repeated:
                if not yes and not typer.confirm("Erase this for good?"):
                    raise typer.Exit(1)
                proofs.append(finish_erasure(erasing, begin_erasure(erasing, looked), publish=publish, report=tell))
    show_proof(out, settings, proofs, as_json=as_json)
    for sentence in unclear:
        err.print(sentence, highlight=False, markup=False, soft_wrap=True)
    if unclear or not all(proof.holds for proof in proofs):
        raise typer.Exit(1)


def _read_asked(emails: list[str], ids: list[str]) -> list[Identifiers]:
    """Return who is meant: all that is named is one person's."""
    from headrace.operations.erase.identifiers import identify

    written = [sys.stdin.readline().strip() if each == "-" else each.strip() for each in emails]
    for each in written:
        if "@" not in each.strip("@"):
            raise typer.BadParameter("an email has an @ in it", param_hint="--email")
    pairs = [each.partition(":") for each in ids]
    for source, _, value in pairs:
        if not source or not value:
            raise typer.BadParameter("an id is SOURCE:ID, such as shopify:706405506", param_hint="--id")
    person = identify(emails=written, ids=[(source, value) for source, _, value in pairs])
    return [person] if person else []
