"""TLS and SASL against real brokers: who we are, whom we believe, and one clear sentence for each way in which that fails."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from sidecar.broker.cluster_view import ClusterView, describe_topics
from sidecar.broker.connection import BrokerConnection
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.errors import BrokerUnavailable
from sidecar.model import TopicPartition
from tests.real.daemon import Daemon, eventually
from tests.real.product import json_lines, run_program
from tests.real.test_broker_facts import produce
from tests.real.topics import admin_of, create_topic, wait_until
from tests.servers.certificates import KEYSTORE_PASSWORD, Authority, Certificate, encrypted_key
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_java import kafka_tool
from tests.servers.secure_kafka import PLAIN_USERS, SecureListeners, unsecured_token

pytestmark = pytest.mark.real

ORDERS = TopicPartition("orders", 0)
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
SECRET = "first-of-the-secrets"
USER = "sidecar"


@dataclass(frozen=True)
class Secured:
    """A broker, its listeners, and what a client needs for them."""

    broker: KafkaBroker
    listeners: SecureListeners
    authority: Authority
    client: Certificate
    directory: Path

    def settings(self, listener: str, **further: Any) -> BrokerConnectionSettings:
        protocol = {"TLS": "SSL", "MTLS": "SSL", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL"}[listener]
        tls = {"ssl_ca_file": self.authority.ca_file} if protocol.endswith("SSL") else {}
        own = {"ssl_certificate_file": self.client.chain, "ssl_key_file": self.client.key} if listener == "MTLS" else {}
        return BrokerConnectionSettings.model_validate(
            {
                "bootstrap_servers": (self.listeners.server(listener),),
                "security_protocol": protocol,
                "request_timeout_s": 40,
                **tls,
                **own,
                **further,
            }
        )

    def by_password(self, listener: str, mechanism: str, password: str) -> BrokerConnectionSettings:
        file = self.secret(f"{mechanism}-password", password)
        return self.settings(listener, sasl_mechanism=mechanism, sasl_username=USER, sasl_password_file=file)

    def by_token(self, listener: str, lives_s: int) -> BrokerConnectionSettings:
        now_s = int(time.time())  # noqa: TID251 - the broker's clock
        file = self.secret("token", unsecured_token(USER, now_s - 60, now_s + lives_s))
        return self.settings(listener, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_file=file)

    def secret(self, name: str, text: str) -> Path:
        """Replaced as Kubernetes replaces it: by a rename."""
        path, fresh = self.directory / name, self.directory / f"{name}.new"
        fresh.write_text(text + "\n")
        fresh.rename(path)
        return path

    def set_scram(self, mechanism: str, password: str) -> None:
        info = ScramCredentialInfo(SCRAM[mechanism], 4096)
        admin = admin_of(self.broker)
        (done,) = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(USER, info, password.encode())]
        ).values()
        done.result(30)
        # The controller answers before its brokers have heard of it.
        file = self.secret("tried-password", password)
        tried = self.settings("SASLTLS", sasl_mechanism=mechanism, sasl_username=USER, sasl_password_file=file)
        wait_until(f"the broker takes the password of {mechanism}", lambda: is_taken(tried))


def started(version: str, directory: Path) -> Iterator[Secured]:
    authority = Authority(directory / "ca")
    listeners = SecureListeners(authority, authority.issue("broker", "IP:127.0.0.1"))
    broker = KafkaBroker(version, directory / "broker")
    listeners.attach_to(broker)
    with broker:
        secured = Secured(broker, listeners, authority, authority.issue(USER), directory)
        create_topic(broker, "orders", 8192)
        for mechanism in SCRAM:
            secured.set_scram(mechanism, SECRET)
        yield secured


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    yield from started("4.3.0", tmp_path_factory.mktemp("secured"))


def asked(settings: BrokerConnectionSettings) -> ClusterView:
    connection = BrokerConnection(settings)
    try:
        return describe_topics(connection, ["orders"])
    finally:
        connection.close()


def is_taken(settings: BrokerConnectionSettings) -> bool:
    try:
        asked(settings)
    except BrokerUnavailable:
        return False
    return True


def knows_us(settings: BrokerConnectionSettings) -> bool:
    return ORDERS in asked(settings).leaders


def trouble_with(settings: BrokerConnectionSettings) -> str:
    with pytest.raises(BrokerUnavailable) as caught:
        asked(settings)
    return str(caught.value)


def test_a_broker_is_asked_by_tls_and_by_every_mechanism(newest: Secured) -> None:
    locked = encrypted_key(newest.client.key, "of-the-key")
    of_key = newest.secret("key-password", "of-the-key")
    ways = [
        newest.settings("TLS"),
        newest.settings("MTLS"),
        newest.settings("MTLS", ssl_key_file=locked, ssl_key_password_file=of_key),
        newest.by_password("SASL", "PLAIN", PLAIN_USERS[USER]),
        newest.by_token("SASL", 600),
        *(newest.by_password("SASL", mechanism, SECRET) for mechanism in SCRAM),
        newest.by_password("SASLTLS", "SCRAM-SHA-512", SECRET),
        newest.by_token("SASLTLS", 600),
    ]
    for settings in ways:
        assert knows_us(settings), settings


def test_command_config_is_read_as_kafka_s_own_tools_read_it(newest: Secured, tmp_path: Path) -> None:
    """The same file, with a password that needs escapes, lets both in; and stores made by Java's keytool are read."""
    password = 'a "quoted" one; # \\ and more'
    newest.set_scram("SCRAM-SHA-256", password)
    truststore = truststore_of(newest.authority.ca_file, tmp_path / "truststore.jks", "PKCS12", "of-the-truststore")
    java = password.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    trusted = f"ssl.truststore.location={truststore}\nssl.truststore.password=of-the-truststore\n"
    by_password = tmp_path / "client.properties"
    by_password.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="{USER}" password="{java}";\n{trusted}'
    )
    by_certificate = tmp_path / "mutual.properties"
    by_certificate.write_text(
        f"security.protocol=SSL\n{trusted}ssl.keystore.location={newest.client.keystore}\n"
        f"ssl.keystore.password={KEYSTORE_PASSWORD}\nssl.key.password={KEYSTORE_PASSWORD}\n"
    )
    try:
        for file, listener in ((by_password, "SASLTLS"), (by_certificate, "MTLS")):
            asks = ("--bootstrap-server", newest.listeners.server(listener), "--command-config", str(file))
            assert (
                "orders"
                in kafka_tool(newest.broker.version, "org.apache.kafka.tools.TopicCommand", *asks, "--list").split()
            )
            ours = run_program({"broker.log_dirs": str(newest.broker.log_dirs[0])}, "broker", "--json", *asks)
            assert json_lines(ours)[0]["partitions"][0]["leads"], ours.stderr
            assert "quoted" not in ours.stdout + ours.stderr
    finally:
        newest.set_scram("SCRAM-SHA-256", SECRET)


def test_keystores_that_cannot_be_read_are_refused_with_what_to_do(newest: Secured, tmp_path: Path) -> None:
    old = truststore_of(newest.authority.ca_file, tmp_path / "old.jks", "JKS", "of-the-truststore")
    keys, broken = newest.client.keystore, tmp_path / "broken.p12"
    broken.write_bytes(keys.read_bytes()[:200])
    both = {"ssl_certificate_file": keys, "ssl_key_file": keys}
    cases = [
        (
            newest.settings("TLS", ssl_ca_file=old, ssl_ca_password="of-the-truststore"),
            "JKS store, which is not supported",
        ),
        (
            newest.settings("TLS", ssl_ca_file=keys, ssl_ca_password=KEYSTORE_PASSWORD),
            "contains no trusted certificate",
        ),
        (newest.settings("MTLS", **both, ssl_key_password="wrong"), "its password is wrong or missing"),
        (newest.settings("MTLS", ssl_certificate_file=broken, ssl_key_file=broken), "is not a PKCS12 store"),
    ]
    for settings, expected in cases:
        assert expected in trouble_with(settings)


def truststore_of(authority: Path, file: Path, kind: str, password: str) -> Path:
    store = ("-keystore", str(file), "-storetype", kind, "-storepass", password)
    subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(authority), *store], check=True)
    return file


@pytest.mark.apart
def test_an_older_broker_with_zookeeper_is_asked_by_tls_and_scram(tmp_path: Path) -> None:
    for secured in started("2.7.2", tmp_path):
        assert knows_us(secured.settings("MTLS"))
        assert knows_us(secured.by_password("SASLTLS", "SCRAM-SHA-256", SECRET))
        assert "user sidecar is refused with SCRAM-SHA-512" in trouble_with(
            secured.by_password("SASLTLS", "SCRAM-SHA-512", "wrong")
        )


def test_each_way_to_fail_has_one_sentence_of_its_own(newest: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger")
    unknown = stranger.issue(USER)
    absent, empty = tmp_path / "absent", newest.secret("empty", "")
    tls, by_name = newest.listeners.server("TLS"), newest.listeners.server("TLS").replace("127.0.0.1", "localhost")
    cases: list[tuple[BrokerConnectionSettings, str]] = [
        (newest.settings("TLS", ssl_ca_file=stranger.ca_file), "correct ssl_ca_file"),
        (newest.settings("TLS", ssl_ca_file=None), "not signed by the system's certificate authorities"),
        (newest.settings("TLS", bootstrap_servers=(by_name,)), "certificate is not for localhost"),
        (newest.settings("TLS", ssl_ca_file=absent), f"ssl_ca_file: {absent} cannot be read"),
        (newest.settings("TLS", ssl_ca_file=empty), f"{empty} contains no certificate"),
        (newest.settings("MTLS", ssl_certificate_file=None, ssl_key_file=None), "refuses the sidecar's certificate"),
        (
            newest.settings("MTLS", ssl_certificate_file=unknown.chain, ssl_key_file=unknown.key),
            "the broker's truststore",
        ),
        (newest.settings("MTLS", ssl_key_file=unknown.key), "must belong together"),
        (newest.settings("MTLS", ssl_key_file=encrypted_key(newest.client.key, "pass")), "needs ssl_key_password_file"),
        (newest.settings("TLS", bootstrap_servers=(newest.broker.bootstrap,)), "does not speak TLS"),
        (BrokerConnectionSettings(bootstrap_servers=(tls,)), "no Kafka listener"),
        (
            BrokerConnectionSettings(bootstrap_servers=(newest.listeners.server("SASL"),)),
            "the listener requires SASL",
        ),
        (
            newest.by_password("SASL", "PLAIN", "wrong").model_copy(
                update={"bootstrap_servers": (newest.broker.bootstrap,)}
            ),
            "does not offer sasl_mechanism PLAIN",
        ),
        (newest.settings("SASL", sasl_mechanism="GSSAPI"), "does not offer sasl_mechanism GSSAPI, but "),
        (newest.by_password("SASL", "PLAIN", "wrong"), "user sidecar is refused with PLAIN"),
        (newest.by_password("SASLTLS", "SCRAM-SHA-256", "wrong"), "user sidecar is refused with SCRAM-SHA-256"),
        (newest.by_token("SASL", -30), "Z, is refused: it must not have expired"),
        (newest.settings("SASL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_file=empty), f"{empty} is empty"),
        (
            newest.settings("SASL", sasl_mechanism="PLAIN", sasl_username=USER, sasl_password_file=absent),
            f"sasl_password_file: {absent} cannot be read",
        ),
    ]
    for settings, expected in cases:
        begun_s = time.monotonic()  # noqa: TID251
        reported = trouble_with(settings)
        assert expected in reported
        assert "wrong" not in reported
        assert time.monotonic() - begun_s < 0.8 * settings.request_timeout_s, f"slow to tell: {reported}"  # noqa: TID251


def test_a_secret_that_is_replaced_is_used_for_the_next_request(newest: Secured) -> None:
    settings = newest.by_password("SASLTLS", "SCRAM-SHA-512", SECRET)
    connection = BrokerConnection(settings)
    assert ORDERS in describe_topics(connection, ["orders"]).leaders
    newest.set_scram("SCRAM-SHA-512", "second-of-the-secrets")
    try:
        # The session lives on; a connection that is made from now on needs the new password.
        assert ORDERS in describe_topics(connection, ["orders"]).leaders
        newest.secret("SCRAM-SHA-512-password", "mistyped")
        with pytest.raises(BrokerUnavailable, match="SCRAM-SHA-512-password"):
            describe_topics(connection, ["orders"])
        newest.secret("SCRAM-SHA-512-password", "second-of-the-secrets")
        assert ORDERS in describe_topics(connection, ["orders"]).leaders
    finally:
        connection.close()
        newest.set_scram("SCRAM-SHA-512", SECRET)


def of_program(settings: BrokerConnectionSettings, broker: KafkaBroker, further: Mapping[str, str]) -> dict[str, str]:
    """The same as the program takes it from its environment."""
    set_here = settings.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    texts = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in set_here.items()}
    connection = {f"broker.connection.{name}": text for name, text in texts.items()}
    return {"broker.log_dirs": str(broker.log_dirs[0]), "broker.assume_leader": "false", **connection, **further}


def test_run_says_what_is_wrong_plans_nothing_and_goes_on_with_the_right_secret(
    newest: Secured, tmp_path: Path
) -> None:
    produce(newest.broker, "orders", 60)
    password = "a-mistyped-password"
    settings = of_program(
        newest.by_password("SASLTLS", "SCRAM-SHA-256", password),
        newest.broker,
        {
            "store.url": (tmp_path / "archive").as_uri(),
            "topics.include": "orders",
            "run.scan_interval_s": "0.5",
            "log.level": "debug",
        },
    )
    shown: list[str] = []
    with Daemon(tmp_path, settings) as daemon:
        eventually(lambda: "user sidecar is refused" in daemon.get("/readyz")[1])
        assert not daemon.is_ready()
        assert daemon.metric("broker_unreachable") == 1
        assert [row for row in daemon.partitions().values() if row["archived_end_offset"]] == []
        shown += [daemon.get(path)[1] for path in ("/readyz", "/status", "/metrics")]
        refused = run_program(settings, "broker", "--json")
        assert (refused.returncode, "user sidecar is refused with SCRAM-SHA-256" in refused.stderr) == (1, True)
        newest.secret("SCRAM-SHA-256-password", SECRET)
        eventually(daemon.is_settled)
        eventually(lambda: (daemon.archived_end("orders-0") or 0) > 0)
        reported = run_program(settings, "broker", "--json")
        assert json_lines(reported)[0]["partitions"][0]["leads"]
        assert daemon.process.stop() == 0
        assert {"broker_unreachable", "broker_reachable"} <= {event["event"] for event in daemon.events()}
        shown += [daemon.process.output(), refused.stderr, refused.stdout, reported.stdout, reported.stderr]
    for arguments in (["config", "show", "--json"], ["config", "show"], ["config", "show", "--topic", "orders"]):
        done = run_program(settings, *arguments)
        assert done.returncode == 0
        shown += [done.stdout, done.stderr]
    assert json.loads(shown[-6])["settings"]["broker.connection.sasl_password_file"]["value"]
    for secret in (password, SECRET):
        assert [text for text in shown if secret in text] == []
