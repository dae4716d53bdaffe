"""A server that runs, and what it tells of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.clock import SystemClock
from sidecar.http.server import HttpServer
from sidecar.metrics import Metrics
from sidecar.reporting.health_reporter import Health
from tests.fakes.manual_clock import ManualClock
from tests.http.asking import a_setting


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_700_000_000_000)


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(clock, conditions={"archive": "not known yet"})


@pytest.fixture
def server(health: Health) -> Iterator[HttpServer]:
    with HttpServer(a_setting(), health, Metrics(), SystemClock()) as running:
        yield running
