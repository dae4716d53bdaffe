"""One S3 bucket as requests: a botocore client without botocore's own retries and checksums; names, headers, retries and errors."""

from __future__ import annotations

import gzip
import os
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import JSONFileLoader, Loader
from botocore.utils import parse_timestamp
from pydantic_core import from_json

from sidecar import __version__
from sidecar.errors import SettingsError
from sidecar.model import ObjectKey
from sidecar.ports import ObjectFacts
from sidecar.storage.checksums import from_text, to_text
from sidecar.storage.object_keys import check_key
from sidecar.storage.retry import Retrier, StoreLiveness
from sidecar.storage.s3.errors import StoreRequest, translating
from sidecar.storage.store_clock import milliseconds_of
from sidecar.store_settings import READ_LATER_CLASSES, ChecksumMode, S3Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Answer = TypeVar("Answer")
DEFAULT_REGION = "us-east-1"
CONNECTIONS_KEPT_MAX = 1024
"""Beyond the threads of any command. Not a limit: botocore's pool opens as many as are asked for at once, and only throws away
what comes back beyond its size, with a warning for each."""


@dataclass(frozen=True, slots=True)
class S3Requests:
    """What all parts of the S3 adapter share. `prefix`: before each key; "" or ending with '/'."""

    client: S3Client
    bucket: str
    prefix: str
    settings: S3Settings
    retrier: Retrier
    answers: StoreLiveness

    @property
    def checksums(self) -> bool:
        return self.settings.checksum is ChecksumMode.CRC32C

    def send(self, operation: str, key: str, call: Callable[[], Answer], *, creates: bool = False) -> Answer:
        """One attempt. Raises our errors."""
        where = f"{self.client.meta.endpoint_url}/{self.bucket}/{self.prefix}".rstrip("/")
        with self.answers.asked(), translating(StoreRequest(operation, key, where, creates)):
            return call()

    def repeat(self, operation: str, key: str, call: Callable[[], Answer]) -> Answer:
        """Attempts until one succeeds or fails for good."""
        return self.retrier.run(lambda: self.send(operation, key, call))

    def address(self, key: ObjectKey) -> dict[str, Any]:
        return {"Bucket": self.bucket, "Key": self.prefix + check_key(key)}

    def key(self, name: str) -> ObjectKey:
        """The key of what has this name in the bucket."""
        return ObjectKey(name[len(self.prefix) :])

    def creation(self) -> dict[str, Any]:
        """Parameters of every new object: encryption and storage class."""
        settings = self.settings
        parameters: dict[str, Any] = {"ContentType": "application/octet-stream"}
        if settings.server_side_encryption is not None:
            parameters["ServerSideEncryption"] = settings.server_side_encryption.value
        if settings.kms_key_id is not None:
            parameters["SSEKMSKeyId"] = settings.kms_key_id
        if settings.storage_class is not None:
            parameters["StorageClass"] = settings.storage_class
        return parameters

    def create_only(self) -> dict[str, Any]:
        """The condition that the key is free, where the store is trusted with it."""
        return {"IfNoneMatch": "*"} if self.settings.conditional_writes else {}

    def checksum(self, crc32c: int) -> dict[str, Any]:
        """The checksum header. With it present botocore computes none of its own (httpchecksum.resolve_request…)."""
        return {"ChecksumCRC32C": to_text(crc32c)} if self.checksums else {}

    def checksum_mode(self) -> dict[str, Any]:
        return {"ChecksumMode": "ENABLED"} if self.checksums else {}

    def head(self, key: ObjectKey) -> ObjectFacts:
        """Facts of an object. Raises ObjectMissing."""
        answer = self.repeat(
            "HeadObject", key, lambda: self.client.head_object(**self.address(key), **self.checksum_mode())
        )
        return facts_of(key, answer)


def facts_of(key: ObjectKey, answer: Mapping[str, Any]) -> ObjectFacts:
    """What the headers of an answer about a whole object say of it."""
    return ObjectFacts(
        key=key,
        size_bytes=answer["ContentLength"],
        modified_ms=milliseconds_of(answer["LastModified"]),
        crc32c=stored_crc32c(answer),
        frozen_in=_frozen_in(answer),
    )


def _frozen_in(answer: Mapping[str, Any]) -> str:
    """Source: S3 API Reference, HeadObject: x-amz-storage-class, x-amz-archive-status, x-amz-restore."""
    if 'ongoing-request="false"' in answer.get("Restore", ""):
        return ""  # It is restored, for some days.
    storage_class = answer.get("StorageClass", "")
    return answer.get("ArchiveStatus") or (storage_class if storage_class in READ_LATER_CLASSES else "")


def stored_crc32c(answer: Mapping[str, Any]) -> int | None:
    """The checksum of the whole object that an answer reports, None if it reports none, or one of parts."""
    is_whole = answer.get("ChecksumType", "FULL_OBJECT") != "COMPOSITE"
    return from_text(answer.get("ChecksumCRC32C")) if is_whole else None


_UNPACKED: Final[dict[str, Callable[[bytes], bytes]]] = {".json": bytes, ".json.gz": gzip.decompress}


class ModelFiles(JSONFileLoader):
    """Reads service descriptions as plain dicts, which keep the order, too. botocore's own reader takes twice as long."""

    def load_file(self, file_path: str) -> Any:
        """See botocore. None where there is no such file."""
        for suffix, unpacked in _UNPACKED.items():
            path = Path(file_path + suffix)
            if path.is_file():
                return from_json(unpacked(path.read_bytes()))
        return None


class ModelLoader(Loader):
    """Takes each folder for a service. botocore searches the folders of all 400 services, twice for each client."""

    FILE_LOADER_CLASS = ModelFiles

    def list_available_services(self, type_name: str) -> list[str]:
        folders = [path for path in self.search_paths if Path(path).is_dir()]
        return sorted({entry.name for path in folders for entry in os.scandir(path)})


def make_client(settings: S3Settings) -> S3Client:
    """A client for `settings`, usable from many threads. Raises SettingsError.

    Of botocore: boto3 adds resources and transfers, which take a tenth of a start and are not used.
    """
    verify = tls_verification(settings)
    try:
        core = botocore.session.get_session()
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=time_of)
        search_paths = core.get_component("data_loader").search_paths
        core.register_component("data_loader", ModelLoader(search_paths, include_default_search_paths=False))
        if settings.profile is not None:
            core.set_config_variable("profile", settings.profile)
        if settings.key_files:
            from sidecar.storage.s3.key_files import FileCredentials, KeyFiles  # loads `config`

            core.register_component("credential_provider", FileCredentials(KeyFiles(settings)))
        elif keys := given_keys(settings):
            core.set_credentials(keys["access_key_id"], keys["secret_access_key"], keys.get("session_token"))
        client = core.create_client(
            "s3",
            region_name=settings.region or core.get_config_variable("region") or DEFAULT_REGION,
            endpoint_url=settings.endpoint_url,
            verify=verify,
            config=Config(**client_config(settings)),
        )
        return cast("S3Client", client)
    except (BotoCoreError, ValueError, OSError) as error:
        raise SettingsError(f"no S3 client can be created from store.s3; correct it: {error}") from error


def time_of(value: Any) -> datetime:
    """A time in an answer. botocore guesses the format, at a thirteenth of what a whole listing of one key costs."""
    if isinstance(value, str):
        with suppress(ValueError):
            return parsedate_to_datetime(value) if value.endswith("GMT") else datetime.fromisoformat(value)
    found: datetime = parse_timestamp(value)
    return found


def tls_verification(settings: S3Settings) -> str | bool | None:
    """botocore's `verify`. Raises SettingsError for a file without certificates."""
    if settings.ca_file is not None:
        try:  # Found at the first request otherwise, as a TLS error that does not name the setting.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(settings.ca_file)
        except OSError as error:
            no_certificate = isinstance(error, ssl.SSLError)
            what = "contains no certificate in PEM form" if no_certificate else f"cannot be read ({error.strerror})"
            raise SettingsError(
                f"store.s3.ca_file {settings.ca_file} {what}: correct the path, or mount the file"
            ) from error
        return str(settings.ca_file)
    # None lets AWS_CA_BUNDLE decide, and so does True in botocore's resolution of `verify`.
    return None if settings.verify_tls else False


def client_config(settings: S3Settings) -> dict[str, Any]:
    return {
        "connect_timeout": settings.connect_timeout_s,
        "read_timeout": settings.read_timeout_s,
        # How many there are is for those to decide who make the threads, of which some make threads of their own.
        "max_pool_connections": CONNECTIONS_KEPT_MAX,
        "tcp_keepalive": True,
        # botocore's own is built again for each request, at a sixteenth of its whole cost.
        "user_agent": f"tiered-sidecar/{__version__}",
        # sidecar.storage.retry repeats; a second layer would multiply the attempts and hide unknown outcomes.
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        # We send our own CRC-32C; anything else botocore would compute is a second pass over the bytes.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "s3": {"addressing_style": settings.addressing_style.value, "payload_signing_enabled": settings.sign_payload},
    }


def given_keys(settings: S3Settings) -> dict[str, str]:
    """Those of key, secret and session token that the settings themselves contain, by setting."""
    given = {
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
        "session_token": settings.session_token,
    }
    return {name: value.get_secret_value() for name, value in given.items() if value is not None}
