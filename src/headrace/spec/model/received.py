"""The decorators of functions that receive events over HTTP, with their arguments and results."""

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
    """The result of a receiver: the event for the topic, and the response to send after Kafka acknowledges the event."""

    event: Mapping[str, object]
    answer: Mapping[str, object]


def receive(path: str, stream: str, *, method: Method = "GET") -> Callable[[F], F]:
    """Mark a function as a receiver of a pipeline's HTTP source.

    Its parameters are those of a FastAPI handler; `now` is the time of the request. It returns a `Received`. The function is
    returned unchanged, so that tests can call it. Headrace parses the arguments from the file, so `headrace check` does not
    run it.
    """
    return lambda function: function


class PayloadError(ValueError):
    """An invalid webhook payload. The message is one sentence, which the sender receives with status 400."""


@dataclass(frozen=True)
class Payload:
    """A JSON object: its bytes, and its fields with values as raw JSON, so that numbers lose no digits."""

    written: bytes
    fields: Mapping[str, msgspec.Raw]

    def text(self, name: str) -> str | None:
        """Return a string's text, any other value's JSON, and None for a null or missing field."""
        raw = bytes(self.fields.get(name, _NULL))
        if raw == _NULL:
            return None
        return _TEXT.decode(raw) if raw.startswith(b'"') else raw.decode("utf-8")

    def inner(self, name: str) -> Payload:
        """Return the object in a field, or an empty one if the field is missing or not an object."""
        raw = bytes(self.fields.get(name, _NULL))
        return read_payload(raw if raw.startswith(b"{") else b"{}")

    @property
    def digest(self) -> str:
        """An id for a payload without one. A payload that is sent again has the same id."""
        return f"sha256:{hashlib.sha256(self.written).hexdigest()}"


def read_payload(written: bytes) -> Payload:
    """Return the payload. Anything but a JSON object raises msgspec's DecodeError."""
    return Payload(written, _OBJECT.decode(written))


@dataclass(frozen=True)
class Delivery:
    """A webhook request with a verified signature. Names of `headers` are in lower case."""

    headers: Mapping[str, str]
    body: bytes
    at: datetime


@dataclass(frozen=True)
class Message:
    """One event of a webhook.

    `type` is the sender's name for its type, and `id` the sender's id, which a redelivery repeats. The message goes to `stream`
    with its `fields`, or with its whole payload to the stream `other` if `stream` is None. Messages with the same `key` stay in
    order.
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

    The function takes a `Payload` and its `Delivery`, and returns a `Message`. With `batches`, a body may be a list, and the
    function is called for each payload. `secret` is the name of an environment variable. Headrace parses the arguments from
    the file, so `headrace check` does not run it.
    """
    return lambda function: function
