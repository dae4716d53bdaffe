"""Strimzi: its definitions, from jars on Maven Central, and its operator, of which no registry has the jars."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.servers.dist import server_libs, tool
from tests.servers.kubernetes import KubernetesApi
from tests.servers.process import Server, ServerError, ServerProcess

VERSION = "1.2.0"
"""Of `poms/strimzi.xml`."""
_KINDS = (
    "bridge.KafkaBridge",
    "connect.KafkaConnect",
    "connector.KafkaConnector",
    "kafka.Kafka",
    "mirrormaker2.KafkaMirrorMaker2",
    "nodepool.KafkaNodePool",
    "podset.StrimziPodSet",
    "rebalance.KafkaRebalance",
    "topic.KafkaTopic",
    "user.KafkaUser",
)
_JAVA_VERSION = 21
_TIMEOUT_S = 120.0
_KAFKA = ("4.2.0", "4.2.1", "4.3.0", "4.3.1")
_OPERATOR_IMAGE, _KAFKA_IMAGE = (
    f"quay.io/strimzi/operator:{VERSION}",
    f"quay.io/strimzi/kafka:{VERSION}-kafka-{_KAFKA[-1]}",
)
_BY_VERSION = "\n".join(f"{version}=quay.io/strimzi/kafka:{VERSION}-kafka-{version}" for version in _KAFKA)
_IMAGES = {
    "KAFKA_IMAGES": _BY_VERSION,
    "KAFKA_CONNECT_IMAGES": _BY_VERSION,
    "KAFKA_MIRROR_MAKER_2_IMAGES": _BY_VERSION,
    "DEFAULT_TOPIC_OPERATOR_IMAGE": _OPERATOR_IMAGE,
    "DEFAULT_USER_OPERATOR_IMAGE": _OPERATOR_IMAGE,
    "DEFAULT_KAFKA_INIT_IMAGE": _OPERATOR_IMAGE,
    "DEFAULT_KAFKA_EXPORTER_IMAGE": _KAFKA_IMAGE,
    "DEFAULT_CRUISE_CONTROL_IMAGE": _KAFKA_IMAGE,
    "DEFAULT_KAFKA_BRIDGE_IMAGE": "quay.io/strimzi/kafka-bridge:1.1.0",
    "DEFAULT_KANIKO_EXECUTOR_IMAGE": f"quay.io/strimzi/kaniko-executor:{VERSION}",
    "DEFAULT_BUILDAH_IMAGE": f"quay.io/strimzi/buildah:{VERSION}",
    "DEFAULT_MAVEN_BUILDER": f"quay.io/strimzi/maven-builder:{VERSION}",
}


def definitions() -> list[str]:
    """The CustomResourceDefinitions of the release, made by its own generator as its build does. Raises ServerError."""
    generator = [_java(), "-cp", f"{server_libs('strimzi')}/*", "io.strimzi.crdgenerator.CrdGenerator"]
    options = ["--target-kube", "1.16+", "--crd-api-version", "v1", "--api-versions", "v1", "--storage-version", "v1"]
    with tempfile.TemporaryDirectory() as name:
        files = {kind: Path(name) / f"{kind}.yaml" for kind in _KINDS}
        wanted = [f"io.strimzi.api.kafka.model.{kind}={path}" for kind, path in files.items()]
        done = subprocess.run(
            [*generator, *options, "--yaml", *wanted], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise ServerError(f"CrdGenerator: {done.stdout}{done.stderr}")
        return [path.read_text() for path in files.values()]


class StrimziOperator(Server):
    """The cluster operator for one namespace; a context manager. It reconciles every 20 s, and waits 15 s for pods.

    Args:
        libs: the jars of the operator and of all that it needs.
    """

    def __init__(self, api: KubernetesApi, namespace: str, libs: Path, log: Path) -> None:
        options = {
            "NAMESPACE": namespace,
            "OPERATOR_NAMESPACE": namespace,
            "LEADER_ELECTION_ENABLED": "false",
            "FULL_RECONCILIATION_INTERVAL_MS": "20000",
            "OPERATION_TIMEOUT_MS": "15000",
        }
        environment = {f"STRIMZI_{name}": value for name, value in (options | _IMAGES).items()}
        environment["KUBECONFIG"] = api.client_environment["KUBECONFIG"]
        command = [_java(), "-Xmx512m", "-cp", f"{libs}/*", "io.strimzi.operator.cluster.Main"]
        self._process = ServerProcess("strimzi", command, log, environment)

    def start(self) -> None:
        """See Server."""
        self._process.launch()

    def close(self) -> None:
        """See Server."""
        self._process.kill()


def _java() -> str:
    """Of `_JAVA_VERSION` or newer, which Strimzi's classes need. Raises ServerError."""
    found = [Path(os.path.realpath(tool("java"))).parents[1], *Path("/usr/lib/jvm").glob("*")]
    for home in found:
        release = home / "release"
        version = re.search(r'JAVA_VERSION="(\d+)', release.read_text()) if release.exists() else None
        if version and int(version[1]) >= _JAVA_VERSION:
            return str(home / "bin/java")
    raise ServerError(f"Strimzi needs Java {_JAVA_VERSION} or newer, on PATH or below /usr/lib/jvm")
