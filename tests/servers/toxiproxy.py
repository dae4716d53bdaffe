"""toxiproxy: latency, resets, half-open connections and narrow bandwidth between us and a server."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.servers.dist import go_binary
from tests.servers.process import Server, ServerError, ServerProcess, free_port, port_answers

_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Proxy:
    """A port of 127.0.0.1 behind which `toxics` happen to everything that goes to the upstream server."""

    server: Toxiproxy
    name: str
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add_toxic(
        self,
        kind: str,
        *,
        stream: Literal["upstream", "downstream"] = "downstream",
        toxicity: float = 1.0,
        **attributes: int,
    ) -> str:
        """Adds a toxic and returns its name; `toxicity` is the share of connections that it meets.

        Kinds and attributes: latency (latency, jitter: ms), bandwidth (rate: KB/s), slow_close (delay: ms), timeout
        (timeout: ms until the connection is closed, 0 = it hangs for ever), reset_peer (timeout: ms), limit_data
        (bytes), slicer (average_size, size_variation: bytes, delay: µs).
        """
        name = f"{kind}-{stream}"
        toxic = {"name": name, "type": kind, "stream": stream, "toxicity": toxicity, "attributes": attributes}
        self.server.request("POST", f"/proxies/{self.name}/toxics", toxic)
        return name

    def remove_toxic(self, name: str) -> None:
        self.server.request("DELETE", f"/proxies/{self.name}/toxics/{name}")

    def set_enabled(self, enabled: bool) -> None:
        """A proxy that is not enabled refuses connections, and cuts those it has."""
        self.server.request("POST", f"/proxies/{self.name}", {"enabled": enabled})


class Toxiproxy(Server):
    """The proxy server; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        command = [str(go_binary("toxiproxy-server")), "-host", "127.0.0.1", "-port", str(self.port), "-proxy-metrics"]
        self.process = ServerProcess("toxiproxy", command, directory / "toxiproxy.log")

    def proxy(self, name: str, upstream_port: int, listen: tuple[str, int] | None = None) -> Proxy:
        """A new proxy in front of 127.0.0.1:`upstream_port`, on a free port or at another loopback address."""
        host, port = listen or ("127.0.0.1", free_port())
        proxy = Proxy(self, name, port)
        addresses = {"listen": f"{host}:{port}", "upstream": f"127.0.0.1:{upstream_port}"}
        self.request("POST", "/proxies", {"name": name, "enabled": True, **addresses})
        return proxy

    def reset(self) -> None:
        """Removes all toxics and enables all proxies."""
        self.request("POST", "/reset")

    def request(self, method: str, path: str, body: object = None) -> None:
        """One call of the HTTP API. Raises ServerError with the server's answer."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            with error:
                raise ServerError(f"toxiproxy: {method} {path}: {error.code} {error.read().decode()}") from error

    def bytes_through(self, name: str) -> tuple[int, int]:
        """What went through a proxy to its upstream server and back, of connections that have ended."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=_TIMEOUT_S) as answer:
            text = answer.read().decode()
        pattern = rf'^toxiproxy_proxy_sent_bytes_total{{direction="(\w+)".*proxy="{name}".*}} (\S+)$'
        found = {direction: int(float(value)) for direction, value in re.findall(pattern, text, re.MULTILINE)}
        return found.get("upstream", 0), found.get("downstream", 0)

    def start(self) -> None:
        """See Server."""
        self.process.launch()
        self.process.wait_until(lambda: port_answers(self.port), _TIMEOUT_S)

    def close(self) -> None:
        """See Server."""
        self.process.kill()
