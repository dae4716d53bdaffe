"""Servers shared by the tests of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.servers.stores import StoreKind
from tests.storage.s3_servers import moto_server, versitygw_server


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    with moto_server() as endpoint_url:
        yield endpoint_url


@pytest.fixture(scope="session")
def versitygw_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with versitygw_server(tmp_path_factory.mktemp("versitygw")) as endpoint_url:
        yield endpoint_url


@pytest.fixture(scope="session")
def endpoint_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[StoreKind], str]]:
    """The endpoint of a server of this kind, which is started when it is first asked for."""
    with ExitStack() as servers:

        @cache
        def started(kind: StoreKind) -> str:
            return servers.enter_context(kind.start(tmp_path_factory.mktemp(kind.name))).endpoint

        yield started


@pytest.fixture(
    params=[pytest.param("moto", marks=pytest.mark.stand_in), pytest.param("versitygw", marks=pytest.mark.real)]
)
def s3_endpoint(request: pytest.FixtureRequest) -> str:
    """A real S3 server, or what stands for one."""
    return str(request.getfixturevalue(f"{request.param}_endpoint"))
