"""Listings of an S3 bucket, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from sidecar.errors import StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import LISTED_AT_FIRST, ObjectFacts, UnfinishedUpload
from sidecar.storage.s3.requests import S3Requests
from sidecar.storage.store_time import milliseconds_of

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
