"""The store's access keys in files, which may be replaced while clients sign with them.

Files that are replaced together, as the kubelet replaces those of a Secret, are never mixed. Of files that are written one by one,
a request between the two writes may have one of each: the store refuses it, and it is tried again later.
"""

from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple, Self

from botocore.credentials import Credentials, ReadOnlyCredentials

from sidecar.config.secrets import read_secret
from sidecar.errors import SettingsError
from sidecar.event_log import EVENTS
from sidecar.logformat.files import FileStamp, stamp_of
from sidecar.reporting.advice import advised
from sidecar.storage.s3.requests import given_keys
from sidecar.store_settings import S3Settings


class Keys(NamedTuple):
    """What requests are signed with."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None


class KeyFiles:
    """The files that settings name; a key that is given itself stays. Thread-safe."""

    def __init__(self, settings: S3Settings) -> None:
        """Read them. Raises SettingsError."""
        self._files: Final = settings.key_files
        self._given: Final = given_keys(settings)
        self._lock = Lock()
        self._failure = ""
        self._stamps = self._seen()
        self._keys = self._read()

    def keys(self) -> Keys:
        """Those of now. The keys of before go on while a file cannot be read, and while files are being replaced."""
        with self._lock:
            before = self._seen()
            if before != self._stamps:
                self._renew(before)
            return self._keys

    def _renew(self, before: tuple[FileStamp | None, ...]) -> None:
        try:
            found = self._read()
        except SettingsError as error:
            # The stamps stay: what was mended without another write (its mode, free descriptors) is read again, too.
            if self._failure != (failure := advised(error)):
                EVENTS.warning("store_keys_not_read", error=failure)
            self._failure = failure
            return
        self._failure = ""
        # Else one key may be from before the replacement, and its secret from after: the next request reads both again.
        if self._seen() == before:
            self._stamps = before
            if found != self._keys:
                EVENTS.info("store_keys_changed")
            self._keys = found

    def _seen(self) -> tuple[FileStamp | None, ...]:
        return tuple(stamp_of(file) for file in self._files.values())

    def _read(self) -> Keys:
        found = {name.removesuffix("_file"): _text_of(name, file) for name, file in self._files.items()}
        keys = self._given | found
        return Keys(keys["access_key_id"], keys["secret_access_key"], keys.get("session_token"))


class FileCredentials(Credentials):
    """For a session of botocore, as its `credential_provider`: each request is signed with the keys of that moment."""

    def __init__(self, files: KeyFiles) -> None:
        super().__init__(*files.keys())
        self._files = files

    def load_credentials(self) -> Self:
        """Called once for each client."""
        return self

    def get_frozen_credentials(self) -> Any:
        """Called for each signature."""
        return ReadOnlyCredentials(*self._files.keys())


def _text_of(setting: str, file: Path) -> str:
    if file.is_fifo():
        raise SettingsError(f"store.s3.{setting}: {file} is a pipe, which cannot be read again; name a regular file")
    try:
        return read_secret(file)
    except FileNotFoundError as error:
        raise SettingsError(
            f"store.s3.{setting}: {file} does not exist; correct the path, or, in Kubernetes, create the Secret with this key"
        ) from error
    except OSError as error:
        raise SettingsError(f"store.s3.{setting}: {file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"store.s3.{setting}: {file} {error}; write the key into it") from error
