"""Settings of the archive's store, and the base of all sections of the settings model. Knows nothing but pydantic.

No module with sections imports `annotations` from `__future__`: pydantic would compile each of them, at every start.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

MIB = 1024 * 1024
Value = TypeVar("Value")

READ_LATER_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes without immediate reads."""


class ReloadMark:
    """Marks settings that `run` applies from a changed file without a restart."""


Reloadable = Annotated[Value, ReloadMark()]
"""The type of such a setting."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]\Z|arn:[A-Za-z0-9:/_.-]+\Z")


class Section(BaseModel):
    """Base of the sections: unknown keys are refused, values do not change after the start."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _values_mean_what_they_say(cls, value: Any, validated: ValidatorFunctionWrapHandler) -> Any:
        given = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(text, str) and "\0" in text for text in given):
            raise ValueError("it contains a NUL character, which no file name and no setting may have")
        found = validated(value)
        if type(value) is bool and type(found) is not bool:
            raise ValueError(f"expected a number, found {value}")
        paths = found if isinstance(found, tuple) else (found,)
        if "" in given and any(isinstance(path, Path) for path in paths):
            raise ValueError("a path must not be empty: it would be the current directory")
        return found


class ChecksumMode(StrEnum):
    """How objects are protected on the way to the store."""

    CRC32C = "crc32c"
    NONE = "none"


class AddressingStyle(StrEnum):
    """Where the bucket's name goes: host name (`virtual`), path (`path`), or the SDK's choice (`auto`)."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"


class ServerSideEncryption(StrEnum):
    """Encryption at rest by the store."""

    AES256 = "AES256"
    AWS_KMS = "aws:kms"


class RetrySettings(Section):
    """Retries of requests. Waits are random; their upper bound doubles from `wait_s_first` on."""

    attempts: Annotated[int, Field(ge=1, le=20)] = 6
    """Maximum number of attempts of a request."""
    wait_s_first: Annotated[float, Field(gt=0, le=60)] = 0.5
    """Upper bound of the wait before the second attempt."""
    wait_s_max: Annotated[float, Field(gt=0, le=600)] = 20.0
    """Upper bound of any wait."""


class S3Settings(Section):
    """Settings of an S3-compatible store beyond the URL."""

    endpoint_url: str | None = None
    """Endpoint of a store other than AWS, for example `https://minio.example:9000`. Must not contain credentials."""
    region: str | None = None
    """Default: the SDK's own search (environment, profile), then us-east-1."""
    addressing_style: AddressingStyle = AddressingStyle.AUTO
    """Stores without a DNS name per bucket need `path`."""
    profile: str | None = None
    """Named profile of the AWS configuration files."""
    access_key_id: SecretStr | None = None
    """Explicit key. Default: the SDK's chain of environment, profile, web identity (IRSA), container and instance.
    Better: `access_key_id_file`."""
    secret_access_key: SecretStr | None = None
    """Secret of `access_key_id`."""
    session_token: SecretStr | None = None
    """Session token of a temporary explicit key."""
    access_key_id_file: Path | None = None
    """File with the key. Keys in files can be rotated while the program runs: the next request notices a changed file."""
    secret_access_key_file: Path | None = None
    """File with the secret of the key."""
    session_token_file: Path | None = None
    """File with the session token of a temporary key."""
    verify_tls: bool = True
    """Check the store's certificate."""
    ca_file: Path | None = None
    """PEM bundle of certificate authorities for that check, instead of the system's."""
    connect_timeout_s: Annotated[float, Field(gt=0, le=300)] = 10.0
    """How long to wait for a connection."""
    read_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """How long to wait for the next bytes of a response."""
    part_bytes: Annotated[int, Field(ge=5 * MIB, le=512 * MIB)] = 16 * MIB
    """Size of a multipart part; objects up to this size go in one request. Increases automatically for objects of more
    than 10,000 parts."""
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    """Parts in flight over all uploads together. Memory is about `part_bytes` times this."""
    checksum: ChecksumMode = ChecksumMode.CRC32C
    """`none` for stores that refuse checksum headers; contents are then compared by size only."""
    conditional_writes: bool = True
    """Send `If-None-Match: *`. Set it to `false` only for stores that refuse the header, and only with `single_writer`.
    A put that the network delays may then replace a later commit of the same writer. The next commit detects that, and
    the partition stops. Enable versioning of the bucket, to restore the replaced commit from."""
    sign_payload: bool = False
    """Hash bodies with SHA-256 for the signature as well. Costs more CPU than the rest of an upload."""
    server_side_encryption: ServerSideEncryption | None = None
    """Encryption requested for each object. Default: the bucket's own rule."""
    kms_key_id: str | None = None
    """Key for `aws:kms`. Default: the account's key."""
    storage_class: str | None = None
    """For example STANDARD_IA or GLACIER_IR (classes without immediate reads cannot be verified)."""

    @property
    def key_files(self) -> dict[str, Path]:
        """Those of the keys' files that are given, by setting."""
        names = ("access_key_id_file", "secret_access_key_file", "session_token_file")
        return {name: file for name in names if (file := getattr(self, name)) is not None}

    @field_validator("endpoint_url")
    @classmethod
    def _endpoint_is_a_plain_http_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("endpoint_url must begin with http:// or https:// and name a host")
        if parts.username or parts.password:
            raise ValueError("endpoint_url must not carry credentials; use access_key_id and secret_access_key")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        for name in self.key_files:
            if getattr(self, name.removesuffix("_file")) is not None:
                raise ValueError(f"give {name.removesuffix('_file')} or {name}, not both")
        key = self.access_key_id or self.access_key_id_file
        secret = self.secret_access_key or self.secret_access_key_file
        if (key is None) != (secret is None):
            raise ValueError("access_key_id and secret_access_key must be given together")
        if (self.session_token or self.session_token_file) is not None and key is None:
            raise ValueError("session_token needs access_key_id and secret_access_key")
        if self.kms_key_id is not None and self.server_side_encryption is not ServerSideEncryption.AWS_KMS:
            raise ValueError("kms_key_id needs server_side_encryption: aws:kms")
        if self.ca_file is not None and not self.verify_tls:
            raise ValueError("ca_file has no effect with verify_tls: false; leave one of them out")
        return self


class StoreSettings(Section):
    """Where the archive is, and how to access it."""

    url: str
    """`s3://bucket/prefix`, a directory (`/archive` or `file:///archive`), or any other fsspec URL."""
    single_writer: bool = False
    """Your promise that no other sidecar writes to this archive. Accepts a store without create-only puts. If the store
    ignores the condition, also set `s3.conditional_writes: false`, so that uploads and compactions of this sidecar do
    not overwrite each other's commits."""
    bandwidth_bytes_per_s: Reloadable[Annotated[int, Field(ge=64 * 1024)] | None] = None
    """Limit of all uploads together, those of compaction included. Default: unlimited."""
    read_bytes_per_s: Reloadable[Annotated[int, Field(ge=1024 * 1024)] | None] = None
    """Limit of all reads together: of objects, and of segments on the broker's disks that `run` and `backfill` archive,
    compact before the upload, or search for the end of a transaction. Default: unlimited. It does not limit checks that
    read headers of segments, nor `compact` and `snapshots` of a directory. Keep it well above the rate of producers,
    otherwise segments are archived late."""
    retry: RetrySettings = RetrySettings()
    """Repeating of requests."""
    s3: S3Settings = S3Settings()
    """Only for `s3://` URLs."""

    @property
    def directory(self) -> Path | None:
        """Where `url` is a directory. Raises RuntimeError for a home directory that is unknown."""
        parts = urlsplit(self.url)
        if parts.scheme in {"file", "local"}:
            return Path(unquote(parts.path))
        return None if "://" in self.url else Path(self.url).expanduser()

    @field_validator("url")
    @classmethod
    def _url_names_a_place(cls, value: str) -> str:
        parts = urlsplit(value)
        if not value or value != value.strip():  # A space at the end would begin an archive under another prefix.
            raise ValueError("url must name a bucket or a directory, without spaces around it")
        if parts.username or parts.password:
            raise ValueError("url must not carry credentials")
        if parts.scheme not in {"", "file", "local"} and "://" not in value:
            if "@" in value:  # Without the slashes, urlsplit finds no credentials.
                raise ValueError("url lacks the two slashes of a URL, and must not carry credentials")
            given, corrected = f"{parts.scheme}:{parts.path}", f"{parts.scheme}://{parts.path.lstrip('/')}"
            raise ValueError(
                f"{given} lacks the two slashes of a URL: {corrected}. A directory of this name is ./{given}"
            )
        if parts.scheme in {"file", "local"} and (parts.netloc not in {"", "localhost"} or not parts.path):
            raise ValueError(
                f"{value} names a host or no directory. A file URL names one of this machine, after three slashes: file:///archive"
            )
        if value.startswith("s3//"):  # Else a directory, and `backfill` would begin an archive in it.
            raise ValueError(f"{value} lacks the colon of a URL: s3:{value[2:]}. A directory of this name is ./{value}")
        if parts.scheme == "s3" and (parts.query or parts.fragment):
            raise ValueError(
                "an s3:// url has a bucket and a prefix only; endpoint and region are settings of their own"
            )
        if parts.scheme == "s3" and not _BUCKET.match(parts.netloc):
            raise ValueError(f"{parts.netloc!r} is not a bucket name (3 to 63 letters, digits, dots and hyphens)")
        prefix = parts.path.strip("/")
        if parts.scheme == "s3" and prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/")):
            raise ValueError(f"{prefix!r} is not a prefix: its elements must not be empty, '.' or '..'")
        return value

    @model_validator(mode="after")
    def _several_writers_need_conditional_writes(self) -> Self:
        if not self.s3.conditional_writes and not self.single_writer:
            raise ValueError("s3.conditional_writes: false is safe only with single_writer: true")
        return self
