"""Reads of S3: objects listed page by page, ranges into memory, and whole objects as a stream that survives interruptions."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from sidecar.errors import ObjectDamaged, StoreUnavailable, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import LISTED_AT_FIRST, ObjectFacts, UnfinishedUpload
from sidecar.storage.checksums import crc32c_of
from sidecar.storage.s3.requests import S3Requests, stored_crc32c
from sidecar.storage.store_time import milliseconds_of

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_RANGE_BEYOND_THE_END = 416
_CHUNK_BYTES = 1 << 24


def read_range(s3: S3Requests, key: ObjectKey, position: int, size_bytes: int | None, *, whole: bool = False) -> bytes:
    """Up to `size_bytes` bytes from `position`, fewer at the object's end; for `whole`, see `ObjectStore`. Raises ObjectMissing."""
    if size_bytes == 0:
        s3.head(key)  # HTTP has no empty range, but the promise to raise ObjectMissing stands.
        return b""
    if position == 0 and size_bytes is None:
        return b"".join(stream(s3, key, chunk_bytes=_CHUNK_BYTES))
    if position == 0 and size_bytes is not None and whole:
        return _beginning(s3, key, size_bytes)
    last = "" if size_bytes is None else position + size_bytes - 1

    def get() -> bytes:
        try:
            answer = s3.client.get_object(**s3.address(key), Range=f"bytes={position}-{last}")
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == _RANGE_BEYOND_THE_END:
                return b""
            raise
        _refuse_ignored_range(answer, key, position, size_bytes)
        # Not `with body`: that would hand out the raw stream, without the length check of botocore's.
        with closing(answer["Body"]) as body:
            return body.read()

    return s3.repeat("GetObject", key, get)


def _beginning(s3: S3Requests, key: ObjectKey, size_bytes: int) -> bytes:
    data = bytearray()
    chunks = stream(s3, key, min(_CHUNK_BYTES, size_bytes))
    with closing(chunks):
        for chunk in chunks:
            data += chunk
            if len(data) >= size_bytes:
                break
    return bytes(data[:size_bytes])


def stream(s3: S3Requests, key: ObjectKey, chunk_bytes: int) -> Generator[bytes]:
    """All bytes in order; what was interrupted goes on where it stood.

    Raises ObjectDamaged if the object ends early or its bytes do not have the checksum the store keeps.
    """
    answer = s3.repeat("GetObject", key, lambda: s3.client.get_object(**s3.address(key), **s3.checksum_mode()))
    size_bytes = answer["ContentLength"]
    expected = stored_crc32c(answer)
    position = crc32c = failures = 0
    try:
        while position < size_bytes:
            wanted_bytes = min(chunk_bytes, size_bytes - position)
            try:
                chunk = s3.send("GetObject", key, lambda: answer["Body"].read(wanted_bytes))  # noqa: B023 - called at once
            except StoreUnavailable:
                failures += 1
                if failures >= s3.retrier.attempts:
                    raise
                answer["Body"].close()
                s3.retrier.pause(failures)
                answer = s3.repeat("GetObject", key, lambda: _from(s3, key, position))  # noqa: B023
                continue
            if not chunk:
                raise ObjectDamaged(
                    f"{key}: ends at byte {position}, announced were {size_bytes} bytes; verify the archive"
                )
            failures = 0
            position += len(chunk)
            crc32c = crc32c_of(chunk, crc32c)
            yield chunk
    finally:
        answer["Body"].close()
    if expected is not None and expected != crc32c:
        raise ObjectDamaged(
            f"{key}: read with CRC-32C {crc32c:08x}, the store keeps {expected:08x}; verify the archive"
        )


def _from(s3: S3Requests, key: ObjectKey, position: int) -> GetObjectOutputTypeDef:
    answer = s3.client.get_object(**s3.address(key), Range=f"bytes={position}-")
    _refuse_ignored_range(answer, key, position, None)
    return answer


def _refuse_ignored_range(
    answer: GetObjectOutputTypeDef, key: ObjectKey, position: int, size_bytes: int | None
) -> None:
    """A store may answer with everything instead of the range: that must not be taken for the range, nor into memory."""
    is_a_range = answer.get("ContentRange") is not None or position == 0
    if not is_a_range or (size_bytes is not None and answer["ContentLength"] > size_bytes):
        answer["Body"].close()
        raise StoreUnsafe(f"{key}: the store ignores range requests; the archive cannot be read from it")


if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ListMultipartUploadsOutputTypeDef, ListObjectsV2OutputTypeDef


def list_objects(s3: S3Requests, prefix: str, start_after: str) -> Iterator[ObjectFacts]:
    """Objects in ascending order. Raises StoreUnsafe if the store lists them otherwise: readers of commits rely on it."""
    last = start_after
    after = {"StartAfter": s3.prefix.listing(start_after)} if start_after else {}
    for page in _pages(s3, prefix, after, first={"MaxKeys": LISTED_AT_FIRST}):
        for entry in page.get("Contents", []):
            key = s3.prefix.key(entry["Key"])
            # A folder marker of somebody's console, or a store that ignores StartAfter.
            if key.endswith("/") or not key or key <= start_after:
                continue
            if key <= last:
                raise StoreUnsafe(f"{s3.bucket}: lists {key} after {last}; a store must list in ascending order")
            last = key
            etag = entry.get("ETag", "")
            yield ObjectFacts(
                key,
                entry["Size"],
                milliseconds_of(entry["LastModified"]),
                etag=etag if etag and not etag.startswith("W/") else None,
            )


def list_folders(s3: S3Requests, prefix: str) -> Iterator[str]:
    """Names between `prefix` and the next slash."""
    last = ""
    for page in _pages(s3, prefix, {"Delimiter": "/"}):
        for entry in page.get("CommonPrefixes", []):
            name = entry["Prefix"][len(s3.prefix.listing(prefix)) :].rstrip("/")
            if name and name != last:
                last = name
                yield name


def list_unfinished_uploads(s3: S3Requests, prefix: str) -> Iterator[UnfinishedUpload]:
    """Multipart uploads neither completed nor aborted."""
    markers: dict[str, Any] = {}
    while True:
        parameters = {"Bucket": s3.bucket, "Prefix": s3.prefix.listing(prefix), **markers}
        page = s3.repeat(
            "ListMultipartUploads",
            prefix,
            lambda: _uploads_page(s3, parameters),  # noqa: B023 - called at once
        )
        for entry in page.get("Uploads", []):
            started_ms = milliseconds_of(entry.get("Initiated"))
            yield UnfinishedUpload(s3.prefix.key(entry["Key"]), entry["UploadId"], started_ms)
        following = {"KeyMarker": page.get("NextKeyMarker"), "UploadIdMarker": page.get("NextUploadIdMarker")}
        if not page.get("IsTruncated"):
            return
        if following == markers or not following["KeyMarker"]:
            raise StoreUnsafe(f"{s3.bucket}: the listing of multipart uploads does not go on after {markers}")
        markers = {name: marker for name, marker in following.items() if marker}


def _uploads_page(s3: S3Requests, parameters: dict[str, Any]) -> ListMultipartUploadsOutputTypeDef | dict[str, Any]:
    """rclone and gofakes3 answer NoSuchUpload until a bucket has had its first multipart upload: there are none."""
    try:
        return s3.client.list_multipart_uploads(**parameters)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchUpload":
            raise
        return {}


def _pages(
    s3: S3Requests, prefix: str, parameters: dict[str, Any], first: Mapping[str, Any] | None = None
) -> Iterator[ListObjectsV2OutputTypeDef]:
    """Args: first: parameters of the first request alone."""
    token: dict[str, Any] = dict(first or {})
    while True:
        request = {"Bucket": s3.bucket, "Prefix": s3.prefix.listing(prefix), **parameters, **token}
        page = s3.repeat(
            "ListObjectsV2",
            ObjectKey(prefix),
            lambda: s3.client.list_objects_v2(**request),  # noqa: B023 - called at once
        )
        yield page
        following = page.get("NextContinuationToken")
        if not page.get("IsTruncated"):
            return
        if not following or following == token.get("ContinuationToken"):
            raise StoreUnsafe(f"{s3.bucket}: the listing below {prefix!r} does not go on after its page")
        token = {"ContinuationToken": following}
