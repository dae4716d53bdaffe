"""OffsetForLeaderEpoch: where a broker says that a leader epoch ended, by which followers and consumers find where logs part."""

from __future__ import annotations

import socket
import struct

_OFFSET_FOR_LEADER_EPOCH = 23
# The newest version with fixed-width lengths.
_VERSION = 3
_CONSUMER = -1
_ANY_CURRENT_EPOCH = -1


def epoch_end(port: int, topic: str, partition: int, leader_epoch: int) -> tuple[int, int]:
    """The highest epoch up to this one that the broker on 127.0.0.1:`port` knows, and the offset behind its last record.

    Both are -1 where it knows none.
    """
    body = struct.pack(">ii", _CONSUMER, 1) + _string(topic)
    body += struct.pack(">iiii", 1, partition, _ANY_CURRENT_EPOCH, leader_epoch)
    request = struct.pack(">hhi", _OFFSET_FOR_LEADER_EPOCH, _VERSION, 1) + _string("epochs") + body
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(size)
    # Correlation id, throttle time, one topic, its name, one partition.
    at = 4 + 4 + 4 + len(_string(topic)) + 4
    error_code, answered, epoch, end_offset = struct.unpack_from(">hiiq", answer, at)
    if (error_code, answered) != (0, partition):
        raise ValueError(f"{topic}-{partition}: error {error_code}, about partition {answered}")
    return epoch, end_offset


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
