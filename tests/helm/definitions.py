"""The real definitions of PodMonitor and PrometheusRule, out of the operator's own module (fetched by hash, see `crds/go.mod`)."""

from __future__ import annotations

import json
import subprocess
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.servers.dist import tool
from tests.servers.process import ServerError

MODULE = "github.com/prometheus-operator/prometheus-operator"
_DIRECTORY = Path(__file__).parent / "crds"
_TIMEOUT_S = 300.0


def require_valid(found: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError unless an API server with the operator's definitions would take it and drop nothing."""
    version = found["apiVersion"].rpartition("/")[2]
    schema = _schema(f"monitoring.coreos.com_{found['kind'].lower()}s.yaml", version)
    jsonschema.Draft202012Validator(schema).validate(found)


def definition(name: str) -> str:
    """The text of a CustomResourceDefinition, by the name of its file."""
    with zipfile.ZipFile(_module()) as archive:
        (path,) = (entry for entry in archive.namelist() if entry.endswith(f"/example/prometheus-operator-crd/{name}"))
        return archive.read(path).decode()


@cache
def _schema(name: str, version: str) -> dict[str, Any]:
    versions = yaml.safe_load(definition(name))["spec"]["versions"]
    (schema,) = (one["schema"] for one in versions if one["name"] == version)
    strict: dict[str, Any] = _strict(schema["openAPIV3Schema"])
    # An API server knows what metadata holds, whatever the definition says.
    strict["properties"]["metadata"] = {"type": "object"}
    return strict


@cache
def _module() -> Path:
    command = [tool("go"), "mod", "download", "-json", MODULE]
    done = subprocess.run(command, cwd=_DIRECTORY, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ServerError(f"{' '.join(command)} in {_DIRECTORY}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Zip"])


def _strict(schema: Any) -> Any:
    """As JSON Schema, and with nothing allowed that the definition does not name: an API server would silently drop it."""
    if isinstance(schema, list):
        return [_strict(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _strict(part) for name, part in schema.items() if not name.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string") is True:
        made["type"] = ["integer", "string"]
        del made["anyOf"]
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made
