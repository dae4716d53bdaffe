"""A server on a free port, and a request to it."""

from __future__ import annotations

import http.client

from sidecar.config import HttpSettings
from sidecar.http.bounded_server import BoundedServer, _Stage
from sidecar.http.server import HttpServer


def request(server: HttpServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def a_setting(**changes: object) -> HttpSettings:
    # As long as our own requests wait: on a busy machine an answer may take longer than people would let it.
    patient = {"bind": "127.0.0.1:0", "heartbeat_timeout_s": 30, "request_timeout_s": 60}
    return HttpSettings.model_validate({**patient, **changes})


def with_a_request(server: BoundedServer) -> int:
    """How many clients wait for their turn or are served."""
    clients = server.clients
    with clients._changed:
        return clients._number(_Stage.WAITING) + clients._number(_Stage.SERVED)
