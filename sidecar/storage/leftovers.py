"""What killed processes leave in a store: multipart uploads that were begun and not ended, and objects of probes."""

from dataclasses import dataclass

from sidecar.errors import StoreDenied, StoreUnsupported
from sidecar.ports import ObjectStore, UnfinishedUpload
from sidecar.storage.store_clock import PROBE_FOLDER, is_old

LIFECYCLE_ADVICE = "let a lifecycle rule of the bucket abort them (AbortIncompleteMultipartUpload)"
DENIED_ADVICE = f"{LIFECYCLE_ADVICE}, or allow s3:ListBucketMultipartUploads"


@dataclass(frozen=True, slots=True)
class ListedUploads:
    """`not_listed`: why the store lists no uploads, or not to us; "" where it does. `advice`: what to do about that."""

    uploads: tuple[UnfinishedUpload, ...] = ()
    not_listed: str = ""
    advice: str = ""

    @property
    def count(self) -> int | None:
        """How many there are; None where that is unknown."""
        return None if self.not_listed else len(self.uploads)


def list_uploads(store: ObjectStore, prefix: str) -> ListedUploads:
    """The unfinished uploads below a prefix. Nothing depends on this listing: its absence is a value, no error.

    Raises StoreError for everything but a missing right and a missing function.
    """
    try:
        return ListedUploads(tuple(store.unfinished_uploads(prefix)))
    except StoreDenied as error:
        return ListedUploads(not_listed=str(error), advice=DENIED_ADVICE)
    except StoreUnsupported as error:
        return ListedUploads(not_listed=str(error), advice=LIFECYCLE_ADVICE)


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
