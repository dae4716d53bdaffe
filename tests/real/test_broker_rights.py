"""A real broker with an authorizer: with exactly the documented rights all works, and each that is missing is reported by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from sidecar.clock import SystemClock
from sidecar.config import load_settings
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import render
from sidecar.ports import FactsState
from sidecar.runner.configured_facts import open_facts
from sidecar.topic_policy import TopicPolicy
from tests.real.product import json_lines, run_installed, run_program
from tests.real.test_broker_facts import files_of, produce
from tests.real.topics import admin_of, create_topic, set_topic, wait_until
from tests.servers.certificates import Authority
from tests.servers.kafka import KafkaBroker
from tests.servers.secure_kafka import PLAIN_USERS, SecureListeners

pytestmark = pytest.mark.real

USER = "sidecar"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Grant = tuple[AclOperation, ResourceType, str]
TOPIC_DESCRIBE: Grant = (AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")
TOPIC_CONFIGS: Grant = (AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders")
BROKER_CONFIGS: Grant = (AclOperation.DESCRIBE_CONFIGS, ResourceType.BROKER, "kafka-cluster")
TOPIC_READ: Grant = (AclOperation.READ, ResourceType.TOPIC, "orders")
CLUSTER_DESCRIBE: Grant = (AclOperation.DESCRIBE, ResourceType.BROKER, "kafka-cluster")
NEEDED = (TOPIC_DESCRIBE, TOPIC_CONFIGS, BROKER_CONFIGS)


class Guarded:
    """A broker, and the settings with which our user asks it."""

    def __init__(self, broker: KafkaBroker, server: str, directory: Path) -> None:
        self.broker = broker
        password = directory / "password"
        password.write_text(PLAIN_USERS[USER])
        self.settings = {
            "broker.log_dirs": str(broker.log_dirs[0]),
            "broker.connection.bootstrap_servers": server,
            "broker.connection.security_protocol": "SASL_PLAINTEXT",
            "broker.connection.sasl_mechanism": "PLAIN",
            "broker.connection.sasl_username": USER,
            "broker.connection.sasl_password_file": str(password),
            "broker.settle_ms": "0",
            "broker.snapshot_grace_ms": "0",
            "topics.include": "orders",
        }

    def allow(self, *grants: Grant) -> None:
        """These, and nothing else."""
        admin = admin_of(self.broker)
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{USER}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for removed in admin.delete_acls([everything]).values():
            removed.result(30)
        literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        bindings = [
            AclBinding(kind, name, literal, f"User:{USER}", "*", operation, allowed) for operation, kind, name in grants
        ]
        if bindings:
            for created in admin.create_acls(bindings).values():
                created.result(30)
        wait_until("the ACLs hold", lambda: len(admin.describe_acls(everything).result(30)) == len(grants))

    def ask(self) -> tuple[PartitionFacts, FactsState, TopicPolicy]:
        lists = {"broker.log_dirs", "broker.connection.bootstrap_servers", "topics.include"}
        flags = {name: [text] if name in lists else text for name, text in self.settings.items()}
        settings = load_settings(flags={"store.url": "memory://none", **flags}).settings
        with open_facts(settings, SystemClock()) as facts:
            facts.refresh()
            return facts.partition(files_of(self.broker, "orders")), facts.state(), facts.policy("orders")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    authority = Authority(directory / "ca")
    listeners = SecureListeners(authority, authority.issue("broker", "IP:127.0.0.1"))
    broker = KafkaBroker("4.3.0", directory / "broker")
    listeners.attach_to(broker, AUTHORIZER)
    with broker:
        create_topic(broker, "orders", 8192)
        set_topic(broker, "orders", {"retention.ms": "77700000"})
        produce(broker, "orders", 60)
        yield Guarded(broker, listeners.server("SASL"), directory)


def test_the_documented_rights_are_enough_and_each_missing_one_is_named(guarded: Guarded, tmp_path: Path) -> None:
    settings = {**guarded.settings, "store.url": (tmp_path / "archive").as_uri(), "run.state_dir": str(tmp_path / "s")}
    guarded.allow()
    found, state, _ = guarded.ask()
    assert (found.leads, state.away) == (False, None)
    assert "not authorized. Allow it Describe on topic orders" in render(found.reason)
    assert "--operation Describe --topic orders" in state.missing_rights[0]
    refused = run_installed(settings, "backfill")
    assert "--operation Describe --topic orders" in refused.stderr
    assert not (tmp_path / "archive").exists() or not list((tmp_path / "archive").rglob("*.log"))

    guarded.allow(TOPIC_DESCRIBE)
    found, state, policy = guarded.ask()
    assert (found.leads, found.reason) == (True, None)
    assert policy.retention_ms is None
    assert "--operation DescribeConfigs --topic orders" in policy.origins["retention_ms"]
    assert [
        operation in "\n".join(state.missing_rights) for operation in ("DescribeConfigs --t", "DescribeConfigs --c")
    ] == [
        True,
        True,
    ]

    guarded.allow(*NEEDED)
    found, state, policy = guarded.ask()
    assert (found.leads, state.missing_rights, policy.retention_ms) == (True, (), 77_700_000)
    assert policy.producer_id_expiration_ms == 86_400_000
    done = run_program(settings, "backfill")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "archive").rglob("*.log"))
    # The broker keeps all of it: nobody compacts it without saying so twice.
    by_hand = ["compact", "--archive", settings["store.url"], "--topic", "orders", "--dry-run", "--engine", "local"]
    refused = run_program(guarded.settings, *by_hand)
    assert (refused.returncode, "orders-0 is skipped: its cleanup.policy is delete" in refused.stderr) == (0, True)
    twice = run_program(guarded.settings, *by_hand, "--json", "--set", "compaction.ignore_cleanup_policy=true")
    assert [row["segments_left_alone"] for row in json_lines(twice)] == [0]

    (reported,) = json_lines(run_program(settings, "broker", "--json"))
    assert [right.partition("--operation ")[2].partition(")")[0] for right in reported["missing_rights"]] == [
        "Read --topic orders",
        "Describe --cluster",
    ]
    guarded.allow(*NEEDED, TOPIC_READ, CLUSTER_DESCRIBE)
    (reported,) = json_lines(run_program(settings, "broker", "--json"))
    assert (reported["missing_rights"], len(reported["partitions"][0]["producers"]), len(reported["log_dirs"])) == (
        [],
        1,
        1,
    )
    shown = run_program(settings, "broker", "--producers")
    assert "last sequence" in shown.stdout


def test_doctor_names_the_right_that_is_missing(guarded: Guarded, tmp_path: Path) -> None:
    settings = {**guarded.settings, "store.url": (tmp_path / "archive").as_uri()}

    def troubles() -> dict[str, str]:
        (reported,) = json_lines(run_program(settings, "doctor", "--json", "--area", "broker"))
        return {one["check"]: one["detail"] for one in reported["checks"] if one["verdict"] in {"warning", "problem"}}

    guarded.allow()
    found = troubles()
    assert "--operation Describe --topic orders" in found["reports leaders"]
    assert "--operation DescribeConfigs --topic orders" in found["reports topic configs"]
    guarded.allow(*NEEDED)
    assert troubles() == {}
    wrong = {**settings, "broker.connection.sasl_username": "somebody"}
    (reported,) = json_lines(run_program(wrong, "doctor", "--json", "--area", "broker"))
    (refused,) = [one for one in reported["checks"] if one["verdict"] == "problem"]
    assert (refused["check"], reported["exit_code"]) == ("responds as the local broker", 1)
    assert "user somebody is refused" in refused["detail"]
    assert PLAIN_USERS[USER] not in str(reported)
