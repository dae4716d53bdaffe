"""A bucket by way of s3fs, for tools that only read: with the store's own settings, retries and errors."""

from collections.abc import Callable
from typing import Any, Final

import botocore.session
from botocore.exceptions import BotoCoreError
from fsspec.spec import AbstractFileSystem

from sidecar.errors import SettingsError
from sidecar.model import ObjectKey
from sidecar.storage.fsspec_store import Answer, FsspecReader
from sidecar.storage.retry import Retrier
from sidecar.storage.s3.errors import status_behind
from sidecar.storage.s3.key_files import KeyFiles
from sidecar.storage.s3.requests import DEFAULT_REGION, client_config, given_keys, tls_verification
from sidecar.store_settings import S3Settings

_RANGE_BEYOND_THE_END: Final = 416


def s3fs_options(settings: S3Settings) -> dict[str, Any]:
    """Arguments of an `S3FileSystem` that talks to the store as boto3 would: the same keys, endpoint, region, TLS and timeouts.

    Raises SettingsError.
    """
    verify = tls_verification(settings)
    keys = KeyFiles(settings).keys()._asdict() if settings.key_files else given_keys(settings)
    try:
        session = botocore.session.Session(profile=settings.profile)
        session.get_scoped_config()  # else a profile that is not there is found out at the first request
        region = settings.region or session.get_config_variable("region") or DEFAULT_REGION
    except (BotoCoreError, ValueError, OSError) as error:
        raise SettingsError(f"no S3 client can be created from store.s3; correct it: {error}") from error
    return {
        "key": keys.get("access_key_id"),
        "secret": keys.get("secret_access_key"),
        "token": keys.get("session_token"),
        "endpoint_url": settings.endpoint_url,
        "client_kwargs": {"region_name": region, "verify": verify},
        "config_kwargs": client_config(settings),
        "use_listings_cache": False,
        "skip_instance_cache": True,  # fsspec would keep the keys for as long as the process lives
        **({} if settings.profile is None else {"profile": settings.profile}),
    }


class S3FilesReader(FsspecReader):
    """A bucket by way of s3fs: requests are repeated as `store.retry` says."""

    def __init__(self, files: AbstractFileSystem, root: str, url: str, retrier: Retrier) -> None:
        super().__init__(files, root, url)
        self._retrier = retrier
        files.retries = 1  # one layer repeats

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        """See `ObjectStore`. One request: a range may reach beyond the object's end."""
        if size_bytes == 0:
            return super().read(key, position, size_bytes)
        path, end = self._path(key), None if size_bytes is None else position + size_bytes

        def read() -> bytes:
            try:
                return bytes(self._files.cat_file(path, start=position, end=end))
            except OSError as error:
                if status_behind(error) == _RANGE_BEYOND_THE_END:
                    return b""
                raise

        return self._ask("read", key, read)

    def _ask(self, operation: str, key: str, call: Callable[[], Answer]) -> Answer:
        return self._retrier.run(lambda: super(S3FilesReader, self)._ask(operation, key, call))

    def _find(self, prefix: str) -> dict[str, dict[str, Any]]:
        # Below the bucket itself: for an empty folder s3fs would send two more requests.
        bucket, _, folder = self._root.partition("/")
        whole = f"{folder}/{prefix}" if folder else prefix
        found: dict[str, dict[str, Any]] = self._files.find(bucket, detail=True, prefix=whole)
        return found
