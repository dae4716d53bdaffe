"""The webhook's server: reviews, what it refuses, and certificates that are replaced while it runs."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import yaml
from structlog.testing import capture_logs

from sidecar.admission import server
from sidecar.admission.server import REVIEW_BYTES_MAX, REVIEWS_MAX, WebhookFiles, WebhookServer
from sidecar.clock import Clock
from sidecar.errors import SettingsError
from sidecar.http.bounded_server import WAITING_PER_SERVED
from tests.admission.strimzi_pods import strimzi_pod
from tests.cli.running import command
from tests.daemon.looping import eventually
from tests.fakes.manual_clock import ManualClock
from tests.helm.charts import CHART
from tests.http.asking import with_a_request
from tests.servers.certificates import Authority
from tests.servers.process import ServerProcess, free_port, port_answers

pytestmark = pytest.mark.real

INJECTION = {"initContainers": [{"name": "tiered-sidecar", "args": ["~LOG_DIRS~"]}], "volumes": []}


def review(pod: object) -> dict[str, Any]:
    request = {"uid": "u-1", "namespace": "kafka", "operation": "CREATE", "object": pod}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


class Hook:
    """A server, and an API server's side of it."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self.authority = Authority(directory / "pki")
        self.files = WebhookFiles(directory / "injection.json", directory / "tls.crt", directory / "tls.key")
        self.files.injection.write_text(json.dumps(INJECTION))
        self.issue("first")
        self.server = WebhookServer(("127.0.0.1", 0), self.files, clock)
        self.port = self.server.port

    def issue(self, name: str) -> None:
        made = self.authority.issue(name, "IP:127.0.0.1")
        for source, target in ((made.chain, self.files.certificate), (made.key, self.files.key)):
            target.write_bytes(source.read_bytes())

    def call(self, path: str = "/mutate", body: bytes | None = None) -> Any:
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", body)
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.read()

    def connected(self, text: str = "") -> ssl.SSLSocket:
        """A connection on which this was sent."""
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        secured = context.wrap_socket(plain, server_hostname="127.0.0.1")
        secured.sendall(text.encode())
        return secured

    def subject(self) -> str:
        with self.connected() as secured:
            return str(dict(part[0] for part in secured.getpeercert()["subject"])["commonName"])  # type: ignore[index, misc]


@pytest.fixture(name="hook")
def _hook(tmp_path: Path) -> Iterator[Hook]:
    hook = Hook(tmp_path)
    with hook.server:
        yield hook


def test_a_review_is_answered_with_the_patch(hook: Hook) -> None:
    answer = json.loads(hook.call("/mutate?timeout=5s", json.dumps(review(strimzi_pod("pool", 3, ["data"]))).encode()))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    *_, added = json.loads(base64.b64decode(response["patch"]))
    assert added["value"] == {"name": "tiered-sidecar", "args": ["/var/lib/kafka/data/kafka-log3"]}


def test_a_pod_that_needs_nothing_is_allowed_without_a_patch(hook: Hook) -> None:
    answer = json.loads(hook.call(body=json.dumps(review(strimzi_pod("pool", 3, []))).encode()))
    assert answer["response"] == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/mutate", b"no json", 500),
        ("/mutate", b"[]", 500),
        ("/mutate", b"[" * 100_000, 500),
        ("/mutate", b"{}", 500),
        ("/mutate", json.dumps(review(None)).encode(), 500),
        ("/mutate", b"", 400),
        ("/other", b"{}", 400),
        ("/other", None, 404),
    ],
)
def test_whatever_else_comes_is_a_failure_that_the_api_server_ignores(
    hook: Hook, path: str, body: bytes | None, code: int
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        hook.call(path, body)
    refused.value.close()
    assert refused.value.code == code
    assert hook.call("/healthz") == b""


@pytest.mark.parametrize("length", [str(REVIEW_BYTES_MAX + 1), "-1", "many", "9" * 5000])
def test_a_body_of_another_length_than_reviews_have_is_not_read(length: str, hook: Hook) -> None:
    with hook.connected(f"POST /mutate HTTP/1.0\r\nContent-Length: {length}\r\n\r\n") as client:
        assert b" 400 " in client.recv(100)


def test_replaced_files_are_used_from_the_next_connection_on(hook: Hook) -> None:
    assert hook.subject() == "first"
    hook.issue("second")
    assert hook.subject() == "second"
    # Half of a replacement: key and certificate do not match.
    hook.files.key.write_bytes(hook.authority.issue("third").key.read_bytes())
    os.utime(hook.files.key, ns=(1, 1))
    assert hook.subject() == "second"
    hook.files.certificate.write_bytes(hook.authority.issue("fourth").chain.read_bytes())
    os.utime(hook.files.certificate, ns=(2, 2))
    assert hook.subject() == "second"
    changed = {**INJECTION, "volumes": [{"name": "late"}]}
    hook.files.injection.write_text(json.dumps(changed))
    response = json.loads(hook.call(body=json.dumps(review(strimzi_pod("pool", 3, ["data"]))).encode()))["response"]
    assert json.loads(base64.b64decode(response["patch"]))[-1]["value"] == {"name": "late"}


HALF = "POST /mutate HTTP/1.0\r\nContent-Length: 2\r\n\r\n{"
"""A review whose end is still to come."""


def ended(client: socket.socket) -> bool:
    """Waits until the server sends something or closes; whether it closed without an answer."""
    try:
        return client.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def test_a_slow_client_is_cut_off_wherever_it_is_and_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, timeout_s = ManualClock(), 3600.0  # So that no read times out in this test: their timeouts are real ones.
    monkeypatch.setattr(server, "CLIENT_TIMEOUT_S", timeout_s)
    hook = Hook(tmp_path, clock)
    with (
        hook.server,
        socket.create_connection(("127.0.0.1", hook.port), timeout=30) as before_the_handshake,
        hook.connected("POST /mu") as in_its_request,
        hook.connected(HALF) as in_its_body,
    ):
        assert hook.call("/healthz") == b""  # so all of them, who came before, were accepted
        clock.advance_ms(round(timeout_s * 1000))
        assert all(map(ended, (before_the_handshake, in_its_request, in_its_body)))
        assert hook.call("/healthz") == b""


def test_few_are_answered_at_once_some_wait_and_others_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REVIEWS_MAX", 1)
    hook = Hook(tmp_path, ManualClock())
    with hook.server, ExitStack() as stack:
        clients: list[ssl.SSLSocket] = []
        with hook.server.parsing:
            # One by one: of many whose request is still to come one would be cut off.
            for _ in range(1 + WAITING_PER_SERVED):
                clients.append(stack.enter_context(hook.connected(HALF + "}")))
                eventually(lambda: with_a_request(hook.server) == len(clients))
            with hook.connected(HALF + "}") as refused:
                assert b" 503 " in refused.recv(100)
            assert hook.call("/healthz") == b""
        assert all(b" 500 " in client.recv(100) for client in clients)


def test_half_a_body_keeps_no_review_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REVIEWS_MAX", 1)
    monkeypatch.setattr(server, "CLIENT_TIMEOUT_S", 3600.0)
    hook = Hook(tmp_path, ManualClock())
    with hook.server, hook.connected(HALF):
        body = json.dumps(review(strimzi_pod("pool", 3, ["data"]))).encode()
        assert json.loads(hook.call(body=body))["response"]["patchType"] == "JSONPatch"


def test_a_failed_review_is_freed_before_the_next_one_is_parsed(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    class Parsed:
        pass

    alive: WeakSet[Parsed] = WeakSet()
    at_the_end: list[int] = []

    def fails(*_: object) -> None:
        parsed = Parsed()
        alive.add(parsed)
        raise ValueError(len(alive))

    lock = ExitStack()
    lock.callback(lambda: at_the_end.append(len(alive)))
    monkeypatch.setattr(hook.server, "parsing", lock)
    monkeypatch.setattr(server, "review_answer", fails)
    with hook.connected(HALF + "}") as client:
        assert b" 500 " in client.recv(100)
    assert at_the_end == [0]


def test_a_client_that_ends_within_its_body_is_no_failed_injection(hook: Hook) -> None:
    with capture_logs() as logs, hook.connected(HALF) as client:
        socket.socket.shutdown(client, socket.SHUT_WR)
        # Python before 3.11.4 takes the end of the TCP stream for one of TLS, and then there is somebody to answer.
        assert ended(client) or b"TTP/1.0 400 " in client.recv(100)
    assert not any(one["event"] == "injection_failed" for one in logs)


def test_idle_connections_keep_no_review_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REVIEWS_MAX", 1)
    hook = Hook(tmp_path)
    with hook.server, ExitStack() as stack:
        address = ("127.0.0.1", hook.port)
        idle = [
            stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(2 * WAITING_PER_SERVED)
        ]
        body = json.dumps(review(strimzi_pod("pool", 3, ["data"]))).encode()
        assert json.loads(hook.call(body=body))["response"]["patchType"] == "JSONPatch"
        assert idle[0].recv(100).startswith(b"HTTP/1.0 503 ")


def test_files_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    hook = Hook(tmp_path)
    with hook.server:
        for path in (hook.files.injection, hook.files.certificate):
            content = path.read_text()
            path.write_text("damaged")
            with pytest.raises(SettingsError, match=path.name):
                WebhookServer(("127.0.0.1", 0), hook.files)
            path.write_text(content)
        in_use = rf"^--bind: cannot listen on 127.0.0.1:{hook.port}: Address already in use; free the port"
        with pytest.raises(SettingsError, match=in_use):
            WebhookServer(("127.0.0.1", hook.port), hook.files)


PATIENT = """
from sidecar import cli
from sidecar.admission import server
server.CLIENT_TIMEOUT_S = 3600.0
cli.main()
"""
"""The program, with which a client may take longer on a busy machine."""


@pytest.fixture(name="command_of")
def _command_of(tmp_path: Path) -> Iterator[tuple[Hook, ServerProcess]]:
    """The command, which serves what `hook` would."""
    hook = Hook(tmp_path)
    hook.server.__exit__()
    hook.port = free_port()
    files = [f"--{name}={getattr(hook.files, name)}" for name in ("injection", "certificate", "key")]
    python, *arguments = command("k8s", "webhook", *files, f"--bind=[::]:{hook.port}")
    process = ServerProcess("webhook", [python, "-c", PATIENT, *arguments[2:]], tmp_path / "log")
    process.launch()
    process.wait_until(lambda: port_answers(hook.port), 60.0)
    yield hook, process
    process.stop()


def test_the_command_serves_for_a_while_after_sigterm(command_of: tuple[Hook, ServerProcess]) -> None:
    """API servers may still have the address of a pod that ends."""
    hook, process = command_of
    process.send_signal(signal.SIGTERM)
    assert hook.call("/healthz") == b""
    assert process.stop() == 0


def test_the_largest_reviews_fit_the_memory_limit_of_the_chart(command_of: tuple[Hook, ServerProcess]) -> None:
    """Those that take most memory when they are parsed, with as many unfinished ones as the server accepts."""
    hook, process = command_of
    body = ("[" + ",".join(['{"":0}'] * (REVIEW_BYTES_MAX // 7 - 1)) + "]").ljust(REVIEW_BYTES_MAX)
    text = f"POST /mutate HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    limit = values["inject"]["webhook"]["resources"]["limits"]["memory"]
    with ExitStack() as stack:
        unfinished = REVIEWS_MAX * WAITING_PER_SERVED
        clients = [stack.enter_context(hook.connected(text[:-1])) for _ in range(unfinished)]
        for client in clients:
            client.sendall(text[-1:].encode())
        answered = sum(b" 500 " in client.recv(100) for client in clients)
    peak = Path(f"/proc/{process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
    assert answered == unfinished
    assert int(peak) << 10 < int(limit.removesuffix("Mi")) << 20
