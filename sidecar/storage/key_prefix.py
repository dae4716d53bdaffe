"""Keys relative to a store's root, and the prefix that leads to it."""

from __future__ import annotations

from sidecar.errors import StoreError
from sidecar.model import ObjectKey

_KEY_BYTES_MAX = 1024
"""S3's own limit."""


def check_key(key: str) -> str:
    """The key itself, if every element of it is a plain name. Raises StoreError for what could leave the root."""
    if any(element in {"", ".", ".."} for element in key.split("/")) or "\0" in key:
        raise StoreError(f"{key!r} is not an object key: elements must not be empty, '.' or '..'")
    if len(key.encode()) > _KEY_BYTES_MAX:
        raise StoreError(f"{key[:80]!r}… is too long for an object key: more than {_KEY_BYTES_MAX} bytes")
    return key


class KeyPrefix:
    """Translates between keys of the port and names in the bucket."""

    def __init__(self, path: str) -> None:
        """Args: path: of the store's URL, with or without slashes at its ends; "" for the whole bucket."""
        stripped = path.strip("/")
        self.path = f"{check_key(stripped)}/" if stripped else ""

    def name(self, key: str) -> str:
        return self.path + check_key(key)

    def listing(self, prefix: str) -> str:
        """Full form of a listing prefix, which may end anywhere."""
        return self.path + prefix

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(name[len(self.path) :])
