"""Decompress the records of a batch with Kafka's codecs."""

from __future__ import annotations

import struct

import pyarrow as pa

_NAMES = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SIZE = struct.Struct(">i")


def decompress(codec: int, data: memoryview) -> memoryview:
    """Return the decompressed data. `codec` is the number in the batch's attributes, 0 for none."""
    if codec == 0:
        return data
    name = _NAMES.get(codec)
    if name is None:
        raise ValueError(f"unknown compression codec {codec} in a record batch")
    if name == "snappy":
        return _snappy(data)
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
        return memoryview(stream.read())


def _snappy(data: memoryview) -> memoryview:
    """Return decompressed snappy: Java clients send blocks with a header, librdkafka one block without."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return memoryview(_snappy_block(data))
    blocks: list[bytes] = []
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        blocks.append(_snappy_block(data[at : at + size]))
        at += size
    return memoryview(b"".join(blocks))


def _snappy_block(block: memoryview) -> bytes:
    """Return a decompressed block. It starts with the size of its content, seven bits per byte, lowest first."""
    size = 0
    for index, byte in enumerate(block):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size))
