"""Fetch record batches as Kafka stores them, and read many messages at a time."""

from __future__ import annotations

from headrace.kafka.records.batches import Position, RecordBatch, Records, next_offset, split_batches
from headrace.kafka.records.client import FetchClient
from headrace.kafka.records.container import REFUSED, container_file, container_header, number_size, read_container
from headrace.kafka.records.fetched import FetchedPart, KafkaUnavailableError, RecordClient, UnknownProtocolError
from headrace.kafka.records.frames import SIZE, Framed, Frames
from headrace.kafka.records.messages import Messages, place, split_messages

__all__ = [
    "REFUSED",
    "SIZE",
    "FetchClient",
    "FetchedPart",
    "Framed",
    "Frames",
    "KafkaUnavailableError",
    "Messages",
    "Position",
    "RecordBatch",
    "RecordClient",
    "Records",
    "UnknownProtocolError",
    "container_file",
    "container_header",
    "next_offset",
    "number_size",
    "place",
    "read_container",
    "split_batches",
    "split_messages",
]
