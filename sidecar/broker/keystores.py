"""Java's keystores and truststores: PKCS12 is read, older kinds are refused with the command that converts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How files of Java's kinds JKS and JCEKS begin. Source: sun.security.provider.JavaKeyStore."""
_CONVERT = "convert it: keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype PKCS12"


class KeystoreRefused(Exception):
    """A store that cannot be used. The text follows the file's name."""


def is_pem(content: bytes) -> bool:
    """Whether a file is no keystore. What is neither is left to OpenSSL to refuse."""
    return not content.startswith((*_JKS, b"\x30"))


def authorities_in(content: bytes, password: str | None) -> list[bytes]:
    """The certificates of a truststore in DER form. Raises KeystoreRefused."""
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _pkcs12(content, password)
    found = [entry.certificate for entry in store.additional_certs]
    if not found:
        raise KeystoreRefused("contains no trusted certificate")
    return [certificate.public_bytes(Encoding.DER) for certificate in found]


def pem_of(content: bytes, password: str | None) -> bytes:
    """The key of a keystore and its certificate chain in PEM form, the key without a password. Raises KeystoreRefused."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _pkcs12(content, password)
    if store.key is None or store.cert is None:
        raise KeystoreRefused("contains no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert, *store.additional_certs]
    return key + b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in chain)


@contextmanager
def in_memory(content: bytes) -> Iterator[str]:
    """A path to bytes that are on no disk: OpenSSL takes keys from files only."""
    descriptor = os.memfd_create("tiered-sidecar-key")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _pkcs12(content: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    if content.startswith(_JKS):
        raise KeystoreRefused(f"is a JKS store, which is not supported; {_CONVERT}")
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise KeystoreRefused("is not a PKCS12 store, or its password is wrong or missing") from error
