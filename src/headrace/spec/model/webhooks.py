"""Read the decorator of functions that receive signed webhooks from a pipeline's file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard, get_args

from headrace.errors import SpecError
from headrace.spec.model.pipeline import SignatureScheme, Stream, Webhook
from headrace.spec.problems import Place, Problems, suggest

SCHEMES: tuple[SignatureScheme, ...] = get_args(SignatureScheme)
TYPE, EVENT_ID, LOADED_AT = "_webhook_topic", "_event_id", "_loaded_at"
"""The columns of a webhook's event: the sender's name for its type, the sender's id for it, and when it was received."""
PAYLOAD = "payload"
"""The column that holds the whole webhook as JSON if its type is unknown."""
EXAMPLE = '@webhook("/webhooks/shop", signatures=["stripe"], secret="SHOP_SECRET", streams=["orders"], other="others")'
NEEDS = "webhook needs path, signatures, secret, streams and other"
ARGUMENTS = ("path", "signatures", "secret", "streams", "other", "batches")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def read_webhook(
    function: str, given: Mapping[str, object], line: int, *, place: Place, streams: Sequence[Stream], problems: Problems
) -> Webhook:
    """Return the webhook that the decorator's arguments describe. Unknown names are collected in `problems`."""

    def error(what: str, fix: str) -> SpecError:
        return place.error(what, line=line, fix=fix)

    for name in given:
        if name not in ARGUMENTS:
            raise error(f'unknown argument "{name}" of webhook', f"{suggest(name, ARGUMENTS, plural='Arguments')} Fix the name")
    path, secret, other, batches = given.get("path"), given.get("secret"), given.get("other"), given.get("batches", False)
    signatures, names = given.get("signatures"), given.get("streams")
    if not (isinstance(path, str) and isinstance(secret, str) and isinstance(other, str) and isinstance(batches, bool)):
        raise error(NEEDS, f"Write {EXAMPLE}")
    if not _are_texts(signatures) or not _are_texts(names):
        raise error("signatures and streams of webhook must be lists", f"Write {EXAMPLE}")
    keep = problems.errors.append
    if not VARIABLE.fullmatch(secret):
        keep(error("secret must be the name of an environment variable", 'Write a name such as secret="SHOP_SECRET"'))
    for signature in signatures:
        if signature not in SCHEMES:
            hint = suggest(signature, SCHEMES, plural="Signatures")
            keep(error(f'unknown signature "{signature}"', f"{hint} Fix the name"))
    for name in (*names, other):
        problems.attempt(_check_stream, name, streams, rest=name == other, error=error)
    chosen = tuple(scheme for signature in signatures for scheme in SCHEMES if scheme == signature)
    return Webhook(function, path, chosen, secret, tuple(names), other, batches)


def _are_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(text, str) for text in value)


def _check_stream(name: str, streams: Sequence[Stream], *, rest: bool, error: Callable[[str, str], SpecError]) -> None:
    stream = {known_stream.name: known_stream for known_stream in streams}.get(name)
    if stream is None:
        hint = suggest(name, [known_stream.name for known_stream in streams], plural="Streams")
        raise error(f'not found: stream "{name}"', f"{hint} Fix the name")
    if stream.format != "json":
        raise error(f'webhooks require format: json, and stream "{name}" has format: {stream.format}', "Write format: json")
    types = {column.name: str(column.type) for column in stream.columns}
    needed = {TYPE: "string", EVENT_ID: "string", LOADED_AT: "timestamp"} | ({PAYLOAD: "string"} if rest else {})
    for column, wanted in needed.items():
        if types.get(column) != wanted:
            raise error(f'stream "{name}" needs a column {column}', f"Add {column} {wanted.upper()} to its schema")
