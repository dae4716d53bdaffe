"""Uploads that are checked: nothing is committed of which the store does not have what was checked before."""

from functools import reduce

from crc32c import crc32c

from sidecar.errors import ObjectDamaged, ObjectExists, ObjectMissing, SegmentChanged
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore, UploadSource
from sidecar.storage.checksums import hex_text
from sidecar.storage.source import BytesSource


def send_checked(
    store: ObjectStore, key: ObjectKey, source: UploadSource, checked_crc32c: int, *, reads_back: bool = False
) -> None:
    """Upload an object under a fresh key, and prove that the store has exactly the bytes that were checked.

    Args:
        checked_crc32c: of all bytes of the source, as they were when they were checked.
        reads_back: read all bytes back where the store keeps no checksum of whole objects. Else only their number is compared.

    Raises SegmentChanged if the source has other bytes by now, StoreError, and what the source raises.
    """
    require_same(source.name, checked_crc32c, store.upload(key, source))
    facts = store.head(key)
    if facts is None:
        raise ObjectDamaged(
            f"{key}: the store confirmed the upload, but has no such object: nothing was committed. Run doctor "
            "--area store"
        )
    stored = facts.crc32c
    if stored is None and reads_back:
        stored = reduce(lambda crc, piece: crc32c(piece, crc), store.stream(key), 0)
    if facts.size_bytes != source.size_bytes or stored not in (None, checked_crc32c):
        raise ObjectDamaged(
            f"{key}: the store has {facts.size_bytes} bytes with CRC-32C {hex_text(stored)}, the sidecar sent "
            f"{source.size_bytes} bytes with {hex_text(checked_crc32c)}: nothing was committed. Run doctor --area store"
        )


def require_same(file: str, checked_crc32c: int, sent_crc32c: int) -> None:
    """Raise SegmentChanged unless what was sent of a file is what was checked: a disk or memory may fail between two reads."""
    if sent_crc32c != checked_crc32c:
        raise SegmentChanged(
            f"{file}: had CRC-32C {hex_text(checked_crc32c)} when it was checked, and {hex_text(sent_crc32c)} when it was "
            f"uploaded: two reads gave different bytes. Nothing was committed. Try again; if it happens again, check the "
            f"disk and the memory of this host"
        )


def send_bytes(store: ObjectStore, key: ObjectKey, body: bytes) -> None:
    """Upload a small object, and compare every byte. Raises ObjectExists if the key has other bytes already, other StoreErrors."""
    taken: ObjectExists | None = None
    try:
        store.upload(key, BytesSource(body))
    except ObjectExists as error:
        taken = error  # Perhaps by an interrupted attempt, with the same bytes.
    try:
        is_there = store.read(key) == body
    except ObjectMissing:
        is_there = False
    if not is_there:
        raise taken or ObjectDamaged(
            f"{key}: the store returned other bytes than were sent: check the store's disks and proxies"
        )
