"""The batches that lie in a partition directory, and the request with which a producer sends one of them again."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sidecar.logformat.batches import scan_file
from sidecar.logformat.headers import BatchFlag

_PRODUCE = 0
# The newest version with fixed-width lengths; every broker since 1.0 knows it.
_PRODUCE_VERSION = 7
_ACKS_ALL = -1
_TIMEOUT_MS = 30_000
_NO_LEADER_EPOCH = -1


@dataclass(frozen=True)
class StoredBatch:
    """A magic 2 batch in a `.log`: `content` is its bytes there. Last offset is inclusive."""

    segment_base_offset: int
    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    content: bytes

    @property
    def identity(self) -> tuple[int, int, int]:
        """What makes two batches the same one to a broker."""
        return self.producer_id, self.producer_epoch, self.base_sequence


@dataclass(frozen=True)
class Produced:
    """A broker's answer to one batch; error code 0 is none."""

    error_code: int
    base_offset: int


def segment_bases(directory: Path) -> list[int]:
    """Base offsets of the segments of a partition, ascending."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def stored_batches(directory: Path) -> list[StoredBatch]:
    """All batches of a partition, in offset order."""
    found: list[StoredBatch] = []
    for base in segment_bases(directory):
        path = directory / f"{base:020d}.log"
        data = path.read_bytes()
        for columns in scan_file(path):
            for row in range(len(columns)):
                position, attributes = int(columns.position[row]), int(columns.attributes[row])
                found.append(
                    StoredBatch(
                        base,
                        int(columns.base_offset[row]),
                        int(columns.last_offset[row]),
                        int(columns.producer_id[row]),
                        int(columns.producer_epoch[row]),
                        int(columns.base_sequence[row]),
                        bool(attributes & BatchFlag.TRANSACTIONAL),
                        bool(attributes & BatchFlag.CONTROL),
                        data[position : position + int(columns.size_bytes[row])],
                    )
                )
    return found


def last_data_batch(batches: Sequence[StoredBatch], producer_id: int) -> StoredBatch:
    """The last batch that a producer wrote: what it sends again if it never saw the acknowledgement."""
    return [batch for batch in batches if batch.producer_id == producer_id and not batch.control][-1]


def send_again(port: int, topic: str, partition: int, batch: StoredBatch) -> Produced:
    """Send a stored batch to the broker on 127.0.0.1:`port`, byte for byte what its producer had sent.

    The offset and the leader epoch, which a broker fills in, lie outside of the checksum.
    """
    records = struct.pack(">qii", 0, *struct.unpack_from(">i", batch.content, 8), _NO_LEADER_EPOCH) + batch.content[16:]
    # Transactional id (none), acks, time-out; one topic with one partition.
    body = struct.pack(">hhii", -1, _ACKS_ALL, _TIMEOUT_MS, 1) + _string(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    request = struct.pack(">hhi", _PRODUCE, _PRODUCE_VERSION, 1) + _string("a-retry") + body
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(size)
    # Correlation id, one topic, its name; then one partition: its number, error code and base offset.
    at = 4 + 4 + len(_string(topic)) + 4
    answered_partition, error_code, base_offset = struct.unpack_from(">ihq", answer, at)
    if answered_partition != partition:
        raise ValueError(f"the answer is about partition {answered_partition}, requested was {partition}")
    return Produced(error_code, base_offset)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
