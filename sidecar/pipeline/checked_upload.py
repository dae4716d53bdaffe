"""Uploads that are read back: nothing is committed of which the store does not have what was sent."""

from __future__ import annotations

from sidecar.errors import ObjectDamaged, ObjectMissing
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore, UploadSource
from sidecar.storage import BytesSource


def send(store: ObjectStore, key: ObjectKey, source: UploadSource) -> int:
    """Upload an object of any size under a fresh key; its CRC-32C. Raises StoreError, and what the source raises."""
    receipt = store.upload(key, source)
    facts = store.head(key)
    if facts is None:
        raise ObjectDamaged(f"{key}: the store confirmed the upload, but has no such object")
    if facts.size_bytes != source.size_bytes or facts.crc32c not in (None, receipt.crc32c):
        raise ObjectDamaged(
            f"{key}: stored are {facts.size_bytes} bytes with CRC-32C {facts.crc32c}, sent were {source.size_bytes} bytes with "
            f"{receipt.crc32c}: nothing was committed"
        )
    return receipt.crc32c


def send_bytes(store: ObjectStore, key: ObjectKey, body: bytes) -> None:
    """Upload a small object under a fresh key, and compare every byte. Raises StoreError."""
    store.upload(key, BytesSource(body))
    try:
        is_there = store.read(key) == body
    except ObjectMissing:
        is_there = False
    if not is_there:
        raise ObjectDamaged(f"{key}: reads back other bytes than were sent: check the store's disks and proxies")
