"""What proves who we are, and whom we believe: passwords, tokens and certificates in files that somebody else keeps fresh."""

import base64
import json
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.config.secrets import read_secret
from sidecar.errors import BrokerTrouble, BrokerUnavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from kafka.net.sasl.oauth import AbstractTokenProvider

_OAUTH_FILE = "sasl_oauth_token_file"
_HOSTNAME_MISMATCH = 62
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH; 64 is the same for addresses."""
_IP_ADDRESS_MISMATCH = 64
_EXPIRED = 10
_NOT_OF_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The end of the connection within the handshake; Python before 3.11.4 raises the second."""
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How files of Java's kinds JKS and JCEKS begin. Source: sun.security.provider.JavaKeyStore."""
_CONVERT = "convert it: keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype PKCS12"


def secret_in(setting: str, file: Path) -> str:
    """The file's text without blanks around it.

    Raises BrokerUnavailable if there is nothing to read: a mount may come later, so nothing ends for it.
    """
    try:
        return read_secret(file)
    except OSError as error:
        raise unreadable(setting, file, error) from error
    except ValueError as error:
        raise secret_refused(f"{setting}: {file} {error}") from error


def unreadable(setting: str, file: Path, error: OSError) -> BrokerUnavailable:
    return secret_refused(
        f"{setting}: {file} cannot be read: {error.strerror or error}; mount it, or correct the setting"
    )


def secret_refused(what: str) -> BrokerUnavailable:
    """A file that a setting of the connection names is of no use. `what`: begins with the setting."""
    return BrokerUnavailable(f"broker.connection.{what}", BrokerTrouble.SECRET_UNREADABLE)


def secret_of(setting: str, value: SecretStr | None, file: Path | None) -> str | None:
    """A secret that is given itself or as `<setting>_file`; None if it is not. Raises BrokerUnavailable."""
    if file is not None:
        return secret_in(f"{setting}_file", file)
    return None if value is None else value.get_secret_value()


def token_provider(path: Path) -> "AbstractTokenProvider":
    """Reads the file for each connection. Raises BrokerUnavailable if it cannot be read."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class FileToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return secret_in(_OAUTH_FILE, path)

    return FileToken()


def lifetime_words(path: Path) -> str:
    """Until when the token is good by its own word, for messages; "" where it does not tell. Raises BrokerUnavailable.

    Source: RFC 7519, section 4.1.4.
    """
    parts = secret_in(_OAUTH_FILE, path).split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, OSError, RecursionError):
        return ""
    return f", which expires at {expires:%Y-%m-%dT%H:%M:%SZ}"


def tls_context(settings: BrokerConnectionSettings) -> ssl.SSLContext:
    """A context with what the files say now. Raises BrokerUnavailable, which names the file and what is wrong with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.ssl_check_hostname
    if settings.ssl_ca_file is None:
        context.load_default_certs()
    else:
        password = secret_of("ssl_ca_password", settings.ssl_ca_password, settings.ssl_ca_password_file)
        _load_authorities(context, settings.ssl_ca_file, password)
    if settings.ssl_certificate_file is not None and settings.ssl_key_file is not None:
        password = secret_of("ssl_key_password", settings.ssl_key_password, settings.ssl_key_password_file)
        _load_own(context, settings.ssl_certificate_file, settings.ssl_key_file, password)
    return context


def _load_authorities(context: ssl.SSLContext, file: Path, password: str | None) -> None:
    content = _content_of("ssl_ca_file", file)
    try:
        if _is_pem(content):
            context.load_verify_locations(cadata=content.decode("ascii", "replace"))
        else:
            context.load_verify_locations(cadata=b"".join(_authorities_in(content, password)))
    except _KeystoreRefused as error:
        raise secret_refused(f"ssl_ca_file: {file} {error}") from error
    except ssl.SSLError as error:
        raise secret_refused(f"ssl_ca_file: {file} contains no certificate in PEM form") from error


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path, password: str | None) -> None:
    content = _content_of("ssl_certificate_file", certificate)
    _content_of("ssl_key_file", key)
    try:
        if _is_pem(content) or certificate != key:
            # Without any password OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(certificate, key, password or "")
        else:
            with _in_memory(_pem_of(content, password)) as path:
                context.load_cert_chain(path)
    except _KeystoreRefused as error:
        raise secret_refused(f"ssl_certificate_file: {certificate} {error}") from error
    except ssl.SSLError as error:
        raise BrokerUnavailable(
            f"broker.connection: certificate {certificate} and key {key} cannot be used "
            f"({error.reason or 'not PEM'}): they must belong together, and an encrypted key needs "
            "ssl_key_password_file",
            BrokerTrouble.SECRET_UNREADABLE,
        ) from error


def _content_of(setting: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise unreadable(setting, file, error) from error


def handshake_failure(error: ssl.SSLError, host: str, settings: BrokerConnectionSettings) -> BrokerUnavailable:
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerUnavailable(_certificate_refused(error, host, settings), BrokerTrouble.BROKER_CERTIFICATE)
    reason = error.reason or str(error)
    if reason in _NOT_OF_TLS or isinstance(error, _ENDED):
        what = f"the listener does not speak TLS ({reason}): correct security_protocol {settings.security_protocol}, or the port"
        return BrokerUnavailable(what, BrokerTrouble.WRONG_LISTENER)
    if "ALERT" in reason:
        own = "none is configured" if settings.ssl_certificate_file is None else str(settings.ssl_certificate_file)
        return BrokerUnavailable(
            f"the broker refuses the sidecar's certificate ({reason}; {own}). Set ssl_certificate_file and "
            "ssl_key_file to a certificate that the broker's truststore accepts",
            BrokerTrouble.IDENTITY_REFUSED,
        )
    return BrokerUnavailable(f"the TLS handshake failed: {reason}", BrokerTrouble.OTHER)


def _certificate_refused(error: ssl.SSLCertVerificationError, host: str, settings: BrokerConnectionSettings) -> str:
    if error.verify_code in (_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH):
        return (
            f"the broker's certificate is not for {host}: name it in bootstrap_servers and advertised.listeners as its "
            f"certificate does, or give it a certificate for {host}"
        )
    if error.verify_code == _EXPIRED:
        return "the broker's certificate has expired: renew it on the broker"
    authorities = "the system's certificate authorities" if settings.ssl_ca_file is None else str(settings.ssl_ca_file)
    return f"the broker's certificate is not signed by {authorities} ({error.verify_message}): correct ssl_ca_file"


class _KeystoreRefused(Exception):
    """A store that cannot be used. The text follows the file's name."""


def _is_pem(content: bytes) -> bool:
    """Whether a file is no keystore. What is neither is left to OpenSSL to refuse."""
    return not content.startswith((*_JKS, b"\x30"))


def _authorities_in(content: bytes, password: str | None) -> list[bytes]:
    """The certificates of a truststore in DER form. Raises _KeystoreRefused."""
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _pkcs12(content, password)
    found = [entry.certificate for entry in store.additional_certs]
    if not found:
        raise _KeystoreRefused("contains no trusted certificate")
    return [certificate.public_bytes(Encoding.DER) for certificate in found]


def _pem_of(content: bytes, password: str | None) -> bytes:
    """The key of a keystore and its certificate chain in PEM form, the key without a password. Raises _KeystoreRefused."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _pkcs12(content, password)
    if store.key is None or store.cert is None:
        raise _KeystoreRefused("contains no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert, *store.additional_certs]
    return key + b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in chain)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path to bytes that are on no disk: OpenSSL takes keys from files only."""
    descriptor = os.memfd_create("tiered-sidecar-key")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _pkcs12(content: bytes, password: str | None) -> "PKCS12KeyAndCertificates":
    if content.startswith(_JKS):
        raise _KeystoreRefused(f"is a JKS store, which is not supported; {_CONVERT}")
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise _KeystoreRefused("is not a PKCS12 store, or its password is wrong or missing") from error
