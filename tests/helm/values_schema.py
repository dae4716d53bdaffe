"""The schema of the chart's values: from `values.yaml` what the chart has, from the settings model what `settings` may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidecar.cli.kubernetes import Host
from sidecar.config import Settings
from sidecar.config.meanings import DescribedSchema

_TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}}
_SOME_TEXTS = {**_TEXTS, "minItems": 1}
_MOUNTS = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "mountPath"],
        "properties": {"name": {"type": "string"}, "mountPath": {"type": "string", "pattern": "^/"}},
    },
}
_PORTS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_TEXT = {"type": "string", "minLength": 1}
_SWITCH = {"type": "boolean"}


def _closed(*required: str, **properties: Any) -> dict[str, Any]:
    """Unknown names are refused. For types of Kubernetes the API server would: the pods of brokers, where they are injected."""
    closed: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**closed, "required": list(required)} if required else closed


# Sources that Kubernetes 1.29 or a newer version mounts.
_VOLUME = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "portworxVolume",
    "projected",
    "rbd",
    "secret",
    "vsphereVolume",
]
_QUANTITIES = {"type": "object", "additionalProperties": {"type": ["string", "number", "null"]}}
_RESOURCES = _closed(limits=_QUANTITIES, requests=_QUANTITIES, claims=_OBJECTS)
_EXTRA_ENV = _closed(
    "name", name={"type": "string", "pattern": "^[^=]+$"}, value={"type": "string"}, valueFrom={"type": "object"}
)
_EXTRA_MOUNT = _closed(
    "name",
    "mountPath",
    name=_TEXT,
    mountPath=_TEXT,
    mountPropagation=_TEXT,
    readOnly=_SWITCH,
    recursiveReadOnly=_TEXT,
    subPath=_TEXT,
    subPathExpr=_TEXT,
)
_WHERE_KNOWN = {"enum": ["auto", True, False]}
_NAME = {"type": "string", "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$"}
_STRONGER: dict[str, Any] = {
    "nameOverride": _NAME,
    "fullnameOverride": _NAME,
    "image.tag": {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "imagePullSecrets": _OBJECTS,
    **{f"{part}.resources": _RESOURCES for part in ("sidecar", "heal", "backfill", "inject.webhook")},
    "sidecar.workVolume": {"type": "object", "propertyNames": {"enum": _VOLUME}},
    "sidecar.extraEnv": {"type": "array", "items": _EXTRA_ENV},
    "sidecar.extraVolumes": {
        "type": "array",
        "items": {"type": "object", "required": ["name"], "propertyNames": {"enum": ["name", *_VOLUME]}},
    },
    "sidecar.extraVolumeMounts": {"type": "array", "items": _EXTRA_MOUNT},
    "heal.arguments": _TEXTS,
    "recipes.for": {"enum": list(Host)},
    **{f"recipes.hosts.{host}.logDirs": _SOME_TEXTS for host in Host},
    # With `runAsNonRoot` the kubelet starts no container as root, and the broker of a native sidecar waits.
    **{f"recipes.hosts.{host}.runAsUser": {"type": "integer", "minimum": 1} for host in Host},
    **{f"recipes.hosts.{host}.mounts": _MOUNTS for host in Host},
    "backfill.arguments": _TEXTS,
    "backfill.brokers": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name", "claim", "logDirs"],
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,14}[a-z0-9])?$"},
                "claim": {"type": "string", "minLength": 1},
                "logDirs": _SOME_TEXTS,
            },
        },
    },
    "backfill.tolerations": _OBJECTS,
    "podMonitor.enabled": _WHERE_KNOWN,
    "podMonitor.namespaces": _TEXTS,
    "prometheusRule.enabled": _WHERE_KNOWN,
    "networkPolicy.storePorts": _PORTS,
    "networkPolicy.storeTo": _OBJECTS,
    "networkPolicy.brokerPorts": _PORTS,
    "networkPolicy.brokerTo": _OBJECTS,
    "inject.engine": {"enum": ["policy", "webhook"]},
    "inject.webhook.replicas": {"type": "integer", "minimum": 1},
    "extraObjects": _OBJECTS,
}
_OPEN = {"labels"}
"""Sections whose default is a mapping, and any other may be given."""


def values_schema(values: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, refusing what the chart does not know."""
    settings = _of_the_chart(Settings.model_json_schema(schema_generator=DescribedSchema))
    definitions = settings.pop("$defs")
    schema = _of_value({name: value for name, value in values.items() if name != "settings"}, "")
    schema["properties"]["settings"] = settings
    schema["required"].append("settings")
    # Helm puts these in by itself.
    schema["properties"] |= {"global": {"type": "object"}, "tiered-sidecar-lib": {"type": "object"}}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values", **schema, "$defs": definitions}


def _of_value(value: Any, path: str) -> dict[str, Any]:
    name = path.rpartition(".")[2]
    if path in _STRONGER:
        return dict(_STRONGER[path])
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case str():
            return {"type": "string"}
        case dict() if not value or name in _OPEN:
            return {"type": "object"}
        case dict():
            members = {member: _of_value(found, f"{path}.{member}".lstrip(".")) for member, found in value.items()}
            return _closed(*([] if path == "recipes.hosts" else _sections(members)), **members)
    raise ValueError(f"values.yaml: {path} is a {type(value).__name__}: say in values_schema.py what it may hold")


def _sections(members: Mapping[str, Any]) -> list[str]:
    """Helm drops a section whose heading has nothing below it, and a template would end with a nil pointer."""
    return [name for name, member in members.items() if "properties" in member and name != "resources"]


def _of_the_chart(model: Any) -> Any:
    """Without secrets, which belong in a Secret; without defaults, which are the program's. The archive's URL may be empty."""
    if isinstance(model, list):
        return [_of_the_chart(element) for element in model]
    if not isinstance(model, dict):
        return model
    kept = {}
    for name, part in model.items():
        if name == "properties":
            kept[name] = {field: _of_the_chart(found) for field, found in part.items() if not _is_secret(found)}
        elif name == "$ref" and part == "#/$defs/TopicCompaction":
            # A pattern alone is an entry, too.
            kept["anyOf"] = [{"type": "string"}, {"$ref": part}]
        elif name not in {"default", "title", "format"} and not (name == "required" and "url" in part):
            kept[name] = _of_the_chart(part)
    return kept


def _is_secret(part: Mapping[str, Any]) -> bool:
    return any(kind.get("writeOnly") for kind in (part, *part.get("anyOf", ())))
