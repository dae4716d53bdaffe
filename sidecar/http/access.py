"""Who may see what the port tells: everybody, or who knows the token of a file."""

from __future__ import annotations

import base64
import binascii
import hmac
from enum import StrEnum
from pathlib import Path

import structlog

from sidecar.errors import SettingsError

_log = structlog.get_logger(__name__)

TOKEN_BYTES_MIN = 16
TOKEN_BYTES_MAX = 4096
CHALLENGES = ('Basic realm="tiered-sidecar", charset="UTF-8"', 'Bearer realm="tiered-sidecar"')
"""Browsers ask for a password by the first they know; scrapers and scripts send the token as it is."""


class Verdict(StrEnum):
    """`CLOSED`: the token cannot be read now, so nobody is let in."""

    WELCOME = "welcome"
    UNKNOWN = "unknown"
    CLOSED = "closed"


class Access:
    """Compares what clients send with the token of a file, which is read anew each time: Secrets are rotated in place."""

    def __init__(self, token_file: Path | None) -> None:
        """Args: token_file: None lets everybody in.

        Raises SettingsError if the token cannot be read now, or is too short to be one.
        """
        self._token_file = token_file
        self._is_readable = True
        if token_file is not None:
            _read_token(token_file)

    def verdict(self, authorization: str) -> Verdict:
        """Of a request with this Authorization header, "" for none. Takes as long for a wrong token as for the right one."""
        if self._token_file is None:
            return Verdict.WELCOME
        try:
            token = _read_token(self._token_file)
        except SettingsError as error:
            # Once, not for each scrape and each click until somebody mends it.
            if self._is_readable:
                _log.error("http_token_not_read", error=str(error))
            self._is_readable = False
            return Verdict.CLOSED
        self._is_readable = True
        return Verdict.WELCOME if hmac.compare_digest(_presented(authorization), token) else Verdict.UNKNOWN


def _read_token(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_BYTES_MAX + 1).strip()
    except OSError as error:
        raise SettingsError(f"http.token_file: cannot read {path}: {error.strerror}") from error
    if not TOKEN_BYTES_MIN <= len(token) <= TOKEN_BYTES_MAX:
        raise SettingsError(
            f"http.token_file: {path} has {len(token)} bytes, a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}: "
            f"`openssl rand -hex 32` makes one"
        )
    return token


def _presented(authorization: str) -> bytes:
    """The token in the header, empty if there is none: by Bearer, or as the password of any user by Basic."""
    scheme, _, value = authorization.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value.encode("latin-1", "replace")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
