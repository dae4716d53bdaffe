"""The webhook that adds the sidecar to pods: HTTPS, which only API servers call."""

import base64
import json
import ssl
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from sidecar.admission.patch import patch
from sidecar.clock import Clock, SystemClock
from sidecar.errors import SettingsError
from sidecar.event_log import EVENTS
from sidecar.http.bounded_server import BoundedServer, Clients, Discreet

CLIENT_TIMEOUT_S: Final = 5.0
"""From the connection to the answer, with the handshake. API servers wait as long, the chart's `timeoutSeconds`."""
REVIEWS_MAX: Final = 8
"""Answered at once. With those that send a body and those that wait, at most nine times as many bodies are in memory."""
REVIEW_BYTES_MAX: Final = 512 << 10
"""A pod of Strimzi has some 10 KiB. The memory limit of the chart, 128 MiB, must suffice for bodies of this length (tested)."""


def review_answer(review: Mapping[str, Any], injection: Mapping[str, Any]) -> dict[str, Any]:
    """The AdmissionReview that answers one. Every pod is allowed, with a patch or without."""
    request = review["request"]
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    operations = patch(request["object"], injection)
    if operations:
        encoded = base64.b64encode(json.dumps(operations).encode()).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
        EVENTS.info("sidecar_injected", pod=request["object"]["metadata"]["name"], namespace=request.get("namespace"))
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


@dataclass(frozen=True, slots=True)
class WebhookFiles:
    """Files that Kubernetes mounts and replaces while the server runs: what is injected, and the PEM certificate and key."""

    injection: Path
    certificate: Path
    key: Path


class WebhookServer(BoundedServer):
    """Answers reviews until it is closed.

    A refused connection is a failure for the API server, which then creates the pod as it was, and at once.
    """

    def __init__(self, address: tuple[str, int], files: WebhookFiles, clock: Clock | None = None) -> None:
        """Bind and begin to serve. Raises SettingsError if a file cannot be used or the address cannot be listened on."""
        self.files = files
        self.parsing = threading.Lock()
        """One review after the other: a parsed one takes ten times its bytes, and threads share the processor anyway."""
        self._loaded: tuple[int, int] | None = None
        try:
            self._load_certificate()
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"--certificate {files.certificate} and --key {files.key}: no PEM certificate with its key ({error})"
            ) from error
        try:
            self.injection()
        except (OSError, ValueError) as error:
            raise SettingsError(f"--injection {files.injection}: no JSON of the Helm chart ({error})") from error
        remedy = "find the client that sends so many; roll the pods that `k8s missing` lists"
        clients = Clients(REVIEWS_MAX, CLIENT_TIMEOUT_S, clock or SystemClock(), remedy)
        super().__init__(address, _Handler, clients, "--bind")

    def injection(self) -> dict[str, Any]:
        """What pods get now. Raises OSError or ValueError."""
        found: dict[str, Any] = json.loads(self.files.injection.read_text(encoding="utf-8"))
        return found

    def get_request(self) -> tuple[Any, Any]:
        """A client. Raises OSError if it went away already."""
        plain, client_address = super().get_request()
        try:
            self._load_certificate()
        except OSError as error:  # while the kubelet replaces them; ssl.SSLError is one
            EVENTS.warning("webhook_certificate_unreadable", error=str(error), remedy="the loaded certificate stays")
        return self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), client_address

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection; the handshake is on its thread, so that a silent client blocks no other."""
        request.do_handshake()
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or does not trust the certificate; a failed review is logged by the handler."""
        EVENTS.warning("webhook_connection_failed", error=str(sys.exception()))

    def _load_certificate(self) -> None:
        changed = self.files.certificate.stat().st_mtime_ns, self.files.key.stat().st_mtime_ns
        if changed != self._loaded:
            # A context of its own: one that has refused a pair that does not match has lost the pair before.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.files.certificate, self.files.key)
            self._context, self._loaded = context, changed


class _Handler(Discreet, BaseHTTPRequestHandler):
    server: WebhookServer

    def do_GET(self) -> None:
        self._send(HTTPStatus.OK if self.path == "/healthz" else HTTPStatus.NOT_FOUND, b"")

    def do_POST(self) -> None:
        """Answer a review. An API server takes any other status for a failure, and creates the pod as it was."""
        given = self.headers.get("Content-Length") or ""
        length = int(given) if given.isdecimal() and len(given) < 10 else 0
        # Before its turn, so that a slow client takes no turn from others; and also where it is refused: closing with unread
        # data resets the connection, and the answer with it.
        body = self.rfile.read(length) if 0 < length <= REVIEW_BYTES_MAX else b""
        if self.path.partition("?")[0] != "/mutate" or not body or len(body) < length:
            self._send(HTTPStatus.BAD_REQUEST, b"")
            return
        if not self.server.clients.has_turn(self.request):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"")
            return
        answer = problem = ""
        with self.server.parsing:
            try:
                answer = json.dumps(review_answer(json.loads(body), self.server.injection()))
            except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                # The error itself has the parsed review, by its traceback: outside of the lock there would be several.
                problem = repr(error)
        if problem:
            remedy = "the pod is created without the sidecar; roll it later"
            EVENTS.error("injection_failed", error=problem, remedy=remedy)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, b"")
            return
        self._send(HTTPStatus.OK, answer.encode())

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
