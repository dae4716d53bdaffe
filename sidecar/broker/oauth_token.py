"""The token for SASL OAUTHBEARER from a file that somebody else keeps fresh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka.net.sasl.oauth import AbstractTokenProvider

TOKEN_CHARACTERS_MAX = 64 * 1024


def token_provider(path: Path) -> AbstractTokenProvider:
    """Reads the file anew for each connection. What cannot be read is an OSError, and the broker counts as away."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class FileToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        """The content of the file, without blanks around it."""

        def token(self) -> str:
            """See `AbstractTokenProvider`."""
            with path.open(encoding="ascii") as file:
                return file.read(TOKEN_CHARACTERS_MAX).strip()

    return FileToken()
