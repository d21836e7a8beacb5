"""Decode Avro messages with Confluent framing: a zero byte, the schema id in four bytes, and the message in that schema.

Plain Avro may start with a zero too, so `framing: auto` decides for each message:

1. A message is framed if it starts with a zero byte and an id below 2**24 that the registry has, and the rest of it, up to the
   last byte, is Avro of that schema. Otherwise it is plain.
2. A message that is both framed and, as a whole, plain Avro of the stream's schema is refused: a guess could land a wrong row.

`framing: confluent` and `framing: none` decide it for the whole topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from headrace.errors import NotFoundError, UnavailableError
from headrace.kafka.records import RecordBatch
from headrace.kafka.schemas import Registry
from headrace.landing.decode.avro import AvroDecoder
from headrace.landing.decode.decoded import Block, Decoded, Part, merge_parts
from headrace.landing.decode.resolution import MismatchError, resolve

PREFIX = 5
"""The bytes before a framed message: the zero and the id."""

_LARGEST_ID = 2**24
"""Registries count ids from 1. In plain Avro, the four bytes after a zero are hardly ever a smaller number."""

_MOST_IDS = 64
"""A topic has few schemas: more ids than this in one call mean plain Avro, and are not looked up in the registry."""

_MOST_KNOWN = 1_000


class _Writer(NamedTuple):
    """The decoder of an id's messages, or the reason why there is none. `is_unknown` marks a reason that may go away."""

    decoder: AvroDecoder | None
    reason: str = ""
    is_unknown: bool = False


class FramedAvroDecoder:
    """Decode Avro messages that may be framed, from each message's writer schema into the stream's schema.

    Without a registry, framed messages are refused. `is_certain` means that all messages are framed.
    """

    def __init__(self, avro_schema: str, *, schema: pa.Schema, registry: Registry | None, is_certain: bool = False) -> None:
        self._text = avro_schema
        self._schema = schema
        self._plain = AvroDecoder(avro_schema, schema=schema)
        self._registry = registry
        self._is_certain = is_certain
        self._writers: dict[int, _Writer] = {}
        self._was_framed = is_certain

    def decode(self, values: list[bytes | None]) -> Decoded:
        frames = self._find_frames(values)
        self._was_framed = self._is_certain or (bool(frames) and sum(map(len, frames.values())) == len(values))
        if self._registry is None:
            return self._without_registry(values, frames)
        if len(frames) > _MOST_IDS and not self._is_certain:
            odd = (row for rows in frames.values() for row in rows if not self._reads(values, row))
            frames = _group(values, odd)
        parts: list[Part] = []
        bad: dict[int, str] = {}
        plain = set(range(len(values))).difference(*frames.values())
        unread: dict[int, str] = {}
        refused: list[str] = []
        for schema_id, rows in frames.items():
            writer = self._find(schema_id, values, rows)
            if writer.decoder is None:
                unread.update(dict.fromkeys(rows, writer.reason))
                plain.update(rows)
                if writer.reason and not writer.is_unknown:
                    refused.append(writer.reason)
                continue
            decoded, as_plain = self._decode_frames(writer.decoder, values, rows)
            plain.update(as_plain)
            bad.update(decoded.bad)
            parts.append(Part(decoded.rows, decoded.columns))
        self._decode_plain(values, sorted(plain), parts, bad, unread)
        refused = [reason for reason in refused if any(why.startswith(reason) for why in bad.values())]
        return merge_parts(parts, names=self._plain.names, schema=self._schema, bad=bad, refused=tuple(refused))

    def decode_block(self, batches: Sequence[RecordBatch]) -> Block | None:
        if self._was_framed:
            return None
        if self._registry is None:
            return self._plain.decode_block(batches)
        return self._plain.decode_block(batches, is_suspect=self._has_frames)

    def _find_frames(self, values: Sequence[bytes | None]) -> dict[int, list[int]]:
        """Return the messages that may be framed, by schema id."""
        if self._is_certain:
            return _group(values, (row for row, value in enumerate(values) if value and value[0] == 0 and len(value) >= PREFIX))
        rows = (row for row, value in enumerate(values) if value and value[:2] == b"\x00\x00" and len(value) >= PREFIX)
        return _group(values, rows)

    def _without_registry(self, values: list[bytes | None], frames: dict[int, list[int]]) -> Decoded:
        ids = {row: schema_id for schema_id, rows in frames.items() for row in rows}
        reason = (
            "no registry: the message is Confluent-framed (schema {}), and no schema registry is configured; set registry.url"
            " (HEADRACE_REGISTRY_URL), then run: headrace replay PIPELINE --quarantined"
        )
        if self._is_certain:
            bad = {row: reason.format(ids[row]) if row in ids else _not_a_frame(value) for row, value in enumerate(values)}
            return Decoded({}, [], bad)
        decoded = self._plain.decode(values)
        framed = {row: f"{reason.format(ids[row])}; as plain Avro: {why}" for row, why in decoded.bad.items() if row in ids}
        return Decoded(decoded.columns, decoded.rows, {**decoded.bad, **framed})

    def _decode_frames(
        self, decoder: AvroDecoder, values: Sequence[bytes | None], rows: Sequence[int]
    ) -> tuple[Decoded, list[int]]:
        """Return the decoded frames of one schema, numbered as in `values`, and the messages that turn out to be plain."""
        frames = decoder.decode([(values[row] or b"")[PREFIX:] for row in rows])
        decoded = Decoded(
            frames.columns, [rows[index] for index in frames.rows], {rows[at]: why for at, why in frames.bad.items()}
        )
        if self._is_certain:
            return decoded, []
        probed = self._plain.probe((values[rows[0]] or b"")[:PREFIX])
        if probed is not None and all(len(values[row] or b"") != probed for row in rows):
            return decoded, []  # the prefix alone proves that none of them is plain
        plain = [row for row in decoded.bad if self._reads(values, row)]
        both = {
            index: "ambiguous Avro: the message reads both as plain and as Confluent-framed; set framing: confluent or framing:"
            " none for the stream in pipeline.yml, then run: headrace replay PIPELINE --quarantined"
            for index, row in enumerate(decoded.rows)
            if self._reads(values, row)
        }
        decoded = decoded.without(both)
        rest = {row: why for row, why in decoded.bad.items() if row not in set(plain)}
        return Decoded(decoded.columns, decoded.rows, rest), plain

    def _decode_plain(
        self,
        values: Sequence[bytes | None],
        rows: Sequence[int],
        parts: list[Part],
        bad: dict[int, str],
        unread: dict[int, str],
    ) -> None:
        if not rows:
            return
        if self._is_certain:
            bad.update({row: unread.get(row) or _not_a_frame(values[row]) for row in rows})
            return
        decoded = self._plain.decode([values[row] for row in rows])
        for index, why in decoded.bad.items():
            reason = unread.get(rows[index])
            bad[rows[index]] = f"{reason}; as plain Avro: {why}" if reason else why
        parts.append(Part([rows[index] for index in decoded.rows], decoded.columns))

    def _reads(self, values: Sequence[bytes | None], row: int) -> bool:
        return self._plain.reads(values[row])

    def _has_frames(self, ids: Sequence[int]) -> bool:
        """Return whether a block of plain Avro may contain frames of these schemas, and has to be decoded one by one."""
        wanted = [schema_id for schema_id in ids if schema_id < _LARGEST_ID]
        if not wanted or len(wanted) > _MOST_IDS:
            return False
        try:
            return any(self._writer(schema_id).decoder for schema_id in wanted)
        except UnavailableError:
            return False

    def _find(self, schema_id: int, values: Sequence[bytes | None], rows: Sequence[int]) -> _Writer:
        """Return the writer of an id. An outage of the registry is ignored if all messages with the id are plain Avro."""
        try:
            return self._writer(schema_id)
        except UnavailableError:
            if self._is_certain or not all(self._reads(values, row) for row in rows):
                raise
            return _Writer(None)

    def _writer(self, schema_id: int) -> _Writer:
        if schema_id in self._writers:
            return self._writers[schema_id]
        assert self._registry is not None
        try:
            text = self._registry.schema(schema_id)
        except NotFoundError as error:
            return _Writer(None, f"unknown schema: {error.what}", is_unknown=True)  # it may be registered later
        if len(self._writers) >= _MOST_KNOWN:
            self._writers.clear()
        try:
            writer = _Writer(AvroDecoder(text, schema=self._schema, resolution=resolve(text, self._text)))
        except MismatchError as error:
            writer = _Writer(None, f"schema does not fit: of schema {schema_id}, {error}")
        self._writers[schema_id] = writer
        return writer


def _group(values: Sequence[bytes | None], rows: Iterable[int]) -> dict[int, list[int]]:
    groups: dict[bytes, list[int]] = {}
    for row in rows:
        groups.setdefault((values[row] or b"")[1:PREFIX], []).append(row)
    return {int.from_bytes(key, "big"): members for key, members in groups.items()}


def _not_a_frame(value: bytes | None) -> str:
    if not value:
        return "empty value"
    return (
        "not Confluent-framed: the message does not start with a zero and a schema's id, and the stream has framing: confluent;"
        " if its messages are plain Avro, set framing: auto"
    )
