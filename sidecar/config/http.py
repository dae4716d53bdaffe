"""Settings of the read-only HTTP server, and how its address is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from sidecar.config.section import Section

HTTP_PORT = 9308


class HttpSettings(Section):
    """The read-only HTTP server of `run`: the status page at /, and /metrics, /healthz, /readyz, /status."""

    bind: str | None = f"127.0.0.1:{HTTP_PORT}"
    """Address and port, `[::1]:9308` for IPv6, port 0 for any free one, `null` for no server. Scrapers and probes from
    outside the pod need `0.0.0.0:9308`. There is nothing secret on it; `token_file` keeps it from others all the same."""
    token_file: Path | None = None
    """File with a token of 16 to 4096 bytes, without which only `/healthz` is answered: as `Authorization: Bearer`, or as the
    password of any user, which is what browsers ask for. Read anew for each request. Default: everybody may look."""
    heartbeat_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """`/healthz` fails when the main loop has made no progress for this long."""
    request_timeout_s: Annotated[float, Field(gt=0, le=300)] = 5.0
    """How long a client may take to send its request or to take its answer."""
    max_connections: Annotated[int, Field(ge=1, le=1024)] = 16
    """Clients served at once; four times as many may wait for their turn, more are turned away. `/healthz` is always answered."""

    @field_validator("bind")
    @classmethod
    def _bind_is_an_address_and_a_port(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, None for no server."""
        return None if self.bind is None else split_address(self.bind)


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{text!r} is no address and port such as 127.0.0.1:{HTTP_PORT}")
    if not host:
        raise ValueError(
            f"{text!r} names no address: 0.0.0.0:{port} is all interfaces, 127.0.0.1:{port} this machine only"
        )
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, such as [::1]:{HTTP_PORT}")
    return host, int(port)
