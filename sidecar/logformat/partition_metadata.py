"""`partition.metadata`: the topic id that a partition directory belongs to."""

from __future__ import annotations

import base64
import binascii
import re

from sidecar.errors import CorruptFile

_SEPARATOR = re.compile(r":\s+")
_ID_BYTES = 16
_ID_CHARACTERS = 22


def read_partition_metadata(data: bytes, file: str = "") -> str:
    """The topic id in its 22-character form. Raises CorruptFile. Source: PartitionMetadataFile.read."""
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile("no UTF-8 text", file=file, position=error.start) from error
    version = _value(lines, 0, "version", file)
    if re.fullmatch(r"[0-9]{1,9}", version) is None:
        raise CorruptFile(f"version is {version!r}, expected a number", file=file)
    topic_id = _value(lines, 1, "topic_id", file)
    try:
        id_bytes = uuid_bytes(topic_id)
    except ValueError as error:
        raise CorruptFile(f"topic id {topic_id[:40]!r}: {error}", file=file) from error
    if not any(id_bytes):
        raise CorruptFile("the topic id is all zeros, which no topic has", file=file)
    return topic_id


def _value(lines: list[str], number: int, name: str, file: str) -> str:
    parts = _SEPARATOR.split(lines[number]) if number < len(lines) else []
    if len(parts) != 2 or parts[0] != name:
        found = repr(lines[number][:60]) if number < len(lines) else "the end of the file"
        raise CorruptFile(f"line {number + 1}: expected '{name}: …', found {found}", file=file)
    return parts[1]


def write_partition_metadata(topic_id: str) -> bytes:
    """The file as a broker writes it, without a newline at the end. Source: PartitionMetadataFile."""
    uuid_bytes(topic_id)
    return f"version: 0\ntopic_id: {topic_id}".encode()


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of an id in base64url without padding. Raises ValueError. Source: Uuid.fromString."""
    if len(text) != _ID_CHARACTERS:
        raise ValueError(f"{len(text)} characters, expected {_ID_CHARACTERS}")
    try:
        decoded = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError("not base64url") from error
    # 22 characters hold 132 bits: the last four must be zero, or two texts would mean one id.
    if uuid_text(decoded) != text:
        raise ValueError("not the canonical form of 16 bytes")
    return decoded


def uuid_text(id_bytes: bytes) -> str:
    """The 22-character form of 16 bytes. Source: Uuid.toString."""
    if len(id_bytes) != _ID_BYTES:
        raise ValueError(f"{len(id_bytes)} bytes, expected {_ID_BYTES}")
    return base64.urlsafe_b64encode(id_bytes).rstrip(b"=").decode("ascii")
