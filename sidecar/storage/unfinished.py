"""Multipart uploads that were begun and not ended, of stores that list them and of stores that do not."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.errors import StoreDenied, StoreUnsupported
from sidecar.ports import ObjectStore, UnfinishedUpload

LIFECYCLE_ADVICE = "end them with a lifecycle rule of the bucket (AbortIncompleteMultipartUpload)"
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
