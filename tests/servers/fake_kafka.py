"""A broker of as many topics as a test asks for: it speaks Kafka's own encodings, and does what a sound broker would not."""

from __future__ import annotations

import io
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse

NODE_ID, OTHER_ID = 1, 2
_VERSIONS = BROKER_API_VERSIONS[(2, 8)]
_REQUESTS = {
    request.API_KEY: request
    for request in (
        MetadataRequest,
        ListOffsetsRequest,
        DescribeConfigsRequest,
        DescribeLogDirsRequest,
        DescribeProducersRequest,
    )
}
_API_VERSIONS, _UNSUPPORTED_VERSION = 18, 35
_ACCEPT_S = 0.05


class EndConnection(Exception):
    """Raised by a test's `meanwhile` to have the connection closed instead of an answer."""


class FakeKafka:
    """A context manager. Broker 1 of a cluster; nobody listens where broker 2 should be.

    `log_dirs` has the number of partitions by topic and path; it may be changed.
    `asked` counts requests and `largest_bytes` answers by Kafka's key of the request; `accepted` counts connections.
    """

    def __init__(
        self,
        topics: int = 1,
        partitions: int = 1,
        meanwhile: Callable[[Any], None] = lambda _: None,
        throttle_ms: int = 0,
    ) -> None:
        """Args: meanwhile: called with each request before it is answered. throttle_ms: reported with each list of offsets."""
        self.topics = {f"team-a.orders-events.{number:05d}": partitions for number in range(topics)}
        self.log_dirs: dict[str, dict[str, int]] = {"/var/lib/kafka/data": self.topics}
        self.asked: Counter[int] = Counter()
        self.largest_bytes: defaultdict[int, int] = defaultdict(int)
        self.accepted = 0
        self._meanwhile = meanwhile
        self.throttle_ms = throttle_ms
        self._lock = Lock()
        self._is_over = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.settimeout(_ACCEPT_S)
        self._connections: set[socket.socket] = set()
        self._acceptor = Thread(target=self._accept, name="fake-kafka", daemon=True)
        # Kept, and not listened on: once let go it may be another test's server, or the port of a client that connects.
        self._nobody = socket.socket()
        self._nobody.bind(("127.0.0.1", 0))
        self._port_of_nobody: int = self._nobody.getsockname()[1]

    @property
    def server(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._is_over = True
        self._acceptor.join()
        self._listener.close()
        self._nobody.close()
        for connection in list(self._connections):
            connection.close()

    def _accept(self) -> None:
        while not self._is_over:
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.settimeout(None)
                self.accepted += 1
                self._connections.add(connection)
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EndConnection):
            # A client may end in the middle of what it asks.
            while (head := _received(connection, 4)) and (asked := _received(connection, struct.unpack(">i", head)[0])):
                connection.sendall(self._answer(asked))

    def _answer(self, asked: bytes) -> bytes:
        key, version, number = struct.unpack_from(">hhi", asked)
        if key == _API_VERSIONS:
            is_known = version <= _VERSIONS[key][1]
            return _framed(_api_versions(0 if is_known else _UNSUPPORTED_VERSION), version if is_known else 0, number)
        if key not in _REQUESTS:
            raise EndConnection
        kind = _REQUESTS[key]
        stream = io.BytesIO(asked)
        kind.parse_header(stream, version=version)
        request = kind.decode(stream, version=version)
        with self._lock:
            self.asked[key] += 1
        self._meanwhile(request)
        answer = {2: self._offsets, 3: self._metadata, 32: self._configs, 35: self._log_dirs, 61: self._producers}[key](
            request, version
        )
        framed = _framed(answer, version, number)
        with self._lock:
            self.largest_bytes[key] = max(self.largest_bytes[key], len(framed))
        return framed

    def _metadata(self, request: Any, version: int) -> Any:
        kind = MetadataResponse.MetadataResponseTopic
        wanted = self.topics if request.topics is None else [topic.name for topic in request.topics]
        port = self._listener.getsockname()[1]
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port, rack=None)
                for node_id, port in ((NODE_ID, port), (OTHER_ID, self._port_of_nobody))
            ],
            cluster_id="fake",
            controller_id=NODE_ID,
            topics=[
                kind(
                    error_code=0,
                    name=name,
                    topic_id=UUID(int=1),
                    is_internal=False,
                    partitions=[
                        kind.MetadataResponsePartition(
                            error_code=0,
                            partition_index=partition,
                            leader_id=NODE_ID,
                            leader_epoch=3,
                            replica_nodes=[1, 2, 3],
                            isr_nodes=[1, 2, 3],
                            offline_replicas=[],
                        )
                        for partition in range(self.topics[name])
                    ],
                )
                for name in wanted
                if name in self.topics
            ],
        )

    def _offsets(self, request: Any, version: int) -> Any:
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        return ListOffsetsResponse(
            throttle_time_ms=self.throttle_ms,
            topics=[
                kind(
                    name=topic.name,
                    partitions=[
                        kind.ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=0,
                            timestamp=-1,
                            offset=7,
                            leader_epoch=3,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _configs(self, request: Any, version: int) -> Any:
        kind = DescribeConfigsResponse.DescribeConfigsResult
        return DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                kind(
                    error_code=0,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[
                        kind.DescribeConfigsResourceResult(
                            name=name,
                            value="9223372036854775807",
                            read_only=False,
                            config_source=5,
                            is_sensitive=False,
                            synonyms=[],
                            config_type=0,
                            documentation=None,
                        )
                        for name in resource.configuration_keys
                    ],
                )
                for resource in request.resources
            ],
        )

    def _log_dirs(self, _request: Any, _version: int) -> Any:
        kind = DescribeLogDirsResponse.DescribeLogDirsResult
        of_topic = kind.DescribeLogDirsTopic
        of_partition = of_topic.DescribeLogDirsPartition
        return DescribeLogDirsResponse(
            throttle_time_ms=0,
            error_code=0,
            results=[
                kind(
                    error_code=0,
                    log_dir=path,
                    topics=[
                        of_topic(
                            name=topic,
                            partitions=[
                                of_partition(
                                    partition_index=number, partition_size=1, offset_lag=0, is_future_key=False
                                )
                                for number in range(partitions)
                            ],
                        )
                        for topic, partitions in topics.items()
                    ],
                    total_bytes=1,
                    usable_bytes=1,
                )
                for path, topics in self.log_dirs.items()
            ],
        )

    def _producers(self, request: Any, version: int) -> Any:
        kind = DescribeProducersResponse.TopicResponse
        return DescribeProducersResponse(
            throttle_time_ms=0,
            topics=[
                kind(
                    name=topic.name,
                    partitions=[
                        kind.PartitionResponse(
                            partition_index=number, error_code=0, error_message=None, active_producers=[]
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ],
        )


def slowly(seconds: float) -> Callable[[Any], None]:
    """For `meanwhile`: every answer takes so long."""
    return lambda _: time.sleep(seconds)  # noqa: TID251 - a broker's own time


def _api_versions(error_code: int) -> Any:
    kind = ApiVersionsResponse.ApiVersion
    ranges = [kind(api_key=key, min_version=low, max_version=high) for key, (low, high) in _VERSIONS.items()]
    return ApiVersionsResponse(error_code=error_code, api_keys=ranges)


def _framed(answer: Any, version: int, number: int) -> bytes:
    answer.API_VERSION = version
    answer.with_header(correlation_id=number)
    return bytes(answer.encode(header=True, framed=True))


def _received(connection: socket.socket, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        more = connection.recv(size_bytes - len(received))
        if not more:
            return b""
        received += more
    return bytes(received)
