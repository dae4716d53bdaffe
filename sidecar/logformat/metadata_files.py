"""`meta.properties` and `partition.metadata`: which cluster, broker and topic a directory belongs to."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from sidecar.errors import CorruptFile
from sidecar.logformat.checkpoints import INT32, parse_integer

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_LETTER_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """`broker_id` is `node.id` of version 1. What the file does not have is None."""

    version: int
    cluster_id: str | None
    broker_id: int | None
    directory_id: str | None

    @property
    def has_ids(self) -> bool:
        """False of any text that is not a broker's: it counts as one of version 0, which needs no key."""
        return self.cluster_id is not None or self.broker_id is not None


def read_meta_properties(data: bytes, file: str = "") -> MetaProperties:
    """Versions 0 and 1. Raises CorruptFile for another one, or where a required key is missing.

    Source: MetaProperties.Builder.
    """
    properties = read_properties(data, file)
    version = parse_integer(properties.get("version", "0"), INT32, "version", file)
    if version not in {0, 1}:
        raise CorruptFile(f"version {version}, expected 0 or 1", file=file)
    id_key = "broker.id" if version == 0 else "node.id"
    for key in ("cluster.id", id_key):
        if version == 1 and not properties.get(key):
            raise CorruptFile(f"version 1 needs the key '{key}'", file=file)
    broker_id = properties.get(id_key)
    return MetaProperties(
        version=version,
        cluster_id=properties.get("cluster.id") or None,
        broker_id=None if broker_id is None else parse_integer(broker_id, INT32, id_key, file),
        directory_id=properties.get("directory.id") or None,
    )


def read_properties(data: bytes, file: str = "") -> dict[str, str]:
    """Java's properties text: ISO-8859-1, `#` and `!` comments, `=`, `:` or blanks after the key, escapes.

    Raises CorruptFile for a malformed `\\u` escape. Source: java.util.Properties.load.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(data.decode("iso-8859-1")):
        end = _key_length(line)
        value = line[end:].lstrip(" \t\f")
        if value[:1] in {"=", ":"}:
            value = value[1:].lstrip(" \t\f")
        properties[_unescaped(line[:end], file)] = _unescaped(value, file)
    return properties


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = False
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        piece = line[:-1] if backslashes % 2 else line
        if continued:
            lines[-1] += piece
        else:
            lines.append(piece)
        continued = bool(backslashes % 2)
    return lines


def _key_length(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescaped(text: str, file: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        if found[2] == "u":
            raise CorruptFile("malformed \\u escape", file=file)
        return _LETTER_ESCAPES.get(found[2], found[2])

    return _ESCAPE.sub(replace, text)


_SEPARATOR = re.compile(r":\s+")
_ID_BYTES = 16
_ID_CHARACTERS = 22


def read_partition_metadata(data: bytes, file: str = "") -> str:
    """The topic id in its 22-character form. Raises CorruptFile. Source: PartitionMetadataFile.read."""
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile("not UTF-8 text", file=file, position=error.start) from error
    version = _value(lines, 0, "version", file)
    if re.fullmatch(r"[0-9]{1,9}", version) is None:
        raise CorruptFile(f"version is {version!r}, expected a number", file=file)
    topic_id = _value(lines, 1, "topic_id", file)
    try:
        id_bytes = uuid_bytes(topic_id)
    except ValueError as error:
        raise CorruptFile(f"topic id {topic_id[:40]!r}: {error}", file=file) from error
    if not any(id_bytes):
        raise CorruptFile("the topic id is all zeros, which is not a valid id", file=file)
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
