"""The pages without sockets."""

from __future__ import annotations

from http import HTTPStatus

from sidecar.clock import ManualClock
from sidecar.http import Health
from sidecar.http.pages import Pages
from sidecar.metrics import Metrics


def test_a_condition_that_is_lost_again_makes_the_process_unready() -> None:
    health = Health(ManualClock(), conditions=("log_dirs",))
    health.met("log_dirs")
    assert health.not_ready() == {}
    health.unmet("log_dirs", "unmounted")
    assert health.not_ready() == {"log_dirs": "unmounted"}


def test_an_unready_process_is_healthy() -> None:
    pages = Pages(Health(ManualClock(), conditions=("archive",)), Metrics(ManualClock()), 10.0)
    assert pages.answer("/healthz", "").status is HTTPStatus.OK
    assert pages.answer("/readyz", "").status is HTTPStatus.SERVICE_UNAVAILABLE
