"""Why a broker does not answer us, for the person who has to change something."""

from __future__ import annotations

from sidecar.broker.client import EndedWhileGreeting
from sidecar.config.broker_connection import BrokerConnectionSettings, SaslMechanism
from sidecar.errors import BrokerTrouble, BrokerUnavailable


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
        what = f"the broker ended the connection while we said who we are; most often {_refused(settings)}"
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
        what = f"held back for {settings.request_timeout_s:g} s, most often by a request quota of the broker"
        return found(what, BrokerTrouble.NO_ANSWER)
    if isinstance(error, NodeNotReadyError):
        # Only a number names a broker: where none was asked for, kafka-python speaks of its own arguments.
        node = f"broker {said}" if said.isdecimal() else "any broker"
        return found(f"there is no connection to {node}", BrokerTrouble.NO_ANSWER)
    kind = type(error).__name__
    return found(f"{kind}: {said}" if said else kind, BrokerTrouble.OTHER)


def _refused(settings: BrokerConnectionSettings) -> str:
    if settings.sasl_mechanism is SaslMechanism.OAUTHBEARER and settings.sasl_oauth_token_file is not None:
        from sidecar.broker.oauth_token import lifetime_words

        file = settings.sasl_oauth_token_file
        return (
            f"the token of sasl_oauth_token_file {file}{lifetime_words(file)}, is refused: it must be fresh, and of an issuer "
            f"that the broker trusts"
        )
    where = (
        "sasl_password" if settings.sasl_password_file is None else f"sasl_password_file {settings.sasl_password_file}"
    )
    return f"user {settings.sasl_username} is refused with {settings.sasl_mechanism}: correct sasl_username or {where}"
