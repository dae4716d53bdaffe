"""Uploads of an object under a fresh key, in one put or in parallel parts, and the settling of unknown outcomes.

Parts have a CRC-32C each, and one for the whole. Memory is bounded by part size times the workers of the pool, which all uploads
of a store share: a worker reads its part once, hashes it and sends it from the same buffer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from sidecar.errors import ObjectDamaged, ObjectMissing, OutcomeUnknown, SidecarError, StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.ports import MIB, UploadSource
from sidecar.storage.bandwidth import BandwidthLimit
from sidecar.storage.checksums import combine_parts, composite_text, crc32c_of, hex_text, reported_text, to_text
from sidecar.storage.s3.request_body import PacedBody
from sidecar.storage.s3.requests import S3Requests
from sidecar.storage.source import FileSource

Answer = TypeVar("Answer")
PARTS_MAX = 10_000

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


class SentPart(NamedTuple):
    etag: str
    crc32c: int
    size_bytes: int


class Upload:
    """One object on its way. A key of its own lets it settle an unknown outcome by a read: no other writer can have
    created the object."""

    def __init__(self, requests: S3Requests, key: ObjectKey, source: UploadSource, limit: BandwidthLimit) -> None:
        self._s3 = requests
        self._key = key
        self._source = source
        self._limit = limit

    def put_whole(self) -> int:
        """Send everything in one request; memory is the object's size."""
        body = bytes(self._source.read_at(0, self._source.size_bytes))
        crc32c, s3 = crc32c_of(body), self._s3

        def put() -> None:
            s3.client.put_object(
                **s3.address(self._key),
                **s3.creation(),
                **s3.create_only(),
                **s3.checksum(crc32c),
                Body=self._paced(body),
            )

        self._settled("PutObject", put, crc32c)
        return crc32c

    def put_parts(self, pool: ThreadPoolExecutor, wanted_part_bytes: int, buffers: PartBuffers) -> int:
        """Send parts of at least `wanted_part_bytes` in parallel, and complete; on any failure abort.

        `buffers`: used if they have that size.
        """
        s3 = self._s3
        part_bytes = max(wanted_part_bytes, -(-self._source.size_bytes // (PARTS_MAX * MIB)) * MIB)
        # FULL_OBJECT lets the store prove the whole object by one CRC instead of by a list of its parts.
        checksum: dict[str, Any] = (
            {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"} if s3.checksums else {}
        )
        create = partial(s3.client.create_multipart_upload, **s3.address(self._key), **s3.creation(), **checksum)
        answer = s3.repeat("CreateMultipartUpload", self._key, create)
        target = {**s3.address(self._key), "UploadId": answer["UploadId"]}
        with ExitStack() as unless_whole:
            unless_whole.callback(self._abort, target)
            parts = self._send_parts(
                pool, target, buffers if buffers.part_bytes == part_bytes else PartBuffers(part_bytes)
            )
            crc32c = combine_parts([(part.crc32c, part.size_bytes) for part in parts])
            whole: dict[str, Any] = {}
            if s3.checksums and answer.get("ChecksumType") == "FULL_OBJECT":
                # A store that knows only checksums of checksums would take ours of the whole for a wrong one of those.
                whole = {**s3.checksum(crc32c), "ChecksumType": "FULL_OBJECT"}
            self._complete({**target, **whole}, parts, crc32c)
            unless_whole.pop_all()
        return crc32c

    def _abort(self, target: dict[str, Any]) -> None:
        """An abort that fails, too, is left to `unfinished_uploads`."""
        with suppress(SidecarError):
            abort = partial(self._s3.client.abort_multipart_upload, **target)
            self._s3.send("AbortMultipartUpload", self._key, abort)

    def _send_parts(self, pool: ThreadPoolExecutor, target: dict[str, Any], buffers: PartBuffers) -> list[SentPart]:
        cancelled = threading.Event()

        def send_part(number: int, position: int) -> SentPart | None:
            if cancelled.is_set():
                return None
            size_bytes = min(buffers.part_bytes, self._source.size_bytes - position)
            with buffers.part(self._source, position, size_bytes) as (body, crc32c):

                def put() -> str:
                    answer = self._s3.client.upload_part(
                        **target, PartNumber=number, Body=self._paced(body), **self._s3.checksum(crc32c)
                    )
                    return answer["ETag"]

                return SentPart(self._s3.repeat(f"UploadPart {number} of", self._key, put), crc32c, size_bytes)

        positions = range(0, self._source.size_bytes, buffers.part_bytes)
        futures = [pool.submit(send_part, number, position) for number, position in enumerate(positions, start=1)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            # No part may still be on its way when the upload is aborted: it would be stored and never freed.
            if any(not future.done() or future.exception() is not None for future in futures):
                cancelled.set()
            wait(futures)
        # A part that was left out (None) comes with one that failed, whose error `result` raises.
        return [part for part in (future.result() for future in futures) if part is not None]

    def _complete(self, target: dict[str, Any], parts: list[SentPart], crc32c: int) -> None:
        listed: Any = [
            {"PartNumber": number, "ETag": part.etag, **self._s3.checksum(part.crc32c)}
            for number, part in enumerate(parts, start=1)
        ]
        call, parameters = self._s3.client.complete_multipart_upload, {**target, **self._s3.create_only()}
        complete = partial(call, MultipartUpload={"Parts": listed}, **parameters)
        answer = self._settled("CompleteMultipartUpload", complete, crc32c)
        reported = None if answer is None else answer.get("ChecksumCRC32C")
        if reported is None or not self._s3.checksums:
            return
        # Stores that do not know FULL_OBJECT answer with the checksum of the parts' checksums.
        sent = composite_text([part.crc32c for part in parts]) if "-" in reported else to_text(crc32c)
        if reported != sent:
            raise ObjectDamaged(
                f"{self._key}: the store reports CRC-32C {reported_text(reported)}, but "
                f"{reported_text(sent)} was sent; no commit names this object, and gc deletes it"
            )

    def _paced(self, body: bytes | bytearray) -> bytes:
        """The body as the bandwidth limit wants it; without a limit it goes to the socket in one call.

        The stubs name fewer types than botocore takes: bytearray and whatever reads are fine with it.
        """
        if self._limit.bytes_per_s is not None:
            return cast("bytes", PacedBody(body, self._limit))
        self._limit.take(len(body))
        return cast("bytes", body)

    def _settled(self, operation: str, call: Callable[[], Answer], crc32c: int) -> Answer | None:
        """Make the object come into being; None if an answer was lost but the object is there as it should be.

        Raises OutcomeUnknown where the store does not answer to the last, ObjectExists if the key was taken beforehand.
        """
        doubt: SidecarError | None = None
        for failures in range(1, self._s3.retrier.attempts + 1):
            try:
                return self._s3.send(operation, self._key, call, creates=True)
            except (OutcomeUnknown, StoreUnavailable) as error:
                doubt = error if isinstance(error, OutcomeUnknown) or doubt is None else doubt
                if failures == self._s3.retrier.attempts:
                    raise doubt from error
                self._s3.retrier.pause(failures)
            except ObjectDamaged:
                # Refused for its checksum, so not stored: bytes changed on the way may arrive intact the next time.
                if failures > 1 or failures == self._s3.retrier.attempts:
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
        try:
            found = self._s3.head(self._key)
        except ObjectMissing:
            return False
        if found.size_bytes != self._source.size_bytes or found.crc32c not in {None, crc32c}:
            raise ObjectDamaged(
                f"{self._key}: the store has {found.size_bytes} bytes with CRC-32C {hex_text(found.crc32c)}, but "
                f"{self._source.size_bytes} bytes with {hex_text(crc32c)} were sent; no commit names this object, and gc deletes it"
            )
        return True
