"""One JVM for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running
