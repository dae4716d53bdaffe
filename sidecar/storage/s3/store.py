"""The S3 adapter of `ports.ObjectStore`, on boto3 clients and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from sidecar.clock import Clock
from sidecar.errors import (
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    SidecarError,
    StoreUnavailable,
    StoreUnsafe,
)
from sidecar.model import ObjectKey
from sidecar.plurals import plural
from sidecar.ports import LISTED_AT_FIRST, MIB, ObjectFacts, OnFacts, UnfinishedUpload, UploadSource
from sidecar.randomness import SystemRandomness
from sidecar.storage.bandwidth import IoBudget
from sidecar.storage.checksums import crc32c_of
from sidecar.storage.object_keys import check_key
from sidecar.storage.retry import Retrier, StoreLiveness
from sidecar.storage.s3.errors import NO_SUCH_KEY
from sidecar.storage.s3.read import read_range, stream
from sidecar.storage.s3.request_body import HeldBody, note_sending
from sidecar.storage.s3.requests import S3Requests, make_client
from sidecar.storage.s3.upload import PartBuffers, Upload
from sidecar.storage.store_clock import milliseconds_of
from sidecar.store_settings import ChecksumMode, StoreSettings

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ListMultipartUploadsOutputTypeDef

    from sidecar.storage.s3.bucket_rules import BucketRules

Page = TypeVar("Page", bound=Mapping[str, Any])
_OBJECT_MARKERS = {"ContinuationToken": "NextContinuationToken"}
_UPLOAD_MARKERS = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
"""Parameters with which a listing goes on, and what its pages call them."""
_DELETE_BATCH = 1000
_SMALL_BYTES = MIB
"""Objects up to this size do not count against the bound of buffers in memory."""

_LOOKS = tuple(threading.Lock() for _ in range(64))
"""By key. Without conditional writes a check and its put are one step: uploads, compaction and gc of a process commit at once."""


class S3Store:
    """Objects of one bucket below one prefix. Safe for use from several threads."""

    lists_by_page = True

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        budget: IoBudget | None = None,
        answers: StoreLiveness | None = None,
    ) -> None:
        """Makes a client, sends nothing. Raises SettingsError. `answers`: called with whether there are any."""
        parts = urlsplit(settings.url)
        path = parts.path.strip("/")
        prefix = f"{check_key(path)}/" if path else ""
        self.url = f"s3://{parts.netloc}/{prefix}".rstrip("/")
        retrier = Retrier(settings.retry, clock, SystemRandomness())
        client = make_client(settings.s3)
        client.meta.events.register("before-send.s3", note_sending)
        self._s3 = S3Requests(client, parts.netloc, prefix, settings.s3, retrier, answers or StoreLiveness(clock))
        self._pool = ThreadPoolExecutor(settings.s3.concurrency, thread_name_prefix="s3-upload")
        self._buffers = PartBuffers(settings.s3.part_bytes)
        self._budget = budget or IoBudget.of(settings, clock)

    def close(self) -> None:
        self._pool.shutdown()
        self._s3.client.close()

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`. Repeated only where the store said that it did nothing."""
        with nullcontext() if self._s3.settings.conditional_writes else _LOOKS[hash(key) % len(_LOOKS)]:
            self._put_if_absent(key, body, lambda: body)

    def put_if_absent_held(self, key: ObjectKey, body: bytes, before_last_bytes: Callable[[], None]) -> None:
        """As `put_if_absent`; each time that all but the body's end has been sent, `before_last_bytes` is called."""
        self._put_if_absent(key, body, lambda: HeldBody(body, before_last_bytes))

    def _put_if_absent(self, key: ObjectKey, body: bytes, as_sent: Callable[[], Any]) -> None:
        s3 = self._s3
        checksum = s3.checksum(crc32c_of(body))
        refusals: list[StoreUnavailable] = []

        def put() -> None:
            if not s3.settings.conditional_writes and self.head(key) is not None:
                raise ObjectExists(f"PutObject {key} at {self.url}: the key exists already")
            s3.client.put_object(**s3.address(key), **s3.creation(), **s3.create_only(), **checksum, Body=as_sent())

        def attempt() -> None:
            try:
                s3.send("PutObject", key, put, creates=True)
            except StoreUnavailable as error:
                refusals.append(error)
                raise

        try:
            s3.retrier.run(attempt)
        except SidecarError as error:
            # A proxy may have said 503 for a put that took hold. The answer to a later attempt (412, 403) proves nothing then.
            if refusals and not isinstance(error, StoreUnavailable):
                raise OutcomeUnknown(
                    f"{error}, but an earlier attempt of this request failed with: {refusals[-1]}"
                ) from error
            raise

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        return self.upload_in_parts(key, source, self._s3.settings.part_bytes)

    def upload_in_parts(self, key: ObjectKey, source: UploadSource, part_bytes: int) -> int:
        """As `upload`, with another part size than the settings' (the probe takes S3's smallest)."""
        upload = Upload(self._s3, key, source, self._budget.uploads)
        if source.size_bytes <= _SMALL_BYTES:
            # At once: behind another segment's queued parts it would hold up its own segment's commit.
            return upload.put_whole()
        if source.size_bytes <= part_bytes:
            # In a worker, so that small objects too count against the bound of buffers in memory.
            return self._pool.submit(upload.put_whole).result()
        return upload.put_parts(self._pool, part_bytes, self._buffers)

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        return self._budget.reads.take_read(read_range(self._s3, key, position, size_bytes, whole=whole))

    def stream(
        self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True, on_facts: OnFacts | None = None
    ) -> Iterator[bytes]:
        """See `ObjectStore`. Raises ObjectDamaged if length or checksum are not those of the object's headers."""
        for chunk in stream(self._s3, key, chunk_bytes, checked=checked, on_facts=on_facts):
            yield self._budget.reads.take_read(chunk)

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        try:
            return self._s3.head(key)
        except ObjectMissing:
            return None

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        """See `ObjectStore`. Raises StoreUnsafe if the store lists in another order: readers of commits rely on it."""
        last = start_after
        after: dict[str, Any] = {"StartAfter": self._s3.prefix + start_after} if start_after else {}
        call = partial(self._s3.client.list_objects_v2, **after)
        for page in self._pages("ListObjectsV2", prefix, call, _OBJECT_MARKERS, MaxKeys=LISTED_AT_FIRST):
            for entry in page.get("Contents", []):
                key = self._s3.key(entry["Key"])
                # A folder marker of somebody's console, or a store that ignores StartAfter.
                if key.endswith("/") or not key or key <= start_after:
                    continue
                if key <= last:
                    raise StoreUnsafe(
                        f"{self._s3.bucket}: lists {key} after {last}; a store must list in ascending order. "
                        "Use another store"
                    )
                last = key
                etag = entry.get("ETag", "")
                yield ObjectFacts(
                    key,
                    entry["Size"],
                    milliseconds_of(entry["LastModified"]),
                    etag=etag if etag and not etag.startswith("W/") else None,
                )

    def list_folders(self, prefix: str) -> Iterator[str]:
        last = ""
        call = partial(self._s3.client.list_objects_v2, Delimiter="/")
        for page in self._pages("ListObjectsV2", prefix, call, _OBJECT_MARKERS):
            for entry in page.get("CommonPrefixes", []):
                name = self._s3.key(entry["Prefix"])[len(prefix) :].rstrip("/")
                if name and name != last:
                    last = name
                    yield name

    def _pages(
        self, operation: str, prefix: str, call: Callable[..., Page], markers: Mapping[str, str], **first: int
    ) -> Iterator[Page]:
        """The pages of a listing.

        Args:
            markers: as above; a page that is not the last one has the first of them.
            first: parameters of the first request alone.
        """
        s3, marked = self._s3, dict[str, Any](first)
        while True:
            request = {"Bucket": s3.bucket, "Prefix": s3.prefix + prefix, **marked}
            page = s3.repeat(operation, prefix, lambda: call(**request))  # noqa: B023 - called at once
            yield page
            if not page.get("IsTruncated"):
                return
            following = {name: page[given] for name, given in markers.items() if page.get(given)}
            if following == marked or next(iter(markers)) not in following:
                raise StoreUnsafe(
                    f"{s3.bucket}: {operation} below {prefix!r} does not continue after its page. Use another store"
                )
            marked = following

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        remaining = iter(keys)
        while batch := list(islice(remaining, _DELETE_BATCH)):
            if self._s3.settings.checksum is ChecksumMode.NONE or len(batch) == 1:
                # Stores without the new checksums also refuse the checksum that botocore puts on DeleteObjects.
                for key in batch:
                    address = self._s3.address(key)
                    with suppress(ObjectMissing):
                        self._s3.repeat("DeleteObject", key, partial(self._s3.client.delete_object, **address))
            else:
                self._delete_batch(batch)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        for page in self._pages("ListMultipartUploads", prefix, self._uploads_page, _UPLOAD_MARKERS):
            for entry in page.get("Uploads", []):
                started_ms = milliseconds_of(entry.get("Initiated"))
                yield UnfinishedUpload(self._s3.key(entry["Key"]), entry["UploadId"], started_ms)

    def _uploads_page(self, **parameters: Any) -> ListMultipartUploadsOutputTypeDef | dict[str, Any]:
        """rclone and gofakes3 answer NoSuchUpload until a bucket has had its first multipart upload: there are none."""
        try:
            return self._s3.client.list_multipart_uploads(**parameters)
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchUpload":
                raise
            return {}

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See `ObjectStore`. An upload that has ended meanwhile is no error."""
        target = {**self._s3.address(upload.key), "UploadId": upload.upload_id}
        with suppress(ObjectMissing):
            self._s3.repeat(
                "AbortMultipartUpload", upload.key, partial(self._s3.client.abort_multipart_upload, **target)
            )

    @property
    def endpoint_url(self) -> str:
        """Where requests go, before the bucket's name is put in."""
        return self._s3.client.meta.endpoint_url

    def bucket_rules(self) -> BucketRules:
        from sidecar.storage.s3.bucket_rules import read_bucket_rules  # for `doctor` only

        return read_bucket_rules(self._s3)

    def _delete_batch(self, batch: Sequence[ObjectKey]) -> None:
        s3 = self._s3
        names: Any = [{"Key": s3.prefix + check_key(key)} for key in batch]

        def delete() -> None:
            answer: Any = s3.client.delete_objects(Bucket=s3.bucket, Delete={"Objects": names, "Quiet": True})
            refused = [error for error in answer.get("Errors", []) if error.get("Code") not in NO_SUCH_KEY]
            if refused:
                reported = {error.get("Key") for error in refused}
                left = [name for name in names if name["Key"] in reported]
                if len(left) == len(refused):  # Else all are repeated: a store may report no key, or another one.
                    names[:] = left
                first = refused[0]
                message = (
                    f"{plural(len(refused), 'object')} not deleted, first {first.get('Key')}: {first.get('Message')}"
                )
                answer["Error"] = {**first, "Message": message}
                raise ClientError(answer, "DeleteObjects")

        s3.repeat(f"DeleteObjects ({len(batch)}) from", batch[0], delete)
