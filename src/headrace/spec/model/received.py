"""The decorators of functions that take events over HTTP, and what those are given and return."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from headrace.spec.model.pipeline import Method, SignatureScheme

F = TypeVar("F", bound=Callable[..., object])
_NULL = b"null"
_TEXT = msgspec.json.Decoder(str)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True)
class Received:
    """What became of a request: the event for the topic, and the answer that is given once Kafka has acknowledged it."""

    event: Mapping[str, object]
    answer: Mapping[str, object]


def receive(path: str, stream: str, *, method: Method = "GET") -> Callable[[F], F]:
    """Mark a function as a receiver of a pipeline's HTTP source.

    Its parameters are those of a FastAPI handler; `now` is given the moment of the request. It returns a `Received`. The
    function stays as it is, so that it can be called in a test. The arguments are read from the file itself, so that
    `headrace check` need not run it.
    """
    return lambda function: function


class PayloadError(ValueError):
    """A payload that a webhook can't take: one sentence for its sender, who hears it with a 400."""


@dataclass(frozen=True)
class Payload:
    """A JSON object, as it was written and by its fields, whose values too are as they were written: no digit is lost."""

    written: bytes
    fields: Mapping[str, msgspec.Raw]

    def text(self, name: str) -> str | None:
        """Return a value as text: a string's own, and of anything else its JSON; None where it is null or missing."""
        raw = bytes(self.fields.get(name, _NULL))
        if raw == _NULL:
            return None
        return _TEXT.decode(raw) if raw.startswith(b'"') else raw.decode("utf-8")

    def inner(self, name: str) -> Payload:
        """Return the object under a name, or an empty one where there is none."""
        raw = bytes(self.fields.get(name, _NULL))
        return read_payload(raw if raw.startswith(b"{") else b"{}")

    @property
    def digest(self) -> str:
        """An id for a payload that has none: what is sent again has the same."""
        return f"sha256:{hashlib.sha256(self.written).hexdigest()}"


def read_payload(written: bytes) -> Payload:
    """Return the payload; what is no JSON object is msgspec's DecodeError."""
    return Payload(written, _OBJECT.decode(written))


@dataclass(frozen=True)
class Delivery:
    """A webhook as it was sent, by one who knows the secret. Names of `headers` are in lower case."""

    headers: Mapping[str, str]
    body: bytes
    at: datetime


@dataclass(frozen=True)
class Message:
    """One event of a webhook.

    `type` is what its sender calls it, and `id` the sender's id for it: the same when it is sent again. It goes to `stream`
    with its `fields`, or all of it to the stream for the rest where `stream` is None. Messages of one `key` stay in order.
    """

    type: str
    id: str
    stream: str | None
    fields: Mapping[str, object]
    key: str | None = None


def webhook(
    path: str, *, signatures: Sequence[SignatureScheme], secret: str, streams: Sequence[str], other: str, batches: bool = False
) -> Callable[[F], F]:
    """Mark a function as the webhook of a pipeline's HTTP source.

    It is given a `Payload` and the `Delivery` that brought it, once for each payload where `batches` may come, and returns
    a `Message`. `secret` is the name of an environment variable. The arguments are read from the file itself, so that
    `headrace check` need not run it.
    """
    return lambda function: function
