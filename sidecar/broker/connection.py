"""The one place that speaks Kafka's protocol: a client that is opened when needed, and again after each failure.

Imports kafka-python only when a broker is asked for the first time.
"""

import threading
from copy import copy
from dataclasses import dataclass
from typing import Any

from sidecar import __version__
from sidecar.broker.client import Client, failures
from sidecar.broker.credentials import secret_of, tls_context, token_provider
from sidecar.broker.refusals import require_contact, unavailable
from sidecar.clock import Clock, SystemClock
from sidecar.config.broker_connection import BrokerConnectionSettings, SaslMechanism
from sidecar.errors import BrokerUnavailable
from sidecar.logformat.files import FileStamp, stamp_of

CLIENT_ID = f"tiered-sidecar-{__version__}"
METADATA_MAX_AGE_MS = 60_000

ANSWER_BYTES_MAX = 100_000_000
"""kafka-python's own limit of 1,000,000 is passed by the topics of a large broker."""
IN_FLIGHT_MAX = 1024
"""More than threads ever ask at once: beyond it kafka-python refuses a request. A broker answers one after another anyway."""


@dataclass(eq=False, slots=True)
class _Opened:
    """A client, and how many requests are on their way over it."""

    client: Client
    secrets: list[FileStamp | None]
    requests: int


class BrokerConnection:
    """Sends requests to nodes of the cluster. Thread-safe. Every failure is a BrokerUnavailable.

    All requests read, so that none does harm when it is sent twice. Where a connection ends, every request on it fails, even if
    only one is to blame. Each whose time is not over is sent once more, over a client of its own that no other can end.
    A client that failed is left to the requests still on their way and closed behind the last.

    Passwords, tokens and certificates are read from their files for each client; when a file changes, the next request opens a
    new one.
    """

    def __init__(self, settings: BrokerConnectionSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        """Guards the fields below; only locked while they are read or set."""
        self._shared: _Opened | None = None
        self._open: set[_Opened] = set()
        self._closings = 0
        self._opening = threading.Lock()
        """Of who opens a client, which may take long."""
        self._openings = 0
        self._refused: BrokerUnavailable | None = None

    def send(self, request: Any, node_id: int | str | None = None, *, spare: bool = False) -> Any:
        """The answer to a request of `kafka.protocol`.

        Args:
            node_id: who is to answer, or FIRST_SERVER; default any node.
            spare: another node can tell the same: it is asked once only, and its failure says nothing of our connections.

        Raises BrokerUnavailable: no node responds, or the response is not of this protocol; IncompatibleRequest: the node does
        not know this request.
        """
        begun_s = self._clock.monotonic_s()
        found = self._taken()
        try:
            return self._answer(found, request, node_id)
        except IncompatibleRequest:
            raise
        except BrokerUnavailable:
            if not spare:
                self._set_aside(found)
            is_late = self._clock.monotonic_s() - begun_s >= self._settings.request_timeout_s
            # Only `close` takes a client away that has requests on their way.
            if spare or is_late or found not in self._open:
                raise
        finally:
            self._give_back(found)
        # Over a new client, which serves the others too once it has proved good.
        found = self._taken(alone=True)
        try:
            answer = self._answer(found, request, node_id)
            with self._lock:
                if self._shared is None and found in self._open:
                    self._shared = found
        finally:
            self._give_back(found)
        return answer

    def _answer(self, found: _Opened, request: Any, node_id: int | str | None) -> Any:
        from kafka.errors import IncompatibleBrokerVersion

        try:
            return found.client.send(request, node_id)
        except IncompatibleBrokerVersion as error:
            raise IncompatibleRequest(str(error)) from error
        except failures() as error:
            raise unavailable(error, self._settings) from error

    def close(self) -> None:
        """End all connections and the requests on them; the next request opens them again."""
        with self._lock:
            self._closings += 1
            ended, self._open, self._shared = self._open, set(), None
        for opened in ended:
            opened.client.close()

    def _taken(self, *, alone: bool = False) -> _Opened:
        """A client for one request, which gives it back. Raises BrokerUnavailable.

        Threads open one after another; a thread that waited while another one failed gets the same error.
        """
        asked_at = self._openings
        if not alone and (found := self._usable()) is not None:
            return found
        with self._opening:
            if not alone and (found := self._usable()) is not None:
                return found
            if self._refused and self._openings > asked_at:
                raise copy(self._refused)
            self._openings += 1
            closings = self._closings
            try:
                opened = self._new_client()
            except BrokerUnavailable as error:
                self._refused = copy(error)
                raise
            self._refused = None
            with self._lock:
                if closings == self._closings:
                    self._open.add(opened)
                    if not alone:
                        self._shared = opened
                    return opened
            opened.client.close()
            raise BrokerUnavailable(f"{self.servers}: the connection was closed while it was opened")

    def _usable(self) -> _Opened | None:
        """The shared client, one request more on it, unless the secrets have changed."""
        secrets = list(map(stamp_of, self._settings.secret_files))
        with self._lock:
            found = self._shared
            if found is not None and found.secrets == secrets:
                found.requests += 1
                return found
        if found is not None:
            self._set_aside(found)
        return None

    def _new_client(self) -> _Opened:
        settings = self._settings
        secrets = list(map(stamp_of, settings.secret_files))
        try:
            context = tls_context(settings) if settings.uses_tls else None
            arguments = {**_arguments(settings), "ssl_context": context}
            require_contact(settings, context)
            return _Opened(Client(arguments, self._clock), secrets, requests=1)
        except failures() as error:
            raise unavailable(error, settings) from error

    def _set_aside(self, failed: _Opened) -> None:
        """Give a client to no further request."""
        with self._lock:
            if self._shared is failed:
                self._shared = None
        self._close_unused(failed)

    def _give_back(self, taken: _Opened) -> None:
        with self._lock:
            taken.requests -= 1
        self._close_unused(taken)

    def _close_unused(self, opened: _Opened) -> None:
        with self._lock:
            if opened.requests or opened is self._shared or opened not in self._open:
                return
            self._open.remove(opened)
        opened.client.close()

    @property
    def servers(self) -> str:
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
        "socket_connection_setup_timeout_ms": timeout_ms,
        "socket_connection_setup_timeout_max_ms": timeout_ms,
        "metadata_max_age_ms": METADATA_MAX_AGE_MS,
        "receive_message_max_bytes": ANSWER_BYTES_MAX,
        "max_in_flight_requests_per_connection": IN_FLIGHT_MAX,
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
        provider = token_provider(settings.sasl_oauth_token_file)
        # Errors of the file are raised here; within the client the connection would fail without a message.
        provider.token()
        arguments["sasl_oauth_token_provider"] = provider
    return arguments


class IncompatibleRequest(BrokerUnavailable):
    """This broker is too old for the request; it knows others."""

    retryable = False
