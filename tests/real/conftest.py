"""Servers that several modules start alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.versitygw import VersityGateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    """An S3 server, with one bucket, for all tests of a module."""
    with VersityGateway(tmp_path_factory.mktemp("versitygw"), options=["--quiet"]) as started:
        yield started
