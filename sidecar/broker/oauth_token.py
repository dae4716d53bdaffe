"""The token for SASL OAUTHBEARER from a file that somebody else keeps fresh."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.broker.secret_files import read_secret

if TYPE_CHECKING:
    from kafka.net.sasl.oauth import AbstractTokenProvider

SETTING = "sasl_oauth_token_file"


def token_provider(path: Path) -> AbstractTokenProvider:
    """Reads the file anew for each connection. What cannot be read is a BrokerUnavailable."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class FileToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        """The content of the file, without blanks around it."""

        def token(self) -> str:
            """See `AbstractTokenProvider`."""
            return read_secret(SETTING, path)

    return FileToken()


def lifetime_words(path: Path) -> str:
    """Until when the token is good by its own word, for messages; "" where it does not tell. Raises BrokerUnavailable.

    Source: RFC 7519, section 4.1.4.
    """
    parts = read_secret(SETTING, path).split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, OSError, RecursionError):
        return ""
    return f", which is good until {expires:%Y-%m-%dT%H:%M:%SZ}"
