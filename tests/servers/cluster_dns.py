"""Names of services, and of pods behind those without an address of their own, as CoreDNS answers them.

A name that it does not know does not exist, and nothing is forwarded.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tests.servers.kubernetes import KubernetesApi
from tests.servers.process import Server

_REFRESH_S = 1.0
_TTL_S = 5
_MESSAGE_BYTES = 4096
_HEADER_BYTES = 12
_TYPE_A, _CLASS_IN = 1, 1
_ANSWERED, _NO_SUCH_NAME = 0x8580, 3
_POINTER_TO_QUESTION = b"\xc0\x0c"


class ClusterDns(Server):
    """Answers on UDP port 53 of an address of this machine."""

    def __init__(self, api: KubernetesApi, address: str) -> None:
        self._api, self._address = api, address
        self._names: Mapping[str, list[str]] = {}
        self._stopped = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def start(self) -> None:
        """See Server."""
        self._socket.bind((self._address, 53))
        for work in (self._refresh, self._serve):
            threading.Thread(target=work, name=f"dns-{work.__name__}", daemon=True).start()

    def close(self) -> None:
        """See Server."""
        self._stopped.set()
        self._socket.close()

    def _refresh(self) -> None:
        while not self._stopped.wait(_REFRESH_S):
            # The API server may be busy, or gone at the end: names stay as they were.
            with suppress(OSError):
                services = self._api.request("GET", "/api/v1/services")["items"]
                slices = self._api.request("GET", "/apis/discovery.k8s.io/v1/endpointslices")["items"]
                self._names = _names(services, slices)

    def _serve(self) -> None:
        # Closing the socket ends it.
        with suppress(OSError):
            while True:
                query, client = self._socket.recvfrom(_MESSAGE_BYTES)
                self._socket.sendto(_answer(query, self._names), client)


def _names(services: list[dict[str, Any]], slices: list[dict[str, Any]]) -> dict[str, list[str]]:
    """IPv4 addresses by full name."""
    addresses = {_full_name(one["metadata"], one["metadata"]["name"]): one["spec"].get("clusterIP") for one in services}
    names = {name: [] if address == "None" else [address] for name, address in addresses.items() if address}
    for one in slices:
        service = _full_name(one["metadata"], one["metadata"].get("labels", {}).get("kubernetes.io/service-name"))
        for endpoint in one.get("endpoints") or ():
            if endpoint["conditions"].get("ready") is False:
                continue
            if addresses.get(service) == "None":
                names[service] += endpoint["addresses"]
            if "hostname" in endpoint:
                names[f"{endpoint['hostname']}.{service}"] = endpoint["addresses"]
    return names


def _full_name(metadata: Mapping[str, Any], name: str | None) -> str:
    return f"{name}.{metadata['namespace']}.svc.cluster.local"


def _answer(query: bytes, names: Mapping[str, list[str]]) -> bytes:
    position, labels = _HEADER_BYTES, []
    while length := query[position]:
        labels.append(query[position + 1 : position + 1 + length].decode().lower())
        position += 1 + length
    end = position + 5
    (asked_type,) = struct.unpack("!H", query[position + 1 : position + 3])
    known = names.get(".".join(labels))
    found = known if known is not None and asked_type == _TYPE_A else []
    flags = _ANSWERED | (0 if known is not None else _NO_SUCH_NAME)
    header = query[:2] + struct.pack("!5H", flags, 1, len(found), 0, 0)
    records = [
        _POINTER_TO_QUESTION + struct.pack("!HHIH", _TYPE_A, _CLASS_IN, _TTL_S, 4) + socket.inet_aton(address)
        for address in found
    ]
    return header + query[_HEADER_BYTES:end] + b"".join(records)
