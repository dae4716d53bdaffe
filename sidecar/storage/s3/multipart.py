"""Upload in parallel parts, with a CRC-32C for each part and one for the whole.

Memory is bounded by part size times the workers of the pool, which all uploads of a store share: a worker reads its part
once, hashes it and sends it from the same buffer.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.errors import ObjectDamaged, SidecarError
from sidecar.ports import MIB, UploadReceipt
from sidecar.storage.checksums import combine_parts, composite_text, reported_text, to_text
from sidecar.storage.s3.part_buffers import PartBuffers
from sidecar.storage.s3.upload import Upload

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import (
        CompletedPartTypeDef,
        CompleteMultipartUploadOutputTypeDef,
        CreateMultipartUploadOutputTypeDef,
    )

PARTS_MAX = 10_000


def part_size_bytes(size_bytes: int, wanted_bytes: int) -> int:
    """The wanted part size, or the smallest whole MiB with which the object fits into 10,000 parts."""
    needed_mib = -(-size_bytes // (PARTS_MAX * MIB))
    return max(wanted_bytes, needed_mib * MIB)


@dataclass(frozen=True, slots=True)
class SentPart:
    """A part that the store has acknowledged."""

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
        completed = False
        try:
            parts = self._send_parts(pool)
            crc32c = combine_parts([(part.crc32c, part.size_bytes) for part in parts])
            self._complete(parts, crc32c)
            completed = True
        finally:
            # Also on KeyboardInterrupt. An abort that fails too is left to `unfinished_uploads`.
            if not completed:
                with suppress(SidecarError):
                    self._s3.send("AbortMultipartUpload", self._upload.key, self._abort)
        return self._upload.receipt(crc32c)

    def _abort(self) -> None:
        self._s3.client.abort_multipart_upload(**self._target)

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
        # A part that was left out (None) stands beside one that failed, whose error `result` raises.
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
                f"{self._upload.key}: the store reports CRC-32C {reported_text(reported)}, sent was {reported_text(sent)}; "
                "remove the object"
            )


def begin_multipart(upload: Upload, wanted_part_bytes: int, buffers: PartBuffers) -> MultipartUpload:
    """Open a multipart upload with parts of at least `wanted_part_bytes`; `buffers` are used if they have that size."""
    s3 = upload.s3
    part_bytes = part_size_bytes(upload.source.size_bytes, wanted_part_bytes)
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
