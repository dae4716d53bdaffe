"""The bandwidth limit counts what goes over the wire, once: signing reads the body, too, and sends nothing."""

from __future__ import annotations

import threading

import pytest

from sidecar.model import ObjectKey
from sidecar.storage.bandwidth import BandwidthLimit, IoBudget
from sidecar.storage.s3.store import S3Store
from sidecar.storage.source import BytesSource
from sidecar.store_settings import StoreSettings
from tests.fakes.manual_clock import ManualClock
from tests.storage.s3_servers import new_bucket, s3_settings


class CountedLimit(BandwidthLimit):
    """Never waits, and counts the bytes that were to wait."""

    def __init__(self) -> None:
        super().__init__(1 << 40, ManualClock())
        self._guard = threading.Lock()
        self.taken_bytes = 0

    def take(self, size_bytes: int, *, waits: bool = True) -> None:
        with self._guard:
            self.taken_bytes += size_bytes


@pytest.mark.parametrize("sign_payload", [False, True])
@pytest.mark.parametrize("size_bytes", [100_000, 11 * 1024 * 1024], ids=["put", "parts"])
def test_each_byte_counts_once(s3_endpoint: str, sign_payload: bool, size_bytes: int) -> None:
    limit = CountedLimit()
    bucket = new_bucket(s3_endpoint)
    settings = StoreSettings(url=f"s3://{bucket}/archive", s3=s3_settings(s3_endpoint, sign_payload=sign_payload))
    store = S3Store(settings, ManualClock(), budget=IoBudget(limit, BandwidthLimit(None, ManualClock())))
    try:
        store.upload(ObjectKey("a"), BytesSource(bytes(size_bytes)))
        assert limit.taken_bytes == size_bytes
    finally:
        store.close()
