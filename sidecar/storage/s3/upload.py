"""Upload of an object under a fresh key: in one put, or in parts (`multipart`), and the settling of lost answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, cast

from sidecar.errors import ObjectDamaged, ObjectMissing, OutcomeUnknown, SidecarError, StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.ports import UploadReceipt, UploadSource
from sidecar.storage.bandwidth import BandwidthLimit, PacedBody
from sidecar.storage.checksums import crc32c_of, hex_text
from sidecar.storage.s3.requests import S3Requests

Answer = TypeVar("Answer")


class Upload:
    """One object on its way. A key of its own lets it settle a lost answer by looking: nobody else can have made the object."""

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
        """What was sent so far."""
        return UploadReceipt(self.key, self.source.size_bytes, crc32c, self._requests)

    def count_request(self) -> None:
        """Called by each worker before each request."""
        with self._lock:
            self._requests += 1

    def paced(self, body: bytes | bytearray) -> bytes:
        """The body as the bandwidth limit wants it; without a limit it goes to the socket in one call.

        The stubs name fewer types than botocore takes: bytearray and whatever reads are fine with it.
        """
        if self._limit.is_limited:
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
                if failures > 1:
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
                f"{self.key}: the store has {found.size_bytes} bytes with CRC-32C {hex_text(found.crc32c)},"
                f" sent were {self.source.size_bytes} bytes with {hex_text(crc32c)}; remove the object"
            )
        return True
