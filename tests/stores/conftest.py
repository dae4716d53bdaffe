"""The servers, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.s3_server import S3Server
from tests.servers.stores import StoreKind


@pytest.fixture(scope="module")
def server(kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server of the kind that the module is parametrized with."""
    with kind.start(tmp_path_factory.mktemp(kind.name)) as started:
        yield started
