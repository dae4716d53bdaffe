"""S3 servers for the tests of this package, and stores that talk to them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
from botocore.config import Config
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from sidecar.clock import Clock
from sidecar.randomness import SystemRandomness
from sidecar.storage.s3.store import S3Store
from sidecar.store_settings import AddressingStyle, RetrySettings, S3Settings, StoreSettings
from tests.fakes.manual_clock import ManualClock
from tests.servers.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from tests.servers.versitygw import VersityGateway, racy_program


@contextmanager
def moto_server() -> Iterator[str]:
    """The endpoint of a moto server in this process.

    moto checks If-None-Match and creates the object in two steps; the probe finds that. One put at a time makes it one step.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        with patch.object(S3Response, "put_object", _one_at_a_time(S3Response.put_object)):
            yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    finally:
        server.stop()


def _one_at_a_time(handle: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.Lock()

    def handle_one(*arguments: Any) -> Any:
        with lock:
            return handle(*arguments)

    return handle_one


@contextmanager
def versitygw_server(directory: Path, *, nometa: bool = False, racy: bool = False) -> Iterator[str]:
    """The endpoint of a real versitygw. `nometa`: it ignores `If-None-Match`; `racy`: a version that looks before it leaps."""
    gateway = VersityGateway(directory, nometa=nometa, options=["--quiet"])
    if racy:
        gateway.process.command[0] = str(racy_program())
    with gateway:
        yield gateway.endpoint


def plain_client(endpoint_url: str) -> Any:
    """boto3 without any of our settings, to look at a server from outside."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 3}),
    )


def new_bucket(endpoint_url: str) -> str:
    """A bucket of its own for each test, so that servers can be shared."""
    name = f"bucket-{os.getpid()}-{SystemRandomness().random_bytes(4).hex()}"
    client = plain_client(endpoint_url)
    client.create_bucket(Bucket=name)
    client.close()
    return name


def s3_settings(endpoint_url: str, **changes: Any) -> S3Settings:
    """Settings for a server of this module."""
    return S3Settings.model_validate(
        {
            "endpoint_url": endpoint_url,
            "region": REGION,
            "addressing_style": AddressingStyle.PATH,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "part_bytes": 5 * 1024 * 1024,
            "connect_timeout_s": 5,
            "read_timeout_s": 10,
            **changes,
        }
    )


@contextmanager
def s3_store(
    endpoint_url: str,
    bucket: str,
    *,
    clock: Clock | None = None,
    attempts: int = 4,
    single_writer: bool = False,
    **changes: Any,
) -> Iterator[S3Store]:
    """A store on one bucket, below a prefix; retries wait on a clock that needs no time."""
    settings = StoreSettings(
        url=f"s3://{bucket}/some/prefix",
        single_writer=single_writer,
        retry=RetrySettings(attempts=attempts),
        s3=s3_settings(endpoint_url, **changes),
    )
    store = S3Store(settings, clock or ManualClock())
    try:
        yield store
    finally:
        store.close()
