"""Step 3, decode: bytes become Arrow columns, and rows that can't are split off with their reasons."""

from __future__ import annotations

import pyarrow as pa

from headrace.landing.decode.avro import AvroDecoder
from headrace.landing.decode.decoded import Block, Decoded, Decoder
from headrace.landing.decode.json import JsonDecoder
from headrace.spec.pipeline import Stream

__all__ = ["CHUNK_ROWS", "Block", "Decoded", "Decoder", "decoder_of"]

CHUNK_ROWS = {"json": 1_000, "avro": 16_384}


def decoder_of(stream: Stream, schema: pa.Schema) -> Decoder:
    """Gives back the decoder of a stream's format; `schema` is its table's, in Arrow."""
    if stream.format == "avro":
        return AvroDecoder(stream.avro_schema or "", schema=schema)
    return JsonDecoder(stream.columns, schema=schema, epoch_unit=stream.epoch_unit)
