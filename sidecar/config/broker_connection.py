"""Settings of the connection to the broker. Names follow those of Kafka's clients."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from sidecar.store_settings import Section

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s/@]+):[0-9]{1,5}")
_PORT_MAX = 65_535


class SecurityProtocol(StrEnum):
    """The protocol of the broker's listener."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class SaslMechanism(StrEnum):
    """How the sidecar authenticates."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    GSSAPI = "GSSAPI"
    OAUTHBEARER = "OAUTHBEARER"


class BrokerConnectionSettings(Section):
    """How to query the broker for leaders and last stable offsets. The sidecar sends only read requests."""

    bootstrap_servers: tuple[str, ...] = ()
    """`host:port` of brokers: the local one first, and at least one other. Empty: the sidecar uses only files. Needs
    the permission to describe the cluster, the topics and their configs."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """`security.protocol` of the listener."""
    ssl_ca_file: Path | None = None
    """Certificate authorities for the brokers' certificates, instead of the system's: PEM, or a PKCS12 truststore. Read
    again for every connection."""
    ssl_ca_password: SecretStr | None = None
    """Password of a PKCS12 truststore."""
    ssl_ca_password_file: Path | None = None
    """File with that password, read again for every connection."""
    ssl_certificate_file: Path | None = None
    """The sidecar's certificate chain, for brokers that require one: PEM, or a PKCS12 keystore. A changed file is used
    for the next connection, like every file here."""
    ssl_key_file: Path | None = None
    """PEM private key of that certificate. May be the same file; for a PKCS12 keystore it must be."""
    ssl_key_password: SecretStr | None = None
    """Password of an encrypted key, or of the PKCS12 keystore."""
    ssl_key_password_file: Path | None = None
    """File with that password, read again for every connection."""
    ssl_check_hostname: bool = True
    """Check that the broker's certificate is for the host name of the connection."""
    sasl_mechanism: SaslMechanism | None = None
    """`sasl.mechanism`."""
    sasl_username: str | None = None
    """User name for PLAIN and SCRAM."""
    sasl_password: SecretStr | None = None
    """Password for PLAIN and SCRAM. Better: `sasl_password_file`."""
    sasl_password_file: Path | None = None
    """File with that password, such as a mounted secret. Read again for every connection, so a new password needs no
    restart."""
    sasl_oauth_token_file: Path | None = None
    """For OAUTHBEARER: file with the token, such as a projected service account token. Read again for every
    connection."""
    sasl_kerberos_service_name: str = "kafka"
    """For GSSAPI: `sasl.kerberos.service.name`."""
    request_timeout_s: Annotated[float, Field(gt=0, le=300)] = 10.0
    """How long to wait for a connection or a response. After that the broker counts as unreachable."""
    config_max_age_s: Annotated[float, Field(ge=0, le=86_400)] = 300.0
    """How long the topics' configs are cached."""

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers_have_ports(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            if not _SERVER.fullmatch(server):
                raise ValueError(f"{server!r} is not host:port")
            if not 1 <= int(server.rpartition(":")[2]) <= _PORT_MAX:
                raise ValueError(f"{server!r}: a port is a number from 1 to {_PORT_MAX}")
        return servers

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """Files with the credentials of the sidecar and the authorities of the brokers. They may change while the
        process runs."""
        own = (self.ssl_certificate_file, self.ssl_key_file, self.ssl_key_password_file)
        named = (self.ssl_ca_file, self.ssl_ca_password_file, *own, self.sasl_password_file, self.sasl_oauth_token_file)
        return tuple(file for file in named if file is not None)

    @property
    def is_configured(self) -> bool:
        return bool(self.bootstrap_servers)

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        uses_sasl = self.security_protocol in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}
        if uses_sasl != (self.sasl_mechanism is not None):
            raise ValueError("sasl_mechanism needs security_protocol SASL_PLAINTEXT or SASL_SSL")
        for name in ("sasl_password", "ssl_ca_password", "ssl_key_password"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"{name} and {name}_file are both set: remove one of them")
        is_given = self.sasl_password is not None or self.sasl_password_file is not None
        has_password = bool(self.sasl_username) and is_given
        match self.sasl_mechanism:
            case SaslMechanism.PLAIN | SaslMechanism.SCRAM_SHA_256 | SaslMechanism.SCRAM_SHA_512 if not has_password:
                raise ValueError(f"sasl_mechanism {self.sasl_mechanism} needs sasl_username and sasl_password_file")
            case SaslMechanism.OAUTHBEARER if self.sasl_oauth_token_file is None:
                raise ValueError("sasl_mechanism OAUTHBEARER needs sasl_oauth_token_file")
        if not uses_sasl and (self.sasl_username or is_given or self.sasl_oauth_token_file):
            raise ValueError(
                f"sasl_* settings have no effect with security_protocol {self.security_protocol}: remove them, or set "
                "SASL_PLAINTEXT or SASL_SSL"
            )
        if not self.uses_tls and (self.ssl_ca_file or self.ssl_certificate_file or self.ssl_key_file):
            raise ValueError(
                f"ssl_* files have no effect with security_protocol {self.security_protocol}: remove them, or set SSL or SASL_SSL"
            )
        if (self.ssl_certificate_file is None) != (self.ssl_key_file is None):
            raise ValueError("ssl_certificate_file and ssl_key_file must be given together")
        return self
