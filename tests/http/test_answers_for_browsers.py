"""What is answered without a token and with one, and what browsers have to keep and to refuse."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.errors import SettingsError
from sidecar.http.server import HttpServer
from sidecar.metrics import Metrics
from sidecar.reporting.health_reporter import Health
from tests.http.asking import a_setting, request

TOKEN = "0123456789abcdef0123"


@pytest.fixture
def guarded(health: Health, tmp_path: Path) -> Iterator[HttpServer]:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    with HttpServer(a_setting(token_file=token_file), health, Metrics(), SystemClock()) as running:
        yield running


PATHS = ["/", "/page.css", "/page.js", "/status", "/metrics", "/readyz", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_reported_but_health(guarded: HttpServer, path: str) -> None:
    for headers in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Basic Og=="}):
        status, body, answered = request(guarded, path, **headers)
        assert status == 401
        assert "Bearer" in answered["www-authenticate"]
        assert body == b"a token is required: as Bearer token, or as the password of any user\n"
    assert request(guarded, path, "HEAD")[0] == 401
    assert request(guarded, "/healthz")[0] == 200
    assert request(guarded, path, Authorization=f"Bearer {TOKEN}")[0] in (200, 404, 503)


def test_browsers_are_asked_for_a_password(guarded: HttpServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=60)
    connection.request("GET", "/")
    challenges = connection.getresponse().headers.get_all("WWW-Authenticate")
    connection.close()
    assert challenges == ['Basic realm="tiered-sidecar", charset="UTF-8"', 'Bearer realm="tiered-sidecar"']


def test_a_token_that_cannot_be_read_any_more_closes_the_port(guarded: HttpServer, tmp_path: Path) -> None:
    (tmp_path / "token").unlink()
    assert request(guarded, "/", Authorization=f"Bearer {TOKEN}")[0] == 503
    assert request(guarded, "/healthz")[0] == 200


def test_a_token_file_that_is_not_there_is_a_wrong_setting(health: Health, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"http\.token_file"):
        HttpServer(a_setting(token_file=tmp_path / "nothing"), health, Metrics(), SystemClock())


@pytest.mark.parametrize("path", [*PATHS, "/healthz"])
def test_every_answer_has_a_strict_policy_for_browsers(server: HttpServer, path: str) -> None:
    _, _, headers = request(server, path)
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert ("form-action 'self'; base-uri 'none'" in policy) == (path in {"/", "/page.css", "/page.js"})
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
)
def test_what_a_browser_has_already_is_not_sent_again(server: HttpServer, path: str, kind: str) -> None:
    status, body, headers = request(server, path)
    assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
    assert body
    assert headers["cache-control"] == "private, no-cache"
    again, nothing, _ = request(server, path, **{"If-None-Match": headers["etag"]})
    assert (again, nothing) == (304, b"")
    for known in (f'"another", {headers["etag"]}', f"W/{headers['etag']}", "*"):
        assert request(server, path, **{"If-None-Match": known})[0] == 304
    assert request(server, path, **{"If-None-Match": '"another", W/"a-third"'})[0] == 200


def test_metrics_and_status_are_never_kept(server: HttpServer) -> None:
    for path in ("/metrics", "/status", "/readyz", "/healthz"):
        assert request(server, path)[2]["cache-control"] == "no-store"
