"""The text of checkpoint files: a version, a number of entries, one entry per line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sidecar.errors import CorruptFile
from sidecar.model import TopicPartition
from sidecar.plurals import plural

VERSION = 0
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)


def read_entries(data: bytes, tokens_per_entry: int, file: str = "") -> list[list[str]]:
    """The tokens of every entry; an empty file has none.

    Raises CorruptFile for another version, a malformed line, or a count that differs from the number of lines.
    Source: CheckpointFile.read.
    """
    if not data:
        return []
    try:
        lines = data.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptFile("not UTF-8 text", file=file, position=error.start) from error
    version = parse_integer(lines[0].strip(), INT32, "version", file)
    if version != VERSION:
        raise CorruptFile(f"checkpoint version {version}, expected {VERSION}", file=file)
    if len(lines) < 2:
        raise CorruptFile("the number of entries is missing", file=file)
    count = parse_integer(lines[1].strip(), INT32, "number of entries", file)
    entries = [line.split() for line in lines[2:]]
    for number, entry in enumerate(entries, start=3):
        if len(entry) != tokens_per_entry:
            raise CorruptFile(f"line {number} has {len(entry)} tokens, expected {tokens_per_entry}", file=file)
    if count != len(entries):
        raise CorruptFile(f"{plural(len(entries), 'entry', 'entries')}, the file announces {count}", file=file)
    return entries


def write_entries(lines: Iterable[str]) -> bytes:
    """The text of a checkpoint file with these entries. Source: CheckpointFile.write."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(entries)), *entries)).encode()


def parse_integer(token: str, allowed: range, what: str, file: str = "") -> int:
    """A decimal number as Java parses it. Raises CorruptFile for anything else, or outside `allowed`."""
    if _INTEGER.fullmatch(token) is None or int(token) not in allowed:
        raise CorruptFile(f"{what} is {token[:40]!r}, expected an integer", file=file)
    return int(token)


def read_offset_checkpoint(data: bytes, file: str = "") -> dict[TopicPartition, int]:
    """Offsets by partition, of the checkpoint files in a log dir. Raises CorruptFile.

    Source: OffsetCheckpointFile.
    """
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in read_entries(data, 3, file):
        topic_partition = TopicPartition(topic, parse_integer(partition, INT32, f"partition of {topic}", file))
        offsets[topic_partition] = parse_integer(offset, INT64, f"offset of {topic_partition}", file)
    return offsets


def write_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The text of such a file, entries in the mapping's order."""
    return write_entries(f"{found.topic} {found.partition} {offset}" for found, offset in offsets.items())
