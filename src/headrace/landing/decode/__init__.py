"""Step 3, decode: turn bytes into Arrow columns, and split off bad rows with their reasons."""

from __future__ import annotations

import pyarrow as pa

from headrace.landing.decode.avro import AvroDecoder
from headrace.landing.decode.changes import ChangesDecoder
from headrace.landing.decode.decoded import Block, Decoded, Decoder, GrowthError
from headrace.landing.decode.framed import FramedAvroDecoder
from headrace.landing.decode.json import JsonDecoder
from headrace.landing.decode.registry import registry_of_this_worker
from headrace.spec.model.pipeline import Stream

__all__ = ["CHUNK_ROWS", "Block", "Decoded", "Decoder", "GrowthError", "decoder_of"]

CHUNK_ROWS = {"json": 1_000, "avro": 16_384, "debezium": 16_384}


def decoder_of(stream: Stream, schema: pa.Schema, *, registry_url: str = "") -> Decoder:
    """Return the decoder of a stream's format. `schema` is the Arrow schema of its table."""
    if stream.format == "debezium":
        return ChangesDecoder(schema=schema, registry=registry_of_this_worker(registry_url), reader=stream.avro_schema)
    if stream.format == "avro" and stream.framing == "none":
        return AvroDecoder(stream.avro_schema or "", schema=schema)
    if stream.format == "avro":
        registry = registry_of_this_worker(registry_url) if registry_url else None
        is_certain = stream.framing == "confluent"
        return FramedAvroDecoder(stream.avro_schema or "", schema=schema, registry=registry, is_certain=is_certain)
    return JsonDecoder(stream.columns, schema=schema, epoch_unit=stream.epoch_unit)
