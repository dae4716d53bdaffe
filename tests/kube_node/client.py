"""A pod from which tests see what a NetworkPolicy lets through."""

from __future__ import annotations

import json

from tests.image.build import IMAGE
from tests.kube.cluster import Namespace

PORT = 8000
"""On which it listens."""
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("open")
except OSError:
    print("closed")
"""
_PYTHON = "/opt/tiered-sidecar/bin/python"


def start_client(namespace: Namespace, name: str = "client") -> str:
    """Its address, when it listens. No policy of a chart selects it."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    seccomp = {"type": "RuntimeDefault"}
    container = {
        "name": "client",
        "image": IMAGE,
        "command": [_PYTHON, "-m", "http.server", str(PORT), "--directory", "/tmp"],
        "securityContext": security,
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": seccomp},
        "containers": [container],
    }
    namespace.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
    namespace.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=90s")
    return address_of(namespace, name)


def address_of(namespace: Namespace, pod: str) -> str:
    """The address of a pod that runs."""
    return namespace.kubectl("get", "pod", pod, "--output=jsonpath={.status.podIP}")


def can_connect(namespace: Namespace, pod: str, container: str, address: str, port: int) -> bool:
    """Whether a container with the image of the sidecar gets a TCP connection. Raises KubectlFailed."""
    command = ("exec", pod, "-c", container, "--", _PYTHON, "-c", _CONNECT, address, str(port))
    return namespace.kubectl(*command).strip() == "open"
