"""JSON as the archive uses it: one canonical form when written, no benefit of the doubt when read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from reprlib import Repr
from typing import NoReturn, TypeAlias, TypeVar

from sidecar.errors import CorruptFile

Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None

Value = TypeVar("Value")

INT64_MAX = 2**63 - 1

_shown = Repr()
_shown.maxstring = _shown.maxlong = 80


def canonical(value: Json) -> bytes:
    """UTF-8, keys sorted, no spaces: equal values have equal bytes. Raises ValueError for NaN and lone surrogates."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


class JsonObject:
    """One JSON object of a file. Each getter checks presence, type and range, and names file and field if it refuses.

    Fields that are not read are ignored: a later version of the same format number may add some.
    """

    __slots__ = ("_values", "file", "path")

    def __init__(self, values: dict[str, object], file: str, path: str) -> None:
        self._values = values
        self.file = file
        self.path = path

    def refuse(self, name: str, expected: str) -> NoReturn:
        # Abbreviated while it is made: the whole text of a value may be long, and its nesting deep.
        found = _shown.repr(self._values[name]) if name in self._values else "nothing"
        found = found if len(found) <= 80 else f"{found[:77]}..."
        raise CorruptFile(f"{self.path}{name}: expected {expected}, found {found}", file=self.file)

    def names(self) -> list[str]:
        return list(self._values)

    def integer(self, name: str, low: int = 0, high: int = INT64_MAX) -> int:
        """An integer in `[low, high]`; true, false and 1.0 are none."""
        value = self._values.get(name)
        if type(value) is not int or not low <= value <= high:
            self.refuse(name, f"an integer from {low} to {high}")
        return value

    def optional(self, name: str, read: Callable[[str], Value]) -> Value | None:
        """What a getter reads, or null; absent means null."""
        return None if self._values.get(name) is None else read(name)

    def text(self, name: str, max_chars: int = 4096) -> str:
        """A string that UTF-8 can carry (JSON can spell lone surrogates)."""
        value = self._values.get(name)
        if type(value) is not str or len(value) > max_chars or not _is_encodable(value):
            self.refuse(name, f"a string of at most {max_chars} characters")
        return value

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if type(value) is not bool:
            self.refuse(name, "true or false")
        return value

    def hexadecimal(self, name: str, digits: int) -> str:
        """A string of exactly so many lower-case hexadecimal digits."""
        value = self._values.get(name)
        if type(value) is not str or len(value) != digits or value.strip("0123456789abcdef"):
            self.refuse(name, f"{digits} lower-case hexadecimal digits")
        return value

    def checksum(self, name: str) -> int:
        return int(self.hexadecimal(name, 8), 16)

    def nested(self, name: str) -> JsonObject:
        value = self._values.get(name)
        if type(value) is not dict:
            self.refuse(name, "an object")
        return JsonObject(value, self.file, f"{self.path}{name}.")

    def items(self, name: str) -> list[object]:
        value = self._values.get(name)
        if type(value) is not list:
            self.refuse(name, "a list")
        return value

    def objects(self, name: str) -> list[JsonObject]:
        found = []
        for number, value in enumerate(self.items(name)):
            if type(value) is not dict:
                self.refuse(name, f"a list of objects (element {number} is not an object)")
            found.append(JsonObject(value, self.file, f"{self.path}{name}[{number}]."))
        return found

    def texts(self, name: str) -> dict[str, str]:
        inner = self.nested(name)
        if not all(_is_encodable(key) for key in inner.names()):
            self.refuse(name, "keys that UTF-8 can carry")
        return {key: inner.text(key) for key in inner.names()}


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def read_object(data: bytes | memoryview, file: str) -> JsonObject:
    """Parse a whole file as one JSON object. Raises CorruptFile for any other bytes."""
    try:
        value = json.loads(bytes(data).decode("utf-8"), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise CorruptFile(f"no JSON: {error.msg}", file=file, position=error.pos) from error
    except UnicodeDecodeError as error:
        raise CorruptFile(f"no UTF-8: {error.reason}", file=file, position=error.start) from error
    except RecursionError as error:
        raise CorruptFile("not JSON of this program: nested too deeply", file=file) from error
    except ValueError as error:
        raise CorruptFile(f"not JSON of this program: {error}", file=file) from error
    if type(value) is not dict:
        raise CorruptFile(f"expected a JSON object, found {type(value).__name__}", file=file)
    return JsonObject(value, file, "")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def check_format(found: JsonObject, name: str, newest_version: int) -> None:
    """Refuse another format, or a version that this program does not know."""
    if found.text("format") != name:
        found.refuse("format", repr(name))
    written = found.integer("version")
    if not 1 <= written <= newest_version:
        raise CorruptFile(
            f"written in version {written} of {name}, this release knows versions up to {newest_version}. Read this "
            f"archive with a release that knows version {written}",
            file=found.file,
        )


_MIDDLE = b',"sha256":"'
_TAIL = b'"}'
_END_BYTES = len(_MIDDLE) + 2 * sha256().digest_size + len(_TAIL)


def _head(kind: str) -> bytes:
    return b'{"%s":' % kind.encode("ascii")


def seal(kind: str, inner: bytes) -> bytes:
    """The canonical bytes of an object together with their checksum, so that a changed digit anywhere shows.

    The form is {"<kind>":{...},"sha256":"<SHA-256 of the exact bytes of the inner object>"}.
    """
    return b"".join((_head(kind), inner, _MIDDLE, sha256(inner).hexdigest().encode("ascii"), _TAIL))


def unseal(kind: str, data: bytes | memoryview, file: str = "") -> bytes:
    """The inner object's bytes. Raises CorruptFile if they are not those that were sealed."""
    data = bytes(data)
    head = _head(kind)
    inner = data[len(head) : -_END_BYTES]
    seal_found = data[-_END_BYTES:]
    if not data.startswith(head) or seal_found != _MIDDLE + sha256(inner).hexdigest().encode("ascii") + _TAIL:
        raise CorruptFile(
            f"the {kind} is damaged or was edited: its SHA-256 does not match its content",
            file=file,
            advice="restore it from a replica or an earlier object version",
        )
    return inner
