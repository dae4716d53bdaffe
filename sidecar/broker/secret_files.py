"""Passwords, tokens and certificates in files that somebody else keeps fresh."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import SecretStr

from sidecar.errors import BrokerTrouble, BrokerUnavailable

SECRET_BYTES_MAX = 64 * 1024

Fingerprint = tuple[tuple[int, int, int] | None, ...]
"""Of each file its inode, size and time of change; None where it cannot be looked at."""


def fingerprint(files: Iterable[Path]) -> Fingerprint:
    """What changes when a file is replaced, by a rename or behind a symbolic link, as Kubernetes does it."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def read_secret(setting: str, file: Path) -> str:
    """The file's text without blanks around it.

    Raises BrokerUnavailable if there is nothing to read: a mount may come later, so nothing ends for it.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise unreadable(setting, file, error) from error
    except UnicodeDecodeError as error:
        raise secret_refused(f"{setting}: {file} is no UTF-8 text") from error
    if not text.strip() or len(text) > SECRET_BYTES_MAX:
        raise secret_refused(f"{setting}: {file} is empty, or too long to be a secret")
    return text.strip()


def unreadable(setting: str, file: Path, error: OSError) -> BrokerUnavailable:
    """A file cannot be opened."""
    return secret_refused(
        f"{setting}: {file} cannot be read: {error.strerror or error}; mount it, or correct the setting"
    )


def secret_refused(what: str) -> BrokerUnavailable:
    """A file that a setting of the connection names is of no use. `what`: begins with the setting."""
    return BrokerUnavailable(f"broker.connection.{what}", BrokerTrouble.SECRET_UNREADABLE)


def secret_of(setting: str, value: SecretStr | None, file: Path | None) -> str | None:
    """A secret that is given itself or as `<setting>_file`; None if it is not. Raises BrokerUnavailable."""
    if file is not None:
        return read_secret(f"{setting}_file", file)
    return None if value is None else value.get_secret_value()
