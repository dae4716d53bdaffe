"""`--command-config`: the same file that Kafka's own tools take."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.config import load_settings
from sidecar.config.broker_connection import BrokerConnectionSettings, SaslMechanism, SecurityProtocol
from sidecar.config.client_properties import FILE_BYTES_MAX, read_client_properties
from sidecar.errors import SettingsError
from tests.loading_settings import URL, a_file, refusal

SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SCRAM = f"""
# as in Kafka's documentation
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={SCRAM_LOGIN} \\
  username="alice" \\
  password="it's \\\\"quoted\\\\"; = #1";
ssl.truststore.location=/etc/kafka/ca.pem
ssl.truststore.type=PEM
request.timeout.ms=15000
acks=all
client.id=admin
"""


def properties(directory: Path, text: str) -> Path:
    file = directory / "client.properties"
    file.write_text(text)
    return file


def connection(directory: Path, text: str) -> BrokerConnectionSettings:
    return load_settings(flags=URL, client_properties=properties(directory, text)).settings.broker.connection


def problems(directory: Path, text: str) -> str:
    with pytest.raises(SettingsError) as raised:
        read_client_properties(properties(directory, text))
    return str(raised.value)


def test_a_file_of_kafka_s_tools_is_the_connection(tmp_path: Path) -> None:
    loaded = load_settings(flags=URL, client_properties=properties(tmp_path, SCRAM))
    found = loaded.settings.broker.connection
    assert found.security_protocol is SecurityProtocol.SASL_SSL
    assert found.sasl_mechanism is SaslMechanism.SCRAM_SHA_512
    assert found.sasl_username == "alice"
    assert found.sasl_password is not None
    assert found.sasl_password.get_secret_value() == 'it\'s "quoted"; = #1'
    assert (found.ssl_ca_file, found.ssl_check_hostname) == (Path("/etc/kafka/ca.pem"), True)
    assert found.request_timeout_s == 15
    assert loaded.unused_properties == ("acks", "client.id")
    assert loaded.sources["broker.connection.sasl_username"] == str(tmp_path / "client.properties")
    assert "quoted" not in repr(loaded) + str(loaded.shown())
    assert list(loaded.secrets()) == ['it\'s "quoted"; = #1']


def test_it_replaces_the_identity_of_the_other_sources_as_a_whole_and_keeps_the_rest(tmp_path: Path) -> None:
    config = a_file(
        tmp_path,
        "broker: {connection: {bootstrap_servers: ['a:9092'], security_protocol: SASL_PLAINTEXT, sasl_mechanism: PLAIN,"
        " sasl_username: old, sasl_password_file: /old, config_max_age_s: 7}}",
    )
    loaded = load_settings(flags=URL, config_file=config, client_properties=properties(tmp_path, SCRAM))
    found = loaded.settings.broker.connection
    assert (found.bootstrap_servers, found.config_max_age_s, found.sasl_password_file) == (("a:9092",), 7, None)
    assert found.sasl_username == "alice"
    plain = load_settings(flags=URL, config_file=config, client_properties=properties(tmp_path, "")).settings
    assert plain.broker.connection.security_protocol is SecurityProtocol.PLAINTEXT


def test_a_flag_wins_over_it(tmp_path: Path) -> None:
    flags = {**URL, "broker.connection.bootstrap_servers": ["b:1"]}
    found = load_settings(flags=flags, client_properties=properties(tmp_path, "bootstrap.servers=a:1, c:2"))
    assert found.settings.broker.connection.bootstrap_servers == ("b:1",)
    assert connection(tmp_path, "bootstrap.servers=a:1, c:2").bootstrap_servers == ("a:1", "c:2")


def test_mutual_tls_with_pem_and_with_pkcs12(tmp_path: Path) -> None:
    pem = connection(
        tmp_path,
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=/me.pem\nssl.key.password=of-the-key\n"
        "ssl.endpoint.identification.algorithm=\n",
    )
    assert (pem.ssl_certificate_file, pem.ssl_key_file, pem.ssl_check_hostname) == (
        Path("/me.pem"),
        Path("/me.pem"),
        False,
    )
    assert pem.ssl_key_password is not None
    assert pem.ssl_key_password.get_secret_value() == "of-the-key"
    store = connection(
        tmp_path,
        "security.protocol=SSL\nssl.keystore.location=/me.p12\nssl.keystore.password=of-the-store\nssl.key.password=of-the-key\n"
        "ssl.truststore.location=/ca.p12\nssl.truststore.password=of-the-ca\nssl.enabled.protocols=TLSv1.3,TLSv1.2\n",
    )
    assert store.ssl_key_password is not None
    assert store.ssl_ca_password is not None
    assert store.ssl_key_password.get_secret_value() == "of-the-store"
    assert store.ssl_ca_password.get_secret_value() == "of-the-ca"


@pytest.mark.parametrize("text", ["broker.id=1\nlog.dirs=/data\n", "store:\n  url: s3://bucket\n", "\x00\x01\x02 \xff"])
def test_another_kind_of_file_is_refused_and_is_no_connection_without_tls(tmp_path: Path, text: str) -> None:
    assert "not a client.properties" in problems(tmp_path, text)


def test_keys_of_a_protocol_that_is_not_used_have_no_effect(tmp_path: Path) -> None:
    file = properties(
        tmp_path, "security.protocol=PLAINTEXT\nssl.truststore.location=/x\nsasl.mechanism=PLAIN\nssl.keystore.key=x\n"
    )
    assert read_client_properties(file)[1] == ("ssl.truststore.location", "ssl.keystore.key", "sasl.mechanism")


def test_a_token_in_a_file_and_a_ticket_are_identities(tmp_path: Path) -> None:
    oauth = connection(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;\n"
        "sasl.oauthbearer.token.endpoint.url=file:///var/run/a%20token\n",
    )
    assert oauth.sasl_oauth_token_file == Path("/var/run/a token")
    kerberos = connection(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name=broker\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;\n",
    )
    assert (kerberos.sasl_mechanism, kerberos.sasl_kerberos_service_name) == (SaslMechanism.GSSAPI, "broker")


SSL, SASL = "security.protocol=SSL\n", "security.protocol=SASL_PLAINTEXT\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SSL + "ssl.truststore.certificates=x", "ssl.truststore.certificates is not supported: write it to a PEM file"),
        (SSL + "ssl.keystore.type=BCFKS", "ssl.keystore.type=BCFKS: expected PEM or PKCS12"),
        ("security.protocol=\nssl.truststore.location=/ca.pem", "security.protocol has no value"),
        (SASL + "sasl.mechanism= ", "sasl.mechanism has no value"),
        (SSL + "ssl.cipher.suites=x", "ssl.cipher.suites is not supported"),
        (SSL + "ssl.enabled.protocols=TLSv1.3", "ssl.enabled.protocols=TLSv1.3: only TLSv1.2,TLSv1.3"),
        (SSL + "ssl.endpoint.identification.algorithm=x", "expected https, or nothing for no check"),
        (SSL + "ssl.engine.factory.class=x.Y", "ssl.engine.factory.class is not supported"),
        ("request.timeout.ms=soon", "request.timeout.ms: expected milliseconds, found 'soon'"),
        ("security.providers=x", "security.providers is not supported: Java classes cannot be loaded"),
        ("config.providers.file.class=x", "config.providers.file.class is not supported"),
        (SASL + "sasl.mechanism=PLAIN", "username and password are needed for sasl.mechanism=PLAIN"),
        (
            SASL + f"sasl.mechanism=PLAIN\nsasl.jaas.config={SCRAM_LOGIN} username=a password=b;",
            "does not fit sasl.mechanism=PLAIN",
        ),
        (
            SASL + f"sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM_LOGIN} username=a",
            "expected one login module",
        ),
        (
            SASL
            + f"sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM_LOGIN} username=a password=b tokenauth=true;",
            "it has an option that is not supported",
        ),
        (SASL + "sasl.mechanism=PLAIN\nsasl.jaas.config=x.Y required;", "login module x.Y is not supported"),
        (SASL + "sasl.mechanism=OAUTHBEARER", "expected file:/PATH of a token"),
        (
            SASL
            + "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=/k principal=p;",
            "keytabs are not read: get a ticket",
        ),
        ("a=\\u12", "malformed"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problems(tmp_path, text)


def test_all_problems_are_said_at_once_and_no_secret_is_shown(tmp_path: Path) -> None:
    text = (
        SASL
        + f'sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM_LOGIN} username=a password="s3cret" oops\nsasl.x=1\n'
    )
    found = problems(tmp_path, text)
    assert ("sasl.x is not supported" in found, "expected one login module" in found) == (True, True)
    assert "s3cret" not in found
    assert "s3cret" not in problems(
        tmp_path,
        SASL + f"sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM_LOGIN} username=a password=my s3cret=x;",
    )
    wrong = refusal(flags=URL, client_properties=properties(tmp_path, "security.protocol=TLS"))
    assert "security_protocol" in wrong
    assert "client.properties" in wrong


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(flags=URL, client_properties=tmp_path / "absent")
    big = properties(tmp_path, "#" * (FILE_BYTES_MAX + 1))
    assert "not a client.properties" in refusal(flags=URL, client_properties=big)
