"""The pages without sockets."""

from __future__ import annotations

from http import HTTPStatus

from sidecar.config import HttpSettings
from sidecar.http.pages import Pages
from sidecar.metrics import Metrics
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel
from tests.fakes.manual_clock import ManualClock


def test_a_condition_that_is_lost_again_makes_the_process_unready() -> None:
    health = Health(ManualClock(), conditions={"log_dirs": "not known yet"})
    health.met("log_dirs")
    assert health.not_ready() == {}
    health.unmet("log_dirs", "unmounted")
    assert health.not_ready() == {"log_dirs": "unmounted"}


def test_a_condition_is_awaited_until_something_is_known_of_it() -> None:
    health = Health(ManualClock(), conditions={"store": "waiting", "first_check": "waiting"})
    assert health.awaited() == {"store", "first_check"}
    health.unmet("store", "no answer")
    health.met("first_check")
    assert health.awaited() == frozenset()


def test_an_unready_process_is_healthy() -> None:
    clock = ManualClock()
    health = Health(clock, conditions={"archive": "not known yet"})
    pages = Pages(HttpSettings(), health, Metrics(clock), clock, StatusModel(clock))
    assert pages.answer("/healthz", "", {}.get).status is HTTPStatus.OK
    assert pages.answer("/readyz", "", {}.get).status is HTTPStatus.SERVICE_UNAVAILABLE
