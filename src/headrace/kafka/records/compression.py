"""Kafka's codecs: the records of a batch, without their compression."""

from __future__ import annotations

import struct

import pyarrow as pa

_NAMES = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SIZE = struct.Struct(">i")


def decompress(codec: int, data: memoryview) -> memoryview:
    """Return what was compressed; `codec` is the number that a batch carries, 0 for none."""
    if codec == 0:
        return data
    name = _NAMES.get(codec)
    if name is None:
        raise ValueError(f"a batch is compressed with codec {codec}, which is unknown")
    if name == "snappy":
        return _snappy(data)
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
        return memoryview(stream.read())


def _snappy(data: memoryview) -> memoryview:
    """Java's clients cut snappy into blocks with a header of their own, librdkafka sends one block without."""
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
    """A block starts with the size of its content, seven bits in a byte, the lowest first."""
    size = 0
    for index, byte in enumerate(block):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size))
