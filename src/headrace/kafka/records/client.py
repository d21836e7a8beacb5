"""A Kafka client that returns record batches as the broker stores them.

Requests and responses are kafka-python's, sent over a blocking socket per leader with at most one request in flight. A response
waits in the socket until it is needed, so reading ahead needs no thread.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.errors import for_code
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from headrace.kafka.records.batches import Position, RecordBatch, next_offset, split_batches
from headrace.kafka.records.fetched import KafkaUnavailableError, UnknownProtocolError
from headrace.kafka.records.security import Security

_FETCH_BYTES = 4 * 1024 * 1024
_FETCH_VERSION = 11
_METADATA_VERSION = 7
_PARTITIONS_AT_ONCE = 100
_READ_COMMITTED = 1
_NO_SESSION = -1
_WAIT_MS = 20
_TIMEOUT_SECONDS = 20.0
_FRAME = struct.Struct(">i")
_Address = tuple[str, int]
_Key = tuple[str, int]


@dataclass(frozen=True)
class Fetched:
    """A leader's response for one partition: batches, the last of which may be incomplete, and their aborted transactions.

    `refusal` is the name of an error that a retry does not fix.
    """

    topic: str
    partition: int
    data: bytes
    aborted: Sequence[tuple[int, int]]
    refusal: str = ""

    def next_offset(self, position: Position) -> int:
        """Return the offset after the last complete batch, or the position's own without one."""
        return next_offset(self.data, position)

    def batches(self, position: Position) -> Iterator[RecordBatch]:
        """Yield the batches with committed records of the range."""
        return split_batches(self.data, position, self.aborted)


class FetchClient:
    """Fetch from the leaders of partitions. After `reset()`, it starts again from the bootstrap servers."""

    def __init__(self, settings: tuple[tuple[str, str], ...]) -> None:
        self._bootstrap = [_address(server) for server in dict(settings)["bootstrap.servers"].split(",")]
        self._security = Security(dict(settings))
        self._connections: dict[_Address, _Connection] = {}
        self._leaders: dict[_Key, _Address] = {}
        self._asked: list[_Address] = []
        self._is_checked = False

    def ask(self, positions: Iterable[Position]) -> None:
        """Request the next records at these positions, except from leaders with a request in flight."""
        wanted = list(positions)
        if any((at.topic, at.partition) not in self._leaders for at in wanted):
            self._find_leaders(sorted({at.topic for at in wanted}))
        by_leader: dict[_Address, list[Position]] = {}
        for at in wanted:
            leader = self._leaders.get((at.topic, at.partition))
            if leader is not None and leader not in self._asked:
                by_leader.setdefault(leader, []).append(at)
        for leader, parts in by_leader.items():
            self._connection(leader).send(_fetch_request(parts[:_PARTITIONS_AT_ONCE]))
            self._asked.append(leader)

    def answer(self) -> list[Fetched]:
        """Return the response to the oldest request in flight."""
        if not self._asked:
            raise KafkaUnavailableError("no partition has a leader")
        leader = self._asked.pop(0)
        response = self._connection(leader).receive(FetchResponse, _FETCH_VERSION)
        parts = [(topic.topic, part) for topic in response.responses for part in topic.partitions]
        passing = [error for _, part in parts if (error := for_code(part.error_code)).retriable]
        if response.error_code or passing:
            raise KafkaUnavailableError((passing[0] if passing else for_code(response.error_code)).__name__)
        return [_fetched(topic, part) for topic, part in parts]

    def reset(self) -> None:
        """Close all connections, and forget the leaders and every request in flight."""
        for connection in self._connections.values():
            connection.close()
        self._connections, self._leaders, self._asked = {}, {}, []

    def give_up(self) -> None:
        """Drop all requests in flight by closing their connections."""
        for leader in self._asked:
            self._connections.pop(leader).close()
        self._asked = []

    def _find_leaders(self, topics: Sequence[str]) -> None:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            version=_METADATA_VERSION,
        )
        for address in self._bootstrap:
            try:
                connection = _Connection(address, self._security)
                try:
                    self._check_versions(connection, address)
                    connection.send(request)
                    response = connection.receive(MetadataResponse, _METADATA_VERSION)
                finally:
                    connection.close()
            except KafkaUnavailableError:
                continue
            brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
            self._leaders |= {
                (topic.name, part.partition_index): brokers[part.leader_id]
                for topic in response.topics
                for part in topic.partitions
                if part.leader_id in brokers
            }
            return
        raise KafkaUnavailableError("no bootstrap server answers")

    def _check_versions(self, connection: _Connection, address: _Address) -> None:
        """Raise an UnknownProtocolError if the broker does not take our versions of the requests. Asks once per client."""
        if self._is_checked:
            return
        connection.send(ApiVersionsRequest(version=0))
        answer = connection.receive(ApiVersionsResponse, 0)
        taken = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
        for request, version in ((FetchRequest, _FETCH_VERSION), (MetadataRequest, _METADATA_VERSION)):
            versions = taken.get(request.API_KEY, range(0))
            if version not in versions:
                raise UnknownProtocolError(
                    f"the broker takes {request.__name__} in versions {versions.start} to {versions.stop - 1}, and the "
                    f"record-batch reader sends version {version}",
                    where=f"{address[0]}:{address[1]}",
                    next_step="Set kafka.reader to auto or client.",
                )
        self._is_checked = True

    def _connection(self, address: _Address) -> _Connection:
        if address not in self._connections:
            self._connections[address] = _Connection(address, self._security)
        return self._connections[address]


class _Connection:
    """An authenticated connection to one broker."""

    def __init__(self, address: _Address, security: Security) -> None:
        self._sent = 0
        try:
            plain = socket.create_connection(address, timeout=_TIMEOUT_SECONDS)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(plain, address[0])
        except OSError as error:
            raise KafkaUnavailableError(f"{address[0]}:{address[1]}: {error}") from error
        try:
            security.log_in(self._exchange)
        except BaseException:
            self.close()
            raise

    def send(self, request: Any) -> None:
        self._sent += 1
        request.with_header(correlation_id=self._sent, client_id="headrace")
        try:
            self._socket.sendall(request.encode(framed=True, header=True))
        except OSError as error:
            raise KafkaUnavailableError(str(error)) from error

    def receive(self, kind: Any, version: int) -> Any:
        """Return the response to the last request."""
        (size,) = _FRAME.unpack(self._read(_FRAME.size))
        answer = self._read(size)
        if _FRAME.unpack_from(answer) != (self._sent,):
            raise KafkaUnavailableError("a response belongs to another request")
        return kind.decode(answer[_FRAME.size :], version=version)

    def close(self) -> None:
        self._socket.close()

    def _exchange(self, request: Any, kind: Any, version: int) -> Any:
        self.send(request)
        return self.receive(kind, version)

    def _read(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        at = 0
        while at < size:
            try:
                count = self._socket.recv_into(view[at:])
            except OSError as error:
                raise KafkaUnavailableError(str(error)) from error
            if not count:
                raise KafkaUnavailableError("the broker closed the connection")
            at += count
        return view


def _fetch_request(positions: Sequence[Position]) -> Any:
    by_topic: dict[str, list[Position]] = {}
    for at in positions:
        by_topic.setdefault(at.topic, []).append(at)
    topic_of = FetchRequest.FetchTopic
    topics = [
        topic_of(topic=topic, partitions=[_fetch_partition(topic_of.FetchPartition, at) for at in parts])
        for topic, parts in by_topic.items()
    ]
    # The first partition with data returns at least one complete batch, even if it is larger than a fetch.
    return FetchRequest(
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=_READ_COMMITTED,
        session_id=0,
        session_epoch=_NO_SESSION,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
        version=_FETCH_VERSION,
    )


def _fetch_partition(kind: Any, at: Position) -> Any:
    return kind(
        partition=at.partition,
        current_leader_epoch=-1,
        fetch_offset=at.next,
        log_start_offset=-1,
        partition_max_bytes=_FETCH_BYTES,
    )


def _fetched(topic: str, part: Any) -> Fetched:
    aborted = [(transaction.producer_id, transaction.first_offset) for transaction in part.aborted_transactions or ()]
    refusal = for_code(part.error_code).__name__ if part.error_code else ""
    return Fetched(topic, part.partition_index, part.records or b"", aborted, refusal)


def _address(server: str) -> _Address:
    host, _, port = server.strip().rpartition(":")
    return host.strip("[]"), int(port)
