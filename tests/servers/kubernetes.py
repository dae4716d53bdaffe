"""A real Kubernetes API server on etcd: it validates, admits and stores objects. No controller and no node acts on them."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers.certificates import Authority
from tests.servers.dist import go_module_programs
from tests.servers.process import Server, ServerError, ServerProcess, free_port

KUBERNETES_VERSION = "1.36.2"
"""Of `gomodules/kubernetes/go.mod`. It serves both forms of admission policies, v1 and v1beta1."""
_VERSION_PACKAGE = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.split(".")
# Without it the programs say that they are v0.0.0-master, and Helm refuses the cluster as too old.
_LINKER_FLAGS = (
    f"-X {_VERSION_PACKAGE}.gitVersion=v{KUBERNETES_VERSION} "
    f"-X {_VERSION_PACKAGE}.gitMajor={_MAJOR} -X {_VERSION_PACKAGE}.gitMinor={_MINOR}"
)
_TOKEN = "token-of-the-tests"
_START_TIMEOUT_S = 180.0
_TRIES = 60
_COMMAND_TIMEOUT_S = 300.0


class KubectlFailed(RuntimeError):
    """kubectl ended with an error, or the API server warned; the message is kubectl's own."""


@cache
def kubernetes_program(name: str) -> Path:
    """The path of `kube-apiserver`, `kubectl` or `etcd`. Raises ServerError."""
    # Go names a program after its package: etcd's is go.etcd.io/etcd/server.
    return go_module_programs("kubernetes", _LINKER_FLAGS) / ("server" if name == "etcd" else name)


@cache
def node_program(name: str) -> Path:
    """The path of `kubelet`, `kube-controller-manager`, `kube-proxy` or `kube-scheduler`. Raises ServerError."""
    return go_module_programs("kubernetes-node", _LINKER_FLAGS) / name


class KubernetesApi(Server):
    """etcd and an API server on free ports of 127.0.0.1, with an authority of their own; a context manager.

    The one user is an administrator. With `client_environment` kubectl and Helm find the server; `accounts_key` signs tokens of
    service accounts.
    """

    def __init__(self, directory: Path, extra_flags: Sequence[str] = ()) -> None:
        self._port, etcd_port, peer_port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        kubeconfig = directory / "kubeconfig"
        authority = Authority(directory / "pki", "kube-test")
        self.ca_file = authority.ca_file
        server = authority.issue("kube-apiserver", "IP:127.0.0.1,DNS:localhost")
        accounts = authority.issue("service-accounts")
        self.accounts_key = accounts.key
        users = directory / "users.csv"
        users.write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
        # They end before collecting garbage pays; what they know of this server is kept beside it, not in the user's home.
        self.client_environment = {
            "KUBECONFIG": str(kubeconfig),
            "KUBECACHEDIR": str(directory / "cache"),
            "GOGC": "off",
        }
        _write_kubeconfig(kubeconfig, self.url, self.ca_file)
        etcd, peer = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        self._etcd = ServerProcess(
            "etcd",
            [
                str(kubernetes_program("etcd")),
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            directory / "etcd.log",
        )
        self._api = ServerProcess(
            "kube-apiserver",
            [
                str(kubernetes_program("kube-apiserver")),
                f"--etcd-servers={etcd}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self._port}",
                "--advertise-address=127.0.0.1",
                # Its Service would get endpoints, which must not be on loopback.
                "--endpoint-reconciler-type=none",
                f"--tls-cert-file={server.chain}",
                f"--tls-private-key-file={server.key}",
                f"--token-auth-file={users}",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.96.0.0/24",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={accounts.chain}",
                f"--service-account-signing-key-file={accounts.key}",
                "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
                "--profiling=false",
                # A second of CPU in each start, for one user.
                "--enable-priority-and-fairness=false",
                *extra_flags,
            ],
            directory / "kube-apiserver.log",
            # It has little that lives: garbage is an eighth of its CPU, and collected late costs 150 MB.
            {"GOGC": "400"},
        )

    def start(self) -> None:
        """See Server."""
        self._etcd.launch()
        self._api.launch()
        self._api.wait_until(self._is_ready, _START_TIMEOUT_S)

    def close(self) -> None:
        """See Server."""
        self._api.kill()
        self._etcd.kill()

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What a command prints. Raises KubectlFailed, also where the API server warns."""
        command = [str(kubernetes_program("kubectl")), "--warnings-as-errors", *arguments]
        environment = {**os.environ, **self.client_environment}
        done = subprocess.run(
            command,
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def request(self, method: str, path: str, body: object = None) -> Any:
        """One call of the API, such as `GET /api/v1/pods`; the object it answers. Raises urllib.error.HTTPError."""
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return json.loads(self._answer(method, path, None if body is None else json.dumps(body).encode(), content_type))

    def _answer(self, method: str, path: str, data: bytes | None = None, content_type: str = "text/plain") -> bytes:
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": content_type}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        context = ssl.create_default_context(cafile=str(self.ca_file))
        with urllib.request.urlopen(request, timeout=_COMMAND_TIMEOUT_S, context=context) as answer:
            found: bytes = answer.read()
        return found

    def get_all(self, paths: Iterable[str]) -> list[Any]:
        """The objects that these paths have, over one connection: kubectl needs a quarter of a second of CPU for 30 lists."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=_COMMAND_TIMEOUT_S, context=context)
        with closing(connection):
            return [_listed(connection, path) for path in paths]

    def define(self, *definitions: str) -> None:
        """Adds CustomResourceDefinitions, given as YAML, and returns when their objects can be created. Raises KubectlFailed."""
        command = ("apply", "--server-side", "--output=name", "-f", "-")
        names = self.kubectl(*command, stdin="\n---\n".join(definitions)).split()
        for name in names:
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name.rpartition('/')[2]}"
            # `kubectl wait` fails where there is no condition yet.
            self._api.wait_until(lambda path=path: _is_established(self.request("GET", path)), _START_TIMEOUT_S)

    def create_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """A namespace with the ServiceAccount `default`, which in a cluster a controller makes and every pod needs."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {}}})
        self.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})

    def _is_ready(self) -> bool:
        try:
            self._answer("GET", "/readyz")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _write_kubeconfig(path: Path, url: str, ca_file: Path) -> None:
    """As JSON, which is YAML too: what brings the programs has no package (`bring.py`)."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "admin", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(config))
    path.chmod(0o600)


def _listed(connection: http.client.HTTPSConnection, path: str) -> Any:
    """Kinds that have just been defined are refused for a moment: "storage is (re)initializing", with status 429."""
    for _ in range(_TRIES):
        connection.request("GET", path, headers={"Authorization": f"Bearer {_TOKEN}"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status == 200:
            return json.loads(text)
        if answer.status != 429:
            break
        time.sleep(1.0)  # noqa: TID251 - a real server has no other clock
    raise ServerError(f"kube-apiserver: GET {path}: {answer.status} {text.decode()}")
