"""The folder of probe objects, and what killed probes left there."""

from __future__ import annotations

from typing import Final

from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.randomness import Randomness
from sidecar.storage.store_time import is_old
from sidecar.storage.unfinished import list_uploads

PROBE_FOLDER: Final = "_probe"
"""Top-level folder of probe objects; no cluster id is this short."""


def new_probe_folder(randomness: Randomness) -> ObjectKey:
    """A folder of its own for each probe: two never meet under one key."""
    return ObjectKey(f"{PROBE_FOLDER}/{randomness.random_bytes(8).hex()}")


def remove_leftovers(store: ObjectStore, until_ms: int, *, dry_run: bool = False) -> int:
    """Delete probe objects, and abort probe uploads, that are at least as old as `until_ms` by the store's clock; how many.

    A probe that goes on is younger: the caller chooses `until_ms` so. Raises StoreError.
    """
    objects = [found.key for found in store.list(f"{PROBE_FOLDER}/") if is_old(found.modified_ms, until_ms)]
    listed = list_uploads(store, f"{PROBE_FOLDER}/").uploads
    uploads = [upload for upload in listed if is_old(upload.started_ms, until_ms)]
    if not dry_run:
        store.delete(objects)
        for upload in uploads:
            store.abort_upload(upload)
    return len(objects) + len(uploads)
