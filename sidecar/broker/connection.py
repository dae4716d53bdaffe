"""The one place that speaks Kafka's protocol: an admin client that is opened when needed, and anew after each failure.

Imports kafka-python only when a broker is asked for the first time.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sidecar import __version__
from sidecar.config.broker_connection import BrokerConnectionSettings, SaslMechanism
from sidecar.errors import BrokerUnavailable, SettingsError

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

Answer = TypeVar("Answer")

CLIENT_ID = f"tiered-sidecar-{__version__}"
METADATA_MAX_AGE_MS = 60_000


class BrokerConnection:
    """Sends requests to nodes of the cluster. Thread-safe. Every failure is a BrokerUnavailable."""

    def __init__(self, settings: BrokerConnectionSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: KafkaAdminClient | None = None

    def send(self, request: Any, node_id: int | None = None) -> Any:
        """The answer to a request of `kafka.protocol`.

        Args:
            node_id: who is to answer; default any node.

        Raises BrokerUnavailable: nobody answers, or the answer is none of this protocol; IncompatibleRequest: the node does
        not know this request.
        """
        return self._with_client(lambda client: client._manager.run(client._manager.send, request, node_id))  # noqa: SLF001 - the public methods choose the node themselves, and we need the answer of a certain one

    def describe_cluster(self) -> dict[str, Any]:
        """See `KafkaAdminClient.describe_cluster`."""
        answer: dict[str, Any] = self._with_client(lambda client: client.describe_cluster())
        return answer

    def close(self) -> None:
        """End all connections; the next request opens them again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _with_client(self, call: Callable[[KafkaAdminClient], Answer]) -> Answer:
        from kafka.errors import IncompatibleBrokerVersion, KafkaError

        try:
            return call(self._opened())
        except IncompatibleBrokerVersion as error:
            raise IncompatibleRequest(str(error)) from error
        except (KafkaError, OSError, RuntimeError, ValueError, struct.error) as error:
            # The client would wait longer and longer before it tries a node again: a new one tries at once.
            self.close()
            raise BrokerUnavailable(f"{self.servers}: {_words(error)}") from error

    def _opened(self) -> KafkaAdminClient:
        with self._lock:
            if self._client is None:
                self._require_somebody()
                self._client = _open_client(self._arguments())
            return self._client

    def _require_somebody(self) -> None:
        """Raise ConnectionError unless one of the servers takes connections.

        The client itself would try for as long as it may, log each try, and leave a socket open for each.
        """
        refused = []
        for server in self._settings.bootstrap_servers:
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), self._settings.request_timeout_s).close()
            except OSError as error:
                refused.append(f"{server}: {error.strerror or error}")
            else:
                return
        raise ConnectionError("; ".join(refused))

    @property
    def servers(self) -> str:
        """Who is asked first, for messages."""
        return ",".join(self._settings.bootstrap_servers)

    def _arguments(self) -> dict[str, Any]:
        settings = self._settings
        timeout_ms = round(settings.request_timeout_s * 1000)
        arguments: dict[str, Any] = {
            "bootstrap_servers": list(settings.bootstrap_servers),
            "client_id": CLIENT_ID,
            "security_protocol": settings.security_protocol.value,
            "request_timeout_ms": timeout_ms,
            "bootstrap_timeout_ms": timeout_ms,
            "metadata_max_age_ms": METADATA_MAX_AGE_MS,
        }
        if settings.uses_tls:
            files = (settings.ssl_ca_file, settings.ssl_certificate_file, settings.ssl_key_file)
            _require_readable(*files)
            for name, file in zip(("ssl_cafile", "ssl_certfile", "ssl_keyfile"), files, strict=True):
                arguments[name] = None if file is None else str(file)
            arguments["ssl_check_hostname"] = settings.ssl_check_hostname
            if settings.ssl_key_password is not None:
                arguments["ssl_password"] = settings.ssl_key_password.get_secret_value()
        if settings.sasl_mechanism is not None:
            arguments["sasl_mechanism"] = settings.sasl_mechanism.value
            arguments["sasl_kerberos_service_name"] = settings.sasl_kerberos_service_name
            if settings.sasl_password is not None:
                arguments["sasl_plain_username"] = settings.sasl_username
                arguments["sasl_plain_password"] = settings.sasl_password.get_secret_value()
        if settings.sasl_mechanism is SaslMechanism.OAUTHBEARER and settings.sasl_oauth_token_file is not None:
            from sidecar.broker.oauth_token import token_provider

            arguments["sasl_oauth_token_provider"] = token_provider(settings.sasl_oauth_token_file)
        return arguments


def _open_client(arguments: dict[str, Any]) -> KafkaAdminClient:
    from kafka.admin import KafkaAdminClient

    # Its lines repeat, several times a second, what every BrokerUnavailable says once.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    client = KafkaAdminClient.__new__(KafkaAdminClient)
    try:
        client.__init__(**arguments)
    except BaseException:
        # A constructor that fails leaves its thread behind: one more for each try while the broker is away.
        net = getattr(client, "_net", None)
        if net is not None:
            client._client.close()  # noqa: SLF001
            net.stop()
        raise
    return client


class IncompatibleRequest(BrokerUnavailable):
    """This broker is too old for the request; it knows others."""

    retryable = False


def _require_readable(*files: Any) -> None:
    for file in files:
        if file is None:
            continue
        try:
            file.open("rb").close()
        except OSError as error:
            raise SettingsError(f"broker.connection: {file} cannot be read: {error.strerror}") from error


def _words(error: BaseException) -> str:
    """What went wrong, for a person. Texts of authentication errors name user and mechanism, never the password."""
    return f"{type(error).__name__}: {error.args[0]}" if error.args else type(error).__name__
