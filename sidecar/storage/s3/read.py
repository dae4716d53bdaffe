"""Reads of S3 objects: ranges into memory, and whole objects as a stream that survives interruptions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from sidecar.errors import ObjectDamaged, StoreUnavailable, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import OnFacts
from sidecar.storage.checksums import crc32c_of
from sidecar.storage.s3.requests import S3Requests, facts_of, stored_crc32c

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_RANGE_BEYOND_THE_END = 416
_CHUNK_BYTES = 1 << 24


def read_range(s3: S3Requests, key: ObjectKey, position: int, size_bytes: int | None, *, whole: bool = False) -> bytes:
    """Up to `size_bytes` bytes from `position`, fewer at the object's end; for `whole`, see `ObjectStore`. Raises ObjectMissing."""
    if size_bytes == 0:
        s3.head(key)  # HTTP has no empty range, but ObjectMissing must still be raised.
        return b""
    if position == 0 and size_bytes is None:
        return b"".join(stream(s3, key, chunk_bytes=_CHUNK_BYTES))
    if position == 0 and size_bytes is not None and whole:
        return _beginning(s3, key, size_bytes)

    def get() -> bytes:
        try:
            answer = _ranged(s3, key, position, size_bytes)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == _RANGE_BEYOND_THE_END:
                return b""
            raise
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


def stream(
    s3: S3Requests, key: ObjectKey, chunk_bytes: int, *, checked: bool = True, on_facts: OnFacts | None = None
) -> Generator[bytes]:
    """All bytes in order; what was interrupted goes on where it stood. `on_facts`: see `ObjectStore`.

    Raises ObjectDamaged if the object ends early or, with `checked`, its bytes do not have the checksum the store keeps.
    """
    answer = s3.repeat("GetObject", key, lambda: s3.client.get_object(**s3.address(key), **s3.checksum_mode()))
    size_bytes = answer["ContentLength"]
    expected = stored_crc32c(answer) if checked else None
    position = crc32c = failures = 0
    try:
        if on_facts is not None:
            on_facts(facts_of(key, answer))
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
                answer = s3.repeat("GetObject", key, lambda: _ranged(s3, key, position))  # noqa: B023
                continue
            if not chunk:
                raise ObjectDamaged(
                    f"{key}: ends at byte {position}, but the store announced {size_bytes} bytes; verify the archive"
                )
            failures = 0
            position += len(chunk)
            crc32c = 0 if expected is None else crc32c_of(chunk, crc32c)
            yield chunk
    finally:
        answer["Body"].close()
    if expected is not None and expected != crc32c:
        raise ObjectDamaged(
            f"{key}: read with CRC-32C {crc32c:08x}, but the store has {expected:08x}; verify the archive"
        )


def _ranged(s3: S3Requests, key: ObjectKey, position: int, size_bytes: int | None = None) -> GetObjectOutputTypeDef:
    """The answer to a request for a range, which must not be the whole object instead: it would be taken into memory."""
    last = "" if size_bytes is None else position + size_bytes - 1
    answer = s3.client.get_object(**s3.address(key), Range=f"bytes={position}-{last}")
    is_a_range = answer.get("ContentRange") is not None or position == 0
    if not is_a_range or (size_bytes is not None and answer["ContentLength"] > size_bytes):
        answer["Body"].close()
        raise StoreUnsafe(f"{key}: the store ignores range requests; the archive cannot be read from it")
    return answer
