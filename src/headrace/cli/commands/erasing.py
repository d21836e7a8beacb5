"""The command that erases a person."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from headrace.cli.shared import AsJson, PipelineName, err, load, out, quiet, say, settings_here

if TYPE_CHECKING:
    from headrace.operations.erase.identifiers import Identifiers


def erase(
    pipeline: PipelineName,
    email: Annotated[
        Optional[list[str]],
        typer.Option(help="the person's email; - reads it from stdin, to keep it out of the shell's history"),
    ] = None,
    identity: Annotated[
        Optional[list[str]], typer.Option("--id", metavar="SOURCE:ID", help="an id of the person, such as shopify:706405506")
    ] = None,
    requested: Annotated[
        bool, typer.Option("--requested", help="every person with a pending request, such as customers/redact")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be erased, and change nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="skip the confirmation")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a person from all tables of a pipeline, and prove it.

    Includes old snapshots and the quarantine. Without a person, finishes an interrupted erasure. The exit code is 1 if any data
    of the person is left.
    """
    from headrace.app.board import lines
    from headrace.cli.render.erasure import show_preview, show_proof
    from headrace.operations.erase.forgetting import (
        begin_erasure,
        catch_up,
        erasing_session,
        finish_erasure,
        preview_erasure,
        unfinished_erasures,
    )
    from headrace.sessions.publishing import publishing

    asked = _parse_person(email or [], identity or [])
    settings, loaded = settings_here(), load(pipeline)
    waiting = unfinished_erasures(settings, loaded)
    if not (asked or requested or waiting):
        raise typer.BadParameter("name a person: --email ADDRESS, --id SOURCE:ID or --requested")
    tell = quiet if as_json else say
    published = (lambda done: None) if as_json else lines(say).published
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
            tell(f"finishing the erasure of {note.begun_at:%Y-%m-%d %H:%M} UTC")
            proofs.append(finish_erasure(erasing, note, publish=publish, report=tell))
        unclear: tuple[str, ...] = ()
        if asked or requested:
            if not dry_run:
                catch_up(erasing)
            preview = preview_erasure(erasing, asked, requested=requested)
            unclear = preview.unclear
            if not as_json or dry_run:
                show_preview(out, preview, as_json=as_json)
            if dry_run:
                return
            if preview.persons or preview.repeated:
                if not yes and not typer.confirm("Erase this permanently?"):
                    raise typer.Exit(1)
                proofs.append(finish_erasure(erasing, begin_erasure(erasing, preview), publish=publish, report=tell))
    show_proof(out, settings, proofs, as_json=as_json)
    for sentence in unclear:
        err.print(sentence, highlight=False, markup=False, soft_wrap=True)
    if unclear or not all(proof.holds for proof in proofs):
        raise typer.Exit(1)


def _parse_person(emails: list[str], ids: list[str]) -> list[Identifiers]:
    """Return the person whom these emails and ids identify; all of them belong to one person."""
    from headrace.operations.erase.identifiers import identify

    written = [sys.stdin.readline().strip() if email == "-" else email.strip() for email in emails]
    for address in written:
        if "@" not in address.strip("@"):
            raise typer.BadParameter("an email must contain an @", param_hint="--email")
    pairs = [identity.partition(":") for identity in ids]
    for source, _, value in pairs:
        if not source or not value:
            raise typer.BadParameter("an id must be SOURCE:ID, such as shopify:706405506", param_hint="--id")
    person = identify(emails=written, ids=[(source, value) for source, _, value in pairs])
    return [person] if person else []
