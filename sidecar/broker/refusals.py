"""Why a broker does not answer us, for the person who has to change something.

Before the client is opened: does anybody answer there, in our protocol, and if not, why? The client itself tries for as long as it
may, and then says only that it could not.
"""

import operator
import socket
import ssl
import struct
from contextlib import closing
from functools import reduce
from io import BufferedRWPair

from sidecar.broker.client import EndedWhileGreeting
from sidecar.broker.credentials import handshake_failure, lifetime_words
from sidecar.config.broker_connection import BrokerConnectionSettings, SaslMechanism
from sidecar.errors import BrokerTrouble, BrokerUnavailable

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""An ApiVersions request of version 0 without a client id: it is answered before we have said who we are."""
_NONE, _UNSUPPORTED_MECHANISM = 0, 33
_ANSWER_BYTES_MAX = 1024 * 1024


def unavailable(error: BaseException, settings: BrokerConnectionSettings) -> BrokerUnavailable:
    """What kafka-python could not do, where, and what to do. Names users and files, never what is in them.

    Raises BrokerUnavailable where the token's file is gone meanwhile.
    """
    from kafka.errors import (
        IllegalSaslStateError,
        KafkaTimeoutError,
        NodeNotReadyError,
        RequestTimedOutError,
        SaslAuthenticationFailedError,
        UnsupportedSaslMechanismError,
    )

    def found(what: str, trouble: BrokerTrouble) -> BrokerUnavailable:
        return BrokerUnavailable(f"{','.join(settings.bootstrap_servers)}: {what}", trouble)

    said = str(error.args[0]) if error.args else ""
    if isinstance(error, SaslAuthenticationFailedError):
        return found(f"{_refused(settings)} (the broker says: {said})", BrokerTrouble.IDENTITY_REFUSED)
    if isinstance(error, EndedWhileGreeting) and settings.sasl_mechanism is not None:
        what = f"the broker closed the connection during authentication; most often {_refused(settings)}"
        return found(what, BrokerTrouble.IDENTITY_REFUSED)
    if isinstance(error, UnsupportedSaslMechanismError | IllegalSaslStateError):
        return found(
            f"the listener does not offer sasl_mechanism {settings.sasl_mechanism}{f' ({said})' if said else ''}: "
            f"correct sasl_mechanism, security_protocol or the port",
            BrokerTrouble.WRONG_LISTENER,
        )
    if isinstance(error, RequestTimedOutError | KafkaTimeoutError):
        return found(f"no answer within {settings.request_timeout_s:g} s", BrokerTrouble.NO_ANSWER)
    if isinstance(error, NodeNotReadyError) and said.startswith("Node paused"):
        what = f"throttled for {settings.request_timeout_s:g} s, most often by a request quota of the broker"
        return found(what, BrokerTrouble.NO_ANSWER)
    if isinstance(error, NodeNotReadyError):
        # Only a number names a broker: where none was asked for, kafka-python speaks of its own arguments.
        node = f"broker {said}" if said.isdecimal() else "any broker"
        return found(f"there is no connection to {node}", BrokerTrouble.NO_ANSWER)
    kind = type(error).__name__
    return found(f"{kind}: {said}" if said else kind, BrokerTrouble.OTHER)


def _refused(settings: BrokerConnectionSettings) -> str:
    if settings.sasl_mechanism is SaslMechanism.OAUTHBEARER and settings.sasl_oauth_token_file is not None:
        file = settings.sasl_oauth_token_file
        return (
            f"the token of sasl_oauth_token_file {file}{lifetime_words(file)}, is refused: it must not have "
            "expired, and its issuer must be one that the broker trusts"
        )
    where = (
        "sasl_password" if settings.sasl_password_file is None else f"sasl_password_file {settings.sasl_password_file}"
    )
    return f"user {settings.sasl_username} is refused with {settings.sasl_mechanism}: correct sasl_username or {where}"


def require_contact(settings: BrokerConnectionSettings, context: ssl.SSLContext | None) -> None:
    """Raise BrokerUnavailable, with a line for each of the bootstrap servers, unless one of them answers.

    `context`: for listeners with TLS, else None.
    """
    refused: dict[str, BrokerUnavailable] = {}
    for server in settings.bootstrap_servers:
        try:
            return _require_answer(server, settings, context)
        except BrokerUnavailable as error:
            refused[server] = error
    what = "; ".join(f"{server}: {error}" for server, error in refused.items())
    raise BrokerUnavailable(what, reduce(operator.or_, (error.trouble for error in refused.values())))


def _require_answer(server: str, settings: BrokerConnectionSettings, context: ssl.SSLContext | None) -> None:
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    timeout_s = settings.request_timeout_s
    try:
        with closing(socket.create_connection((host, int(port)), timeout_s)) as plain:
            if context is None:
                return _ask(plain, settings)
            with context.wrap_socket(plain, server_hostname=host) as secured:
                return _ask(secured, settings)
    except ssl.SSLError as error:
        raise handshake_failure(error, host, settings) from error
    except TimeoutError as error:
        raise BrokerUnavailable(f"no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise BrokerUnavailable(str(error.strerror or error)) from error


def _ask(connection: socket.socket, settings: BrokerConnectionSettings) -> None:
    """With TLS 1.3 a broker refuses our certificate only after the handshake: where the answer should be."""
    with connection.makefile("rwb") as stream:
        if _answer_to(stream, _API_VERSIONS) is None:
            raise BrokerUnavailable(
                f"no Kafka listener with security_protocol {settings.security_protocol} "
                f"(it closes the connection, or speaks another protocol): correct the port or security_protocol",
                BrokerTrouble.WRONG_LISTENER,
            )
        _require_mechanism(stream, settings)


def _require_mechanism(stream: BufferedRWPair, settings: BrokerConnectionSettings) -> None:
    """Whether the listener wants SASL, and offers what we mean to use. A listener without SASL returns an error."""
    from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

    mechanism = "" if settings.sasl_mechanism is None else settings.sasl_mechanism.value
    request = SaslHandshakeRequest(mechanism=mechanism, version=1)
    request.with_header(correlation_id=1, client_id=None)
    answer = _answer_to(stream, request.encode(framed=True, header=True)) or b""
    try:
        found = SaslHandshakeResponse.decode(answer, version=1)
    except (ValueError, struct.error):
        return  # A listener without SASL may also just end the connection: the client shows it.
    offered = ", ".join(filter(None, found.mechanisms or ())) or "none"
    if mechanism and found.error_code != _NONE:
        raise BrokerUnavailable(
            f"the listener does not offer sasl_mechanism {settings.sasl_mechanism}, but {offered}: "
            f"correct sasl_mechanism, security_protocol or the port",
            BrokerTrouble.WRONG_LISTENER,
        )
    if not mechanism and found.error_code in (_NONE, _UNSUPPORTED_MECHANISM):
        what = f"the listener requires SASL ({offered}): set security_protocol, sasl_mechanism and its credentials"
        raise BrokerUnavailable(what, BrokerTrouble.WRONG_LISTENER)


def _answer_to(stream: BufferedRWPair, request: bytes) -> bytes | None:
    """The answer without its size and correlation id; None if that is no answer of Kafka's to this request."""
    stream.write(request)
    stream.flush()
    try:
        head = stream.read(8)
        if len(head) < 8 or head[4:] != request[8:12]:
            return None
        size_bytes = struct.unpack_from(">i", head)[0] - 4
        return stream.read(size_bytes) if 0 <= size_bytes <= _ANSWER_BYTES_MAX else None
    except ConnectionError:
        return None
