"""Listeners that a real broker has besides its PLAINTEXT one: TLS, mutual TLS, SASL; and who is known there."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from tests.servers.certificates import KEYSTORE_PASSWORD, Authority, Certificate
from tests.servers.kafka import KafkaBroker
from tests.servers.process import free_port

PLAIN_USERS = {"sidecar": "plain-secret"}
_OAUTH_HANDLER = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_LOGIN = "org.apache.kafka.common.security"


class SecureListeners:
    """Ports by the name of a listener, and the server properties that a broker needs for them.

    TLS, MTLS (asks for a client's certificate), SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER without TLS) and
    SASLTLS (the same with it).
    """

    def __init__(self, authority: Authority, certificate: Certificate) -> None:
        self.ports = {name: free_port() for name in ("TLS", "MTLS", "SASL", "SASLTLS")}
        self._authority = authority
        self._certificate = certificate

    def server(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def attach_to(self, broker: KafkaBroker, further: Mapping[str, str] | None = None) -> None:
        """Give a broker that has not started yet these listeners, and further properties."""
        own = f"PLAINTEXT://127.0.0.1:{broker.port}"
        added = ",".join(f"{name}://{self.server(name)}" for name in self.ports)
        advertised = f"{own},{added}"
        protocols = "PLAINTEXT:PLAINTEXT,TLS:SSL,MTLS:SSL,SASL:SASL_PLAINTEXT,SASLTLS:SASL_SSL"
        listeners = advertised
        if broker.mode == "kraft":
            listeners += f",CONTROLLER://127.0.0.1:{broker.controller_port}"
            protocols += ",CONTROLLER:PLAINTEXT"
        broker.properties |= {
            "listeners": listeners,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": KEYSTORE_PASSWORD,
            "ssl.key.password": KEYSTORE_PASSWORD,
            "ssl.keystore.location": str(self._certificate.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.ca_file),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            **_sasl_properties("sasl"),
            **_sasl_properties("sasltls"),
            **(further or {}),
        }


def _sasl_properties(listener: str) -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in PLAIN_USERS.items())
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {users};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": _OAUTH_HANDLER,
    }


def unsecured_token(subject: str, issued_s: int, expires_s: int) -> str:
    """A JSON web token without a signature, as the validator above takes it."""
    claims = {"sub": subject, "iat": issued_s, "exp": expires_s}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(value: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
