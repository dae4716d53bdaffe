"""What the sidecar uses of kafka-python beyond its public clients. pyproject.toml caps the version for this reason.

To raise the cap: install the new version, run this file, `tests/broker` and `make matrix`.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import kafka
import pytest
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]

NAMES = {
    "kafka.errors": (
        *(
            "KafkaError",
            "KafkaConnectionError",
            "IncompatibleBrokerVersion",
            "IllegalSaslStateError",
            "KafkaTimeoutError",
        ),
        *(
            "NodeNotReadyError",
            "RequestTimedOutError",
            "SaslAuthenticationFailedError",
            "UnsupportedSaslMechanismError",
        ),
        "for_code",
    ),
    "kafka.net.compat": ("KafkaNetClient",),
    "kafka.net.sasl.oauth": ("AbstractTokenProvider",),
    "kafka.protocol.admin": ("DescribeConfigsRequest", "DescribeLogDirsRequest", "DescribeProducersRequest"),
    "kafka.protocol.consumer": ("ListOffsetsRequest",),
    "kafka.protocol.metadata": ("MetadataRequest",),
}
REQUEST_PARTS = {
    "kafka.protocol.admin": ("DescribeConfigsRequest.DescribeConfigsResource", "DescribeProducersRequest.TopicRequest"),
    "kafka.protocol.consumer": ("ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition",),
    "kafka.protocol.metadata": ("MetadataRequest.MetadataRequestTopic",),
}
MANAGER = {
    "bootstrap": ("timeout_ms",),
    "get_connection": ("node_id", "timeout_ms", "pop_on_close", "refresh_metadata_on_err"),
    "least_loaded_node": (),
    "run": ("coro",),
}
CHANGED = (
    "kafka-python has changed an internal that sidecar/broker uses: adapt sidecar/broker/client.py, then raise the cap"
)


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for found in (NAMES, REQUEST_PARTS) for module in found for name in found[module]],
)
def test_names_are_where_they_were(module: str, name: str) -> None:
    value: object = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part, None)
        assert value is not None, f"{module}.{name} is gone; {CHANGED}"


@pytest.fixture
def client() -> Iterator[KafkaNetClient]:
    made = KafkaNetClient(bootstrap_servers=["127.0.0.1:1"], request_timeout_ms=1000)
    made._manager._net.start()
    yield made
    made._manager._net.stop()
    made.close()


def test_the_client_has_its_manager_and_its_loop(client: KafkaNetClient) -> None:
    manager = client._manager
    loop = manager._net
    for owner, names in (
        (client, ("connected", "in_flight_request_count", "close")),
        (manager, (*MANAGER, "cluster")),
        (manager.cluster, ("brokers", "bootstrap_brokers")),
        (loop, ("start", "stop", "sleep", "_selector")),
        (loop._selector, ("get_map",)),
    ):
        missing = [name for name in names if not hasattr(owner, name)]
        assert not missing, f"{type(owner).__name__} lacks {missing}; {CHANGED}"


@pytest.mark.parametrize("method", MANAGER)
def test_the_manager_takes_the_arguments_that_it_is_given(method: str, client: KafkaNetClient) -> None:
    parameters = inspect.signature(getattr(client._manager, method)).parameters
    assert {*MANAGER[method]} <= parameters.keys(), f"{method}{tuple(parameters)}; {CHANGED}"


def test_connections_have_what_is_asked_of_them() -> None:
    assert {"connected", "paused"} <= {*KafkaConnection.__init__.__code__.co_names}, CHANGED
    assert "request_timeout_ms" in inspect.signature(KafkaConnection.send_request).parameters, CHANGED


def test_the_version_is_capped_and_the_installed_one_is_the_locked_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [found for found in map(Requirement, project["dependencies"]) if found.name == "kafka-python"]
    assert {"<", ">="} == {clause.operator for clause in wanted.specifier}
    installed = version("kafka-python")
    assert installed in wanted.specifier
    for lock in ("requirements.lock", "requirements-image.lock"):
        assert f"kafka-python=={installed} " in (ROOT / lock).read_text()
    (cap,) = [Version(clause.version) for clause in wanted.specifier if clause.operator == "<"]
    # The newest release of the series that the cap closes is the one that is tested.
    assert Version(installed).release[:2] == (cap.release[0], cap.release[1] - 1)
    assert kafka.__version__ == installed
