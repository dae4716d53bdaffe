"""One JVM for all files of this directory: a start costs as much as half of the tests of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from sidecar.config import SparkSettings
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.store_settings import RetrySettings, S3Settings, StoreSettings

PRELOADED = ("sidecar.rewriting.preloaded", "sidecar.snapshots.preloaded", "sidecar.segment.reading")
_KEYS = {"access_key_id": SecretStr("id"), "secret_access_key": SecretStr("secret")}
GONE = StoreSettings(
    url="s3://bucket",
    s3=S3Settings(endpoint_url="http://127.0.0.1:1", **_KEYS),
    retry=RetrySettings(attempts=2, wait_s_first=0.01),
)
"""A store whose keys the workers have, and that does not answer."""


@pytest.fixture(scope="package", name="spark")
def _spark() -> Iterator[EmbeddedSpark]:
    settings = SparkSettings(master="local[2]", driver_memory_bytes=512 << 20)
    with EmbeddedSpark(settings, preload=PRELOADED, store=GONE) as spark:
        yield spark
