"""A JSON object with its own checksum beside it, so that a changed digit anywhere in it shows::

{"<kind>":{...},"sha256":"<SHA-256 of the exact bytes of the inner object>"}
"""

from __future__ import annotations

from hashlib import sha256

from sidecar.errors import CorruptFile

_MIDDLE = b',"sha256":"'
_TAIL = b'"}'
_END_BYTES = len(_MIDDLE) + 2 * sha256().digest_size + len(_TAIL)


def _head(kind: str) -> bytes:
    return b'{"%s":' % kind.encode("ascii")


def seal(kind: str, inner: bytes) -> bytes:
    """The sealed form of the canonical bytes of an object."""
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
