"""Uploads that are read back: nothing is committed of which the store does not have what was sent."""

from __future__ import annotations

from functools import reduce

from crc32c import crc32c

from sidecar.errors import ObjectDamaged, ObjectMissing
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore, UploadSource
from sidecar.storage.checksums import hex_text
from sidecar.storage.source import BytesSource


def send_checked(store: ObjectStore, key: ObjectKey, source: UploadSource, checksum: int) -> None:
    """Upload an object whose CRC-32C is known, and prove that the store holds exactly those bytes.

    Where the store keeps no checksum of whole objects, all bytes are read back. Raises StoreError, and what the source raises.
    """
    sent, stored = send(store, key, source)
    if stored is None:
        stored = reduce(lambda crc, piece: crc32c(piece, crc), store.stream(key), 0)
    if (sent, stored) != (checksum, checksum):
        raise ObjectDamaged(
            f"{key}: CRC-32C {checksum:08x} was checked, {sent:08x} was sent, {stored:08x} is stored: nothing was committed. "
            f"Check the store's disks and proxies with doctor --area store"
        )


def send(store: ObjectStore, key: ObjectKey, source: UploadSource) -> tuple[int, int | None]:
    """Upload an object under a fresh key and ask for it: the CRC-32C that was sent, and the store's, None if it keeps none.

    Raises StoreError, and what the source raises.
    """
    receipt = store.upload(key, source)
    facts = store.head(key)
    if facts is None:
        raise ObjectDamaged(
            f"{key}: the store confirmed the upload, but has no such object: nothing was committed. Run doctor "
            "--area store"
        )
    if facts.size_bytes != source.size_bytes or facts.crc32c not in (None, receipt.crc32c):
        raise ObjectDamaged(
            f"{key}: the store has {facts.size_bytes} bytes with CRC-32C {hex_text(facts.crc32c)}, the sidecar sent "
            f"{source.size_bytes} bytes with {hex_text(receipt.crc32c)}: nothing was committed. Run doctor --area store"
        )
    return receipt.crc32c, facts.crc32c


def send_bytes(store: ObjectStore, key: ObjectKey, body: bytes) -> None:
    """Upload a small object under a fresh key, and compare every byte. Raises StoreError."""
    store.upload(key, BytesSource(body))
    try:
        is_there = store.read(key) == body
    except ObjectMissing:
        is_there = False
    if not is_there:
        raise ObjectDamaged(
            f"{key}: the store returned other bytes than were sent: check the store's disks and proxies"
        )
