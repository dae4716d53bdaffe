"""The one place that speaks Kafka's protocol: a client that is opened when needed, and anew after each failure.

Imports kafka-python only when a broker is asked for the first time.
"""

from __future__ import annotations

import threading
from typing import Any

from sidecar import __version__
from sidecar.broker.client import Client, failures
from sidecar.broker.first_contact import require_contact
from sidecar.broker.refusals import words
from sidecar.broker.secret_files import Fingerprint, fingerprint, secret_of
from sidecar.broker.tls import tls_context
from sidecar.config.broker_connection import BrokerConnectionSettings, SaslMechanism
from sidecar.errors import BrokerUnavailable

CLIENT_ID = f"tiered-sidecar-{__version__}"
METADATA_MAX_AGE_MS = 60_000


class BrokerConnection:
    """Sends requests to nodes of the cluster. Thread-safe. Every failure is a BrokerUnavailable.

    Passwords, tokens and certificates are read from their files for each client; when a file changes, the next request opens a
    new one.
    """

    def __init__(self, settings: BrokerConnectionSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._secrets: Fingerprint = ()

    def send(self, request: Any, node_id: int | None = None) -> Any:
        """The answer to a request of `kafka.protocol`.

        Args:
            node_id: who is to answer; default any node.

        Raises BrokerUnavailable: nobody answers, or the answer is none of this protocol; IncompatibleRequest: the node does
        not know this request.
        """
        from kafka.errors import IncompatibleBrokerVersion

        client = None
        try:
            client = self._opened()
            return client.send(request, node_id)
        except IncompatibleBrokerVersion as error:
            raise IncompatibleRequest(str(error)) from error
        except BrokerUnavailable:
            self._drop(client)
            raise
        except failures() as error:
            # The client would wait longer and longer before it tries a node again: a new one tries at once.
            self._drop(client)
            raise BrokerUnavailable(words(error, self._settings)) from error

    def close(self) -> None:
        """End all connections; the next request opens them again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> Client:
        """The client, with the secrets as they are now. Raises BrokerUnavailable, and what kafka-python raises."""
        settings = self._settings
        with self._lock:
            now = fingerprint(settings.secret_files)
            if self._client is not None and now == self._secrets:
                return self._client
            stale, self._client = self._client, None
            if stale is not None:
                stale.close()
            context = tls_context(settings) if settings.uses_tls else None
            arguments = {**_arguments(settings), "ssl_context": context}
            require_contact(settings, context)
            self._client, self._secrets = Client(arguments), now
            return self._client

    def _drop(self, failed: Client | None) -> None:
        """Close a client that failed, unless another thread, whose request failed with it, has done so already."""
        with self._lock:
            if failed is None or self._client is not failed:
                return
            self._client = None
        failed.close()

    @property
    def servers(self) -> str:
        """Who is asked first, for messages."""
        return ",".join(self._settings.bootstrap_servers)


def _arguments(settings: BrokerConnectionSettings) -> dict[str, Any]:
    """For the client, but for TLS. Raises BrokerUnavailable where a secret cannot be read."""
    timeout_ms = round(settings.request_timeout_s * 1000)
    arguments: dict[str, Any] = {
        "bootstrap_servers": list(settings.bootstrap_servers),
        "client_id": CLIENT_ID,
        "security_protocol": settings.security_protocol.value,
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
        "metadata_max_age_ms": METADATA_MAX_AGE_MS,
    }
    if settings.sasl_mechanism is None:
        return arguments
    arguments["sasl_mechanism"] = settings.sasl_mechanism.value
    arguments["sasl_kerberos_service_name"] = settings.sasl_kerberos_service_name
    password = secret_of("sasl_password", settings.sasl_password, settings.sasl_password_file)
    if password is not None:
        arguments["sasl_plain_username"] = settings.sasl_username
        arguments["sasl_plain_password"] = password
    if settings.sasl_mechanism is SaslMechanism.OAUTHBEARER and settings.sasl_oauth_token_file is not None:
        from sidecar.broker.oauth_token import token_provider

        provider = token_provider(settings.sasl_oauth_token_file)
        # What is wrong with the file is told here; within the client it would be a connection that fails without a word.
        provider.token()
        arguments["sasl_oauth_token_provider"] = provider
    return arguments


class IncompatibleRequest(BrokerUnavailable):
    """This broker is too old for the request; it knows others."""

    retryable = False
