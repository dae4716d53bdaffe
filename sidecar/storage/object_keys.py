"""Which keys a store takes: none may leave its root."""

from sidecar.errors import StoreError

_KEY_BYTES_MAX = 1024
"""S3's own limit."""


def check_key(key: str) -> str:
    """The key itself, if every element of it is a plain name. Raises StoreError for what could leave the root."""
    if any(element in {"", ".", ".."} for element in key.split("/")) or "\0" in key:
        raise StoreError(f"{key!r} is not an object key: elements must not be empty, '.' or '..'")
    if len(key.encode()) > _KEY_BYTES_MAX:
        raise StoreError(f"{key[:80]!r}… is too long for an object key: more than {_KEY_BYTES_MAX} bytes")
    return key
