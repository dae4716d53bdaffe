"""The JSON patch that adds the sidecar to a pod of Strimzi. Pure. The chart's policy does the same in CEL; a test compares."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

CONTAINER: Final = "tiered-sidecar"
_DATA: Final = "/var/lib/kafka/data"
"""Where the path of every data volume begins: Strimzi mounts additional volumes below /mnt."""
_PER_MOUNT: Final = "~MOUNT_PATH~"

Json = Mapping[str, Any]


def has_sidecar(pod: Json) -> bool:
    """Whether a pod runs the sidecar, native or as an ordinary container."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return any(container.get("name") == CONTAINER for container in containers)


def patch(pod: Json, injection: Json) -> list[dict[str, Any]]:
    """The operations of RFC 6902; none for a pod that has the sidecar, or no container `kafka` with data.

    Args: injection: `initContainers` and `volumes` with marks, as the library chart's `strimzi.injection` has them.
    """
    spec = pod["spec"]
    mounts = [
        mount
        for container in spec["containers"]
        if container["name"] == "kafka"
        for mount in container.get("volumeMounts") or ()
        if mount["mountPath"].startswith(_DATA)
    ]
    if has_sidecar(pod) or not mounts:
        return []
    node = pod["metadata"]["name"].rpartition("-")[2]
    log_dirs = '","'.join(f"{mount['mountPath']}/kafka-log{node}" for mount in mounts)
    facts = {"~NODE~": node, "~LOG_DIRS~": log_dirs}
    known = {volume["name"] for volume in spec.get("volumes") or ()}
    return [
        _add("/metadata/labels/tiered-sidecar~1scrape", "true"),
        *([] if spec.get("initContainers") else [_add("/spec/initContainers", [])]),
        *(_add("/spec/initContainers/-", _filled(one, facts, mounts)) for one in injection["initContainers"]),
        *([] if spec.get("volumes") else [_add("/spec/volumes", [])]),
        *(_add("/spec/volumes/-", one) for one in injection["volumes"] if one["name"] not in known),
    ]


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def _filled(value: Any, facts: Mapping[str, str], mounts: Sequence[Json]) -> Any:
    """With every mark replaced. An element of a list that mentions a mount comes once for each mount."""
    if isinstance(value, Mapping):
        return {name: _filled(part, facts, mounts) for name, part in value.items()}
    if isinstance(value, str):
        for mark, word in facts.items():
            value = value.replace(mark, word)
        return value
    if not isinstance(value, list):
        return value
    filled = []
    for element in value:
        if _PER_MOUNT in json.dumps(element):
            for mount in mounts:
                of_mount = {**facts, "~MOUNT~": mount["name"], _PER_MOUNT: mount["mountPath"]}
                filled.append(_filled(element, of_mount, mounts))
        else:
            filled.append(_filled(element, facts, mounts))
    return filled
