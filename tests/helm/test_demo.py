"""The demo as rendered, its commands and settings run as plain processes beside a real broker and a real S3 server.

Paths of the containers and the name of the S3 server are put in for those of this machine; everything else is as a cluster
would get it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from tests.helm.charts import CHART, rendered
from tests.helm.test_charts import is_ours, pods_of
from tests.real.product import PROGRAM
from tests.servers.kafka import KafkaBroker
from tests.servers.process import ServerProcess, free_port, port_answers
from tests.servers.versitygw import VersityGateway

pytestmark = [pytest.mark.real, pytest.mark.slow]

_OF_THE_NETWORK = ("CLUSTER", "NODE", "PROCESS", "LISTENER", "ADVERTISED", "CONTROLLER", "LOG_DIRS", "HEAP", "INTER")
TIMEOUT_S = 300
POD_ID = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}


class Demo:
    """The containers of the rendered demo by name, and where their paths lie here."""

    def __init__(self, directory: Path, gateway: VersityGateway) -> None:
        objects = rendered({"heal.enabled": "true"}, files=[CHART / "ci" / "demo-values.yaml"], release="demo")
        pods = pods_of(objects)
        everything = [container for pod in pods for container in [*pod.get("initContainers", ()), *pod["containers"]]]
        self.containers = {container["name"]: container for container in everything}
        self._secrets = {
            found["metadata"]["name"]: found["stringData"] for found in objects if found["kind"] == "Secret"
        }
        self._keys = {"access-key-id": gateway.access_key, "secret-access-key": gateway.secret_key}
        self.http_port = free_port()
        self.test_pod_id = "3f2c6b8e-5d0a-4c1f-9e37-0a8b1c2d3e4f"
        self.log_dir = directory / "logs-0"
        (settings,) = (found["data"]["settings.yaml"] for found in objects if "settings.yaml" in found.get("data", {}))
        tree = yaml.safe_load(settings)
        assert tree["store"]["s3"]["endpoint_url"] == "http://demo-tiered-sidecar-demo-s3:7070"
        tree["store"]["s3"]["endpoint_url"] = gateway.endpoint
        tree["http"]["bind"] = f"127.0.0.1:{self.http_port}"
        self._paths = {
            "/etc/tiered-sidecar": directory / "etc",
            "/etc/tiered-sidecar-keys": directory / "keys",
            "/var/lib/tiered-sidecar": directory / "work",
            "/var/lib/kafka/data/logs": self.log_dir,
            "/tmp": directory / "tmp",
        }
        for path in self._paths.values():
            path.mkdir(exist_ok=True)
        (directory / "etc" / "settings.yaml").write_text(self._here(yaml.safe_dump(tree)))
        for key, value in self._keys.items():
            (directory / "keys" / key).write_text(value)

    def command(self, name: str) -> list[str]:
        """Of a container; our image's entry point is the program."""
        container = self.containers[name]
        words = [word.replace("$(POD_UID)", self.test_pod_id) for word in _words_of(container)]
        named = [self._here(word) for word in words]
        return [str(PROGRAM), *named] if is_ours(container) and "command" not in container else named

    def environment(self, name: str) -> dict[str, str]:
        """Of a container, with the secrets put in."""
        found = {name: value for name, value in os.environ.items() if not name.startswith(("TIERED_SIDECAR", "AWS_"))}
        found["PATH"] = f"{PROGRAM.parent}:{found['PATH']}"
        for entry in self.containers[name]["env"]:
            if "value" in entry:
                found[entry["name"]] = self._here(entry["value"])
            elif "fieldRef" in entry["valueFrom"]:
                assert entry == POD_ID
                found[entry["name"]] = self.test_pod_id
            else:
                reference = entry["valueFrom"]["secretKeyRef"]
                assert self._secrets[reference["name"]][reference["key"]]
                found[entry["name"]] = self._keys[reference["key"]]
        found["TIERED_SIDECAR__HTTP__BIND"] = f"127.0.0.1:{self.http_port}"
        # Compiled kernels are kept where all tests keep theirs: to compile them is not what is tested.
        found.pop("NUMBA_CACHE_DIR")
        return found

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A container that ends by itself, or our program with other arguments in its place."""
        return subprocess.run(
            [str(PROGRAM), *arguments] if arguments else self.command(name),
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def broker_properties(self) -> Mapping[str, str]:
        """What the demo says of its broker, but for addresses and directories."""
        variables: list[dict[str, Any]] = self.containers["kafka"]["env"]
        return {
            entry["name"].removeprefix("KAFKA_").lower().replace("_", "."): entry["value"]
            for entry in variables
            if not entry["name"].removeprefix("KAFKA_").startswith(_OF_THE_NETWORK)
        }

    def _here(self, text: str) -> str:
        places = "|".join(re.escape(path) for path in self._paths)
        return re.sub(rf"(?<![\w/-])({places})(?![\w-])", lambda found: str(self._paths[found[1]]), text)


def test_the_demo_archives_what_is_written_to_its_broker(tmp_path: Path) -> None:
    with VersityGateway(tmp_path / "s3") as gateway:
        demo = Demo(tmp_path, gateway)
        healed = demo.run("heal-producer-snapshots")
        assert healed.returncode == 0, healed.stderr
        version = demo.containers["kafka"]["image"].rpartition(":")[2]
        broker = KafkaBroker(version, tmp_path, properties=demo.broker_properties())
        assert broker.log_dirs == [demo.log_dir]
        sidecar = ServerProcess(
            "tiered-sidecar", demo.command("tiered-sidecar"), tmp_path / "run.log", demo.environment("tiered-sidecar")
        )
        with broker:
            sidecar.launch()
            try:
                sidecar.wait_until(lambda: port_answers(demo.http_port), TIMEOUT_S)
                _produce(broker, demo.command("produce"))
                verified = demo.run("verify")
                assert verified.returncode == 0, verified.stdout + verified.stderr + sidecar.tail()
                assert f"helm-test-{demo.test_pod_id}" in verified.stdout
                assert "create-only put under a race" in verified.stdout
                examined = demo.run("tiered-sidecar", "doctor", "--json")
                assert examined.returncode == 0, examined.stdout + examined.stderr
                verdicts = {check["check"]: check["verdict"] for check in json.loads(examined.stdout)["checks"]}
                assert {"ok", "not_checked"} == set(verdicts.values())
            finally:
                sidecar.kill()
            # Nothing archives now, but the archive has what the test before wrote.
            demo.test_pod_id = "b7a1d9c4-8e26-4f53-a0d8-6c5b4a39281f"
            _produce(broker, demo.command("produce"))
            demo.containers["verify"]["args"] = [
                word.replace("seq 60", "seq 2") for word in demo.containers["verify"]["args"]
            ]
            refused = demo.run("verify")
            assert refused.returncode == 1, refused.stdout + refused.stderr
            assert (
                f"nothing of topic helm-test-{demo.test_pod_id}, which this test wrote, was archived" in refused.stderr
            )
        stopped = demo.run("heal-producer-snapshots")
        assert stopped.returncode == 0, stopped.stderr
        assert '"exit_code": 0' in stopped.stdout


def _words_of(container: Mapping[str, Any]) -> list[str]:
    return [*container.get("command", ()), *container.get("args", ())]


def _produce(broker: KafkaBroker, command: list[str]) -> None:
    """What the demo's perf-test tool would write."""
    options = dict(word.removeprefix("--").split("=", 1) for word in command if word.startswith("--") and "=" in word)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for _ in range(int(options["num-records"])):
        producer.produce(options["topic"], Random(7).randbytes(int(options["record-size"])))
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
