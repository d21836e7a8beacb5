"""The decorator of functions that take signed webhooks, as a pipeline's file has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard, get_args

from headrace.errors import SpecError
from headrace.spec.model.pipeline import SignatureScheme, Stream, Webhook
from headrace.spec.problems import Place, Problems, suggest

SCHEMES: tuple[SignatureScheme, ...] = get_args(SignatureScheme)
TYPE, EVENT_ID, LOADED_AT = "_webhook_topic", "_event_id", "_loaded_at"
"""Columns that each webhook's event is given: what its sender calls it, its sender's id for it, and when it was taken."""
PAYLOAD = "payload"
"""The column that has all of a webhook of a type that nobody knows, as JSON."""
EXAMPLE = '@webhook("/webhooks/shop", signatures=["stripe"], secret="SHOP_SECRET", streams=["orders"], other="others")'
NEEDS = "webhook needs a path, signatures, a secret, streams and another stream for the rest"
ARGUMENTS = ("path", "signatures", "secret", "streams", "other", "batches")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def read_webhook(
    function: str, given: Mapping[str, object], line: int, *, place: Place, streams: Sequence[Stream], problems: Problems
) -> Webhook:
    """Return the webhook that the decorator's arguments describe. Names that don't exist are kept as problems."""

    def error(what: str, fix: str) -> SpecError:
        return place.error(what, line=line, fix=fix)

    for name in given:
        if name not in ARGUMENTS:
            raise error(f'webhook has no argument "{name}"', f"{suggest(name, ARGUMENTS, plural='Arguments')} Fix the name")
    path, secret, other, batches = given.get("path"), given.get("secret"), given.get("other"), given.get("batches", False)
    signatures, names = given.get("signatures"), given.get("streams")
    if not (isinstance(path, str) and isinstance(secret, str) and isinstance(other, str) and isinstance(batches, bool)):
        raise error(NEEDS, f"Write {EXAMPLE}")
    if not _are_texts(signatures) or not _are_texts(names):
        raise error("webhook needs lists of signatures and of streams", f"Write {EXAMPLE}")
    keep = problems.errors.append
    if not VARIABLE.fullmatch(secret):
        keep(error("secret names the environment variable that has it", 'Write its name, such as secret="SHOP_SECRET"'))
    for signature in signatures:
        if signature not in SCHEMES:
            hint = suggest(signature, SCHEMES, plural="Signatures")
            keep(error(f'there is no signature "{signature}"', f"{hint} Fix the name"))
    for name in (*names, other):
        problems.attempt(_check_stream, name, streams, rest=name == other, error=error)
    chosen = tuple(scheme for signature in signatures for scheme in SCHEMES if scheme == signature)
    return Webhook(function, path, chosen, secret, tuple(names), other, batches)


def _are_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(each, str) for each in value)


def _check_stream(name: str, streams: Sequence[Stream], *, rest: bool, error: Callable[[str, str], SpecError]) -> None:
    found = {each.name: each for each in streams}.get(name)
    if found is None:
        hint = suggest(name, [each.name for each in streams], plural="Streams")
        raise error(f'there is no stream "{name}"', f"{hint} Fix the name")
    if found.format != "json":
        raise error(f'webhooks are JSON, and stream "{name}" is {found.format}', "Write format: json")
    types = {column.name: str(column.type) for column in found.columns}
    needed = {TYPE: "string", EVENT_ID: "string", LOADED_AT: "timestamp"} | ({PAYLOAD: "string"} if rest else {})
    for column, wanted in needed.items():
        if types.get(column) != wanted:
            raise error(f'stream "{name}" needs a column {column}', f"Add {column} {wanted.upper()} to its schema")
