"""The least that Helm and kubectl need of a node: pods of it end with success, and it has their logs."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from tests.servers.certificates import Authority
from tests.servers.kubernetes import KubernetesApi

LOG = "log of a container\n"


class _Logs(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path.startswith("/containerLogs/")
        self.send_response(200 if found else 404)
        self.end_headers()
        if found:
            self.wfile.write(LOG.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Node:
    """A node `name` that the API server reaches on 127.0.0.1; a context manager."""

    def __init__(self, api: KubernetesApi, name: str, directory: Path) -> None:
        self._api = api
        self.name = name
        issued = Authority(directory).issue(name, "IP:127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.chain, issued.key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Logs)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_port}},
        }
        self._api.request("POST", "/api/v1/nodes", {"metadata": {"name": self.name}, "status": status})
        return self

    def __exit__(self, *_: object) -> None:
        self._api.request("DELETE", f"/api/v1/nodes/{self.name}")
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def succeed(self, namespace: str, pod: str) -> None:
        """Takes a pod, and reports that it ended with success."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        target = {"apiVersion": "v1", "kind": "Node", "name": self.name}
        self._api.request("POST", f"{path}/binding", {"metadata": {"name": pod}, "target": target})
        self._api.request("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}})
