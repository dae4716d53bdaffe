"""Uploads of an object under a fresh key, in one put or in parallel parts, and the settling of unknown outcomes.

Parts have a CRC-32C each, and one for the whole. Memory is bounded by part size times the workers of the pool, which all uploads
of a store share: a worker reads its part once, hashes it and sends it from the same buffer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sidecar.errors import ObjectDamaged, ObjectMissing, OutcomeUnknown, SidecarError, StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.ports import MIB, UploadReceipt, UploadSource
from sidecar.storage.bandwidth import BandwidthLimit
from sidecar.storage.checksums import combine_parts, composite_text, crc32c_of, hex_text, reported_text, to_text
from sidecar.storage.s3.request_body import PacedBody
from sidecar.storage.s3.requests import S3Requests
from sidecar.storage.source import FileSource

Answer = TypeVar("Answer")


class Upload:
    """One object on its way. A key of its own lets it settle an unknown outcome by a read: no other writer can have
    created the object."""

    def __init__(self, requests: S3Requests, key: ObjectKey, source: UploadSource, limit: BandwidthLimit) -> None:
        self.s3 = requests
        self.key = key
        self.source = source
        self._limit = limit
        self._requests = 0
        self._lock = threading.Lock()

    def put_whole(self) -> UploadReceipt:
        """Send everything in one request; memory is the object's size."""
        body = bytes(self.source.read_at(0, self.source.size_bytes))
        crc32c = crc32c_of(body)

        def put() -> None:
            self.count_request()
            self.s3.client.put_object(
                **self.s3.address(self.key),
                **self.s3.creation(),
                **self.s3.create_only(),
                **self.s3.checksum(crc32c),
                Body=self.paced(body),
            )

        self.settled("PutObject", put, crc32c)
        return self.receipt(crc32c)

    def receipt(self, crc32c: int) -> UploadReceipt:
        return UploadReceipt(crc32c, self._requests)

    def count_request(self) -> None:
        with self._lock:
            self._requests += 1

    def paced(self, body: bytes | bytearray) -> bytes:
        """The body as the bandwidth limit wants it; without a limit it goes to the socket in one call.

        The stubs name fewer types than botocore takes: bytearray and whatever reads are fine with it.
        """
        if self._limit.bytes_per_s is not None:
            return cast("bytes", PacedBody(body, self._limit))
        self._limit.take(len(body))
        return cast("bytes", body)

    def settled(self, operation: str, call: Callable[[], Answer], crc32c: int) -> Answer | None:
        """Make the object come into being; None if an answer was lost but the object is there as it should be.

        Raises OutcomeUnknown where the store does not answer to the last, ObjectExists if the key was taken beforehand.
        """
        doubt: SidecarError | None = None
        for failures in range(1, self.s3.retrier.attempts + 1):
            try:
                return self.s3.send(operation, self.key, call, creates=True)
            except (OutcomeUnknown, StoreUnavailable) as error:
                doubt = error if isinstance(error, OutcomeUnknown) or doubt is None else doubt
                if failures == self.s3.retrier.attempts:
                    raise doubt from error
                self.s3.retrier.pause(failures)
            except ObjectDamaged:
                # Refused for its checksum, so not stored: bytes changed on the way may arrive intact the next time.
                if failures > 1 or failures == self.s3.retrier.attempts:
                    raise
            except SidecarError as error:
                # A repeated put finds its own object, a repeated completion finds its upload gone or is refused: an earlier
                # attempt may have taken hold.
                if doubt is None:
                    raise
                if not self._is_in_place(crc32c):
                    raise OutcomeUnknown(f"{doubt}; a later attempt: {error}") from error
                return None
            if isinstance(doubt, OutcomeUnknown) and self._is_in_place(crc32c):
                return None
        raise AssertionError("the last attempt returns or raises")

    def _is_in_place(self, crc32c: int) -> bool:
        """Whether the object is there. Raises ObjectDamaged if it is, but other than it was sent."""
        self.count_request()
        try:
            found = self.s3.head(self.key)
        except ObjectMissing:
            return False
        if found.size_bytes != self.source.size_bytes or found.crc32c not in {None, crc32c}:
            raise ObjectDamaged(
                f"{self.key}: the store has {found.size_bytes} bytes with CRC-32C {hex_text(found.crc32c)}, but "
                f"{self.source.size_bytes} bytes with {hex_text(crc32c)} were sent; no commit names this object, and gc deletes it"
            )
        return True


_STEP_BYTES = 256 * 1024
"""Read and hashed at a time: what was just read is hashed while it is in the processor's cache."""


class PartBuffers:
    """Buffers of one size for parts under way, lent to one worker at a time. All are freed when none is in use.

    A fresh allocation per part costs a page fault for every 4 KiB of it: as much CPU as the whole rest of sending it.
    """

    def __init__(self, part_bytes: int) -> None:
        self.part_bytes = part_bytes
        self._free: list[bytearray] = []
        self._lent = 0
        self._lock = threading.Lock()

    @contextmanager
    def part(self, source: UploadSource, position: int, size_bytes: int) -> Iterator[tuple[bytes | bytearray, int]]:
        """The bytes of a part and their CRC-32C; valid until the block is left.

        botocore takes no memoryview, so only parts that fill a buffer are sent from it; the last part is a copy.
        """
        if size_bytes != self.part_bytes or not isinstance(source, FileSource):
            body = bytes(source.read_at(position, size_bytes))
            yield body, crc32c_of(body)
            return
        buffer = self._take()
        try:
            yield buffer, _fill(buffer, source, position)
        finally:
            self._give_back(buffer)

    def _take(self) -> bytearray:
        with self._lock:
            self._lent += 1
            if self._free:
                return self._free.pop()
        return bytearray(self.part_bytes)

    def _give_back(self, buffer: bytearray) -> None:
        with self._lock:
            self._lent -= 1
            if self._lent == 0:
                self._free.clear()
            else:
                self._free.append(buffer)


def _fill(buffer: bytearray, source: FileSource, position: int) -> int:
    crc32c = 0
    with memoryview(buffer) as whole:
        for start in range(0, len(whole), _STEP_BYTES):
            with whole[start : start + _STEP_BYTES] as step:
                source.read_into(position + start, step)
                crc32c = crc32c_of(step, crc32c)
    return crc32c


if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import (
        CompletedPartTypeDef,
        CompleteMultipartUploadOutputTypeDef,
        CreateMultipartUploadOutputTypeDef,
    )

PARTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SentPart:
    number: int
    etag: str
    crc32c: int
    size_bytes: int


class MultipartUpload:
    """One multipart upload from creation to completion, or to its abort."""

    def __init__(self, upload: Upload, upload_id: str, buffers: PartBuffers, *, whole_checksum: bool) -> None:
        """Args: whole_checksum: the store agreed to check the whole object against one CRC-32C."""
        self._upload = upload
        self._whole_checksum = whole_checksum
        self._s3 = upload.s3
        self._buffers = buffers
        self._target = {**upload.s3.address(upload.key), "UploadId": upload_id}
        self._cancelled = threading.Event()

    def run(self, pool: ThreadPoolExecutor) -> UploadReceipt:
        """Send all parts and complete; on any failure abort."""
        with ExitStack() as unless_whole:
            unless_whole.callback(self._abort)
            parts = self._send_parts(pool)
            crc32c = combine_parts([(part.crc32c, part.size_bytes) for part in parts])
            self._complete(parts, crc32c)
            unless_whole.pop_all()
        return self._upload.receipt(crc32c)

    def _abort(self) -> None:
        """An abort that fails, too, is left to `unfinished_uploads`."""
        with suppress(SidecarError):
            abort = partial(self._s3.client.abort_multipart_upload, **self._target)
            self._s3.send("AbortMultipartUpload", self._upload.key, abort)

    def _send_parts(self, pool: ThreadPoolExecutor) -> list[SentPart]:
        size_bytes = self._upload.source.size_bytes
        futures: list[Future[SentPart | None]] = [
            pool.submit(self._send_part, 1 + position // self._buffers.part_bytes, position)
            for position in range(0, size_bytes, self._buffers.part_bytes)
        ]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            # No part may still be on its way when the upload is aborted: it would be stored and never freed.
            if any(not future.done() or future.exception() is not None for future in futures):
                self._cancelled.set()
            wait(futures)
        # A part that was left out (None) comes with one that failed, whose error `result` raises.
        return [part for part in (future.result() for future in futures) if part is not None]

    def _send_part(self, number: int, position: int) -> SentPart | None:
        if self._cancelled.is_set():
            return None
        upload = self._upload
        size_bytes = min(self._buffers.part_bytes, upload.source.size_bytes - position)
        with self._buffers.part(upload.source, position, size_bytes) as (body, crc32c):

            def put() -> str:
                upload.count_request()
                answer = self._s3.client.upload_part(
                    **self._target, PartNumber=number, Body=upload.paced(body), **self._s3.checksum(crc32c)
                )
                return answer["ETag"]

            etag = self._s3.repeat(f"UploadPart {number} of", upload.key, put)
        return SentPart(number, etag, crc32c, size_bytes)

    def _complete(self, parts: list[SentPart], crc32c: int) -> None:
        listed: list[CompletedPartTypeDef] = [
            {"PartNumber": part.number, "ETag": part.etag, "ChecksumCRC32C": to_text(part.crc32c)}
            if self._s3.checksums
            else {"PartNumber": part.number, "ETag": part.etag}
            for part in parts
        ]
        whole: dict[str, Any] = {}
        if self._whole_checksum:
            whole = {**self._s3.checksum(crc32c), "ChecksumType": "FULL_OBJECT"}

        def complete() -> CompleteMultipartUploadOutputTypeDef:
            self._upload.count_request()
            return self._s3.client.complete_multipart_upload(
                **self._target, MultipartUpload={"Parts": listed}, **self._s3.create_only(), **whole
            )

        answer = self._upload.settled("CompleteMultipartUpload", complete, crc32c)
        if answer is not None:
            self._compare(answer.get("ChecksumCRC32C"), parts, crc32c)

    def _compare(self, reported: str | None, parts: list[SentPart], crc32c: int) -> None:
        if reported is None or not self._s3.checksums:
            return
        # Stores that do not know FULL_OBJECT answer with the checksum of the parts' checksums.
        sent = composite_text([part.crc32c for part in parts]) if "-" in reported else to_text(crc32c)
        if reported != sent:
            raise ObjectDamaged(
                f"{self._upload.key}: the store reports CRC-32C {reported_text(reported)}, but "
                f"{reported_text(sent)} was sent; no commit names this object, and gc deletes it"
            )


def begin_multipart(upload: Upload, wanted_part_bytes: int, buffers: PartBuffers) -> MultipartUpload:
    """Open a multipart upload with parts of at least `wanted_part_bytes`; `buffers` are used if they have that size."""
    s3 = upload.s3
    needed_mib = -(-upload.source.size_bytes // (PARTS_MAX * MIB))
    part_bytes = max(wanted_part_bytes, needed_mib * MIB)
    # FULL_OBJECT lets the store prove the whole object by one CRC instead of by a list of its parts.
    checksum: dict[str, Any] = {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"} if s3.checksums else {}

    def create() -> CreateMultipartUploadOutputTypeDef:
        upload.count_request()
        return s3.client.create_multipart_upload(**s3.address(upload.key), **s3.creation(), **checksum)

    answer = s3.repeat("CreateMultipartUpload", upload.key, create)
    return MultipartUpload(
        upload,
        answer["UploadId"],
        buffers if buffers.part_bytes == part_bytes else PartBuffers(part_bytes),
        # A store that knows only checksums of checksums would take ours of the whole for a wrong one of those.
        whole_checksum=s3.checksums and answer.get("ChecksumType") == "FULL_OBJECT",
    )
