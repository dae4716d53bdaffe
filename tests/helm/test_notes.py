"""The notes that `helm install` shows: Helm renders them only when a cluster answers, so one pretends to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sidecar.cli.kubernetes import Host, recipe
from tests.helm.charts import CHART, NEEDED, helm

pytestmark = pytest.mark.real


_CONFIG_MAPS = {"name": "configmaps", "namespaced": True, "kind": "ConfigMap", "verbs": ["get"]}


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """The version, and lists of nothing."""
        known = {
            "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [_CONFIG_MAPS]},
        }
        found = known.get(self.path.partition("?")[0])
        body = json.dumps(found or {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Nobody reads it."""


@pytest.fixture(name="api", scope="module")
def _api() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def notes_of(values: dict[str, str], api: str, tmp_path: Path) -> str:
    arguments = [word for path, value in values.items() for word in ("--set", f"{path}={value}")]
    configuration = tmp_path / "kubeconfig"
    configuration.write_text("{}")
    printed = helm(
        *("install", "archive", str(CHART), "--dry-run=client", "--disable-openapi-validation"),
        *("--kubeconfig", str(configuration), "--kube-apiserver", api),
        *arguments,
    )
    return printed.partition("NOTES:\n")[2]


def test_the_notes_say_what_compaction_needs_of_the_nodes(api: str, tmp_path: Path) -> None:
    compacting = {**NEEDED, "settings.compaction.topics[0].pattern": "accounts"}
    need = "Nodes need 35328Mi of allocatable ephemeral-storage"
    assert need in notes_of(compacting, api, tmp_path)
    claim = "sidecar.workVolume.ephemeral.volumeClaimTemplate.spec.resources.requests.storage"
    for values in (NEEDED, {**compacting, claim: "64Gi"}):
        assert "ephemeral-storage" not in notes_of(values, api, tmp_path).partition("The text\nbelow")[0]


@pytest.mark.parametrize("host", Host)
def test_the_notes_hold_what_the_command_line_prints(host: Host, api: str, tmp_path: Path) -> None:
    notes = notes_of({**NEEDED, "recipes.for": host, "s3.existingSecret": "keys"}, api, tmp_path)
    assert (
        recipe(
            host,
            image="tiered-sidecar:0.1.0",
            name="archive-tiered-sidecar",
            secret="keys",
            token=None,
            heals=False,
            namespace="default",
        )
        in notes
    )
