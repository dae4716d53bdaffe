"""The server as its clients see it: real sockets on a free port of the loopback interface."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from sidecar.clock import SystemClock
from sidecar.errors import SettingsError
from sidecar.http.server import HttpServer
from sidecar.metrics import Metrics
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel
from tests.fakes.manual_clock import ManualClock
from tests.http.asking import a_setting, request, with_a_request


def test_metrics_are_prometheus_text(server: HttpServer) -> None:
    status, body, headers = request(server, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"tiered_sidecar_build_info{" in body


def test_metrics_are_openmetrics_for_who_asks(server: HttpServer) -> None:
    _, body, headers = request(server, "/metrics?x=1", Accept="application/openmetrics-text; version=1.0.0")
    assert headers["content-type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_health_fails_only_when_the_loop_stands_still(server: HttpServer, health: Health, clock: ManualClock) -> None:
    clock.advance_ms(30_000)
    assert request(server, "/healthz")[0] == 200
    clock.advance_ms(1)
    status, body, _ = request(server, "/healthz")
    assert status == 503
    assert b"30 s" in body
    health.beat()
    assert request(server, "/healthz")[0] == 200


def test_readiness_names_what_is_missing(server: HttpServer, health: Health) -> None:
    health.unmet("log_dirs", "/kafka cannot be read")
    status, body, _ = request(server, "/readyz")
    assert (status, body) == (503, b"archive: not known yet\nlog_dirs: /kafka cannot be read\n")
    health.met("archive")
    health.met("log_dirs")
    assert request(server, "/readyz")[:2] == (200, b"ok\n")


def test_status_is_json_with_a_version(server: HttpServer, health: Health) -> None:
    health.publish(partitions=3)
    status, body, headers = request(server, "/status")
    assert (status, headers["content-type"]) == (200, "application/json")
    shown = json.loads(body)
    assert shown["version"] == 1
    assert shown["partitions"] == 3
    assert shown["not_ready"] == {"archive": "not known yet"}


@pytest.mark.parametrize("path", ["/index.html", "/metrics/", "/../etc/passwd", "/page/page.html"])
def test_other_paths_are_not_found(server: HttpServer, path: str) -> None:
    status, body, _ = request(server, path)
    assert status == 404
    assert b"passwd" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_nothing_can_be_written(server: HttpServer, method: str) -> None:
    status, _, headers = request(server, "/status", method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_head_has_the_length_and_no_body(server: HttpServer) -> None:
    status, body, headers = request(server, "/healthz", "HEAD")
    assert (status, body, headers["content-length"]) == (200, b"", "3")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\xfc\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET http://[ HTTP/1.0\r\n\r\n",
        b"A" * 70_000 + b"\r\n",
    ],
)
def test_garbage_is_answered_and_the_server_lives(server: HttpServer, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(garbage)
        try:
            answer = client.recv(65536)
        except ConnectionResetError:  # the server does not read the rest of an over-long line
            answer = b""
    assert b" 200 " not in answer
    assert b"AAAA" not in answer
    assert request(server, "/healthz")[0] == 200


def test_a_client_that_trickles_is_cut_off_and_blocks_nobody(health: Health) -> None:
    clock = ManualClock()
    with (
        HttpServer(a_setting(request_timeout_s=30), health, Metrics(), clock) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow,
    ):
        slow.sendall(b"G")
        assert request(server, "/healthz")[0] == 200  # so the slow client, who came first, is being served
        clock.advance_ms(30_000)
        with pytest.raises(OSError):  # noqa: PT012 - each byte restarts the timeout of the read, which is a real one
            for _ in range(100):
                slow.sendall(b"G")
                threading.Event().wait(0.1)


def answer_to(client: socket.socket) -> bytes:
    """All that the server sends until it closes."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def test_idle_connections_keep_nobody_out(health: Health) -> None:
    metrics = Metrics()
    with ExitStack() as stack:
        server = stack.enter_context(HttpServer(a_setting(max_connections=2), health, metrics, SystemClock()))
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10)) for _ in range(12)
        ]
        # An answered /status counts as served, so it is silent no longer. An answered /healthz may still count as silent.
        assert request(server, "/status")[0] == 200
        # Two times four may be silent: four gave way to those who came later, and one to the first request.
        assert answer_to(idle[0]).startswith(b"HTTP/1.0 503 ")
        assert b"tiered_sidecar_http_refused_connections_total 5.0" in request(server, "/metrics")[1]
        assert request(server, "/healthz")[0] == 200


class _SlowSource(Health):
    """Answers /status when it is let."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.may_answer = threading.Event()

    def status(self) -> Mapping[str, Any]:
        self.may_answer.wait(60)
        return super().status()


def test_many_wait_for_their_turn_more_are_turned_away_and_health_is_always_reported(clock: ManualClock) -> None:
    source, metrics = _SlowSource(clock), Metrics()
    with HttpServer(a_setting(max_connections=1), source, metrics, SystemClock()) as server:
        with ThreadPoolExecutor(5) as viewers:
            asked: list[Future[tuple[int, bytes, dict[str, str]]]] = []
            # One is served, four wait. They come one by one: of five whose request is still to come one would be cut off.
            for _ in range(5):
                asked.append(viewers.submit(request, server, "/status"))
                while with_a_request(server) < len(asked) and not asked[-1].done():
                    SystemClock().sleep_s(0.005)
            assert [request(server, "/status")[:2] for _ in range(3)] == 3 * [(503, b"too many concurrent requests\n")]
            assert request(server, "/healthz")[0] == 200
            source.may_answer.set()
            assert [future.result()[0] for future in asked] == [200] * 5
        assert b"tiered_sidecar_http_refused_connections_total 3.0" in request(server, "/metrics")[1]


def test_close_frees_the_port_and_does_not_wait_for_silent_clients(health: Health) -> None:
    server = HttpServer(a_setting(request_timeout_s=60), health, Metrics(), SystemClock())
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        assert request(server, "/healthz")[0] == 200  # so the silent client, who came first, is being served
        begun_s = time.perf_counter()
        server.close(grace_s=0.2)
        assert time.perf_counter() - begun_s < 30
        assert silent.recv(1) == b""
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_a_taken_port_is_a_wrong_setting(server: HttpServer, health: Health) -> None:
    with pytest.raises(SettingsError, match=r"^http\.bind: cannot listen on 127.0.0.1:\d+: Address already in use; "):
        HttpServer(a_setting(bind=f"127.0.0.1:{server.port}"), health, Metrics(), SystemClock())


def test_it_listens_on_ipv6_where_there_is_any(health: Health) -> None:
    try:
        server = HttpServer(a_setting(bind="[::1]:0"), health, Metrics(), SystemClock())
    except SettingsError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with server:
        connection = http.client.HTTPConnection("::1", server.port, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


def test_texts_of_libraries_reach_no_page_with_a_secret_in_them() -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2", "***")

    clock = SystemClock()
    health, board = Health(clock, redact=redact), StatusModel(clock, redact)
    health.unmet("store", "https://user:hunter2@store refused")
    health.publish(problems=["hunter2"])
    health.publish(compaction={"partitions": [], "why": {"deep": ("hunter2",)}})
    board.failed("store", "StoreDenied", "hunter2")
    with HttpServer(a_setting(), health, Metrics(), clock, board) as server:
        bodies = [request(server, path)[1] for path in ("/", "/status", "/readyz", "/metrics")]
    assert all(b"hunter2" not in body for body in bodies)
    assert b"***" in bodies[0]
