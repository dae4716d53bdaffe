"""A boto3 client as the settings want it, with botocore's own retries and checksums switched off."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.utils import parse_timestamp
from pydantic import SecretStr

from sidecar import __version__
from sidecar.errors import SettingsError
from sidecar.store_settings import S3Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

DEFAULT_REGION = "us-east-1"
CONNECTIONS_KEPT_MAX = 1024
"""Beyond the threads of any command. Not a limit: botocore's pool opens as many as are asked for at once, and only throws away
what comes back beyond its size, with a warning for each."""


def make_client(settings: S3Settings) -> S3Client:
    """A client for `settings`, usable from many threads. Raises SettingsError."""
    verify = tls_verification(settings)
    try:
        core = botocore.session.get_session()
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=time_of)
        session = boto3.session.Session(
            botocore_session=core,
            aws_access_key_id=revealed(settings.access_key_id),
            aws_secret_access_key=revealed(settings.secret_access_key),
            aws_session_token=revealed(settings.session_token),
            region_name=settings.region,
            profile_name=settings.profile,
        )
        return session.client(
            "s3",
            region_name=session.region_name or DEFAULT_REGION,
            endpoint_url=settings.endpoint_url,
            verify=verify,
            config=Config(**client_config(settings)),
        )
    except (BotoCoreError, ValueError, OSError) as error:
        raise SettingsError(f"no S3 client can be made of these settings: {error}") from error


def time_of(value: Any) -> datetime:
    """A time in an answer. botocore guesses the format, at a thirteenth of what a whole listing of one key costs."""
    if isinstance(value, str):
        with suppress(ValueError):
            return parsedate_to_datetime(value) if value.endswith("GMT") else datetime.fromisoformat(value)
    found: datetime = parse_timestamp(value)
    return found


def tls_verification(settings: S3Settings) -> str | bool | None:
    """botocore's `verify`. Raises SettingsError for a file that is not there."""
    if settings.ca_file is not None:
        if not settings.ca_file.is_file():
            # Found at the first request otherwise, as a TLS error that does not name the setting.
            raise SettingsError(f"s3.ca_file {settings.ca_file} does not exist")
        return str(settings.ca_file)
    # None lets AWS_CA_BUNDLE decide, and so does True in botocore's resolution of `verify`.
    return None if settings.verify_tls else False


def client_config(settings: S3Settings) -> dict[str, Any]:
    """Arguments of botocore's `Config`, for all clients of a store."""
    return {
        "connect_timeout": settings.connect_timeout_s,
        "read_timeout": settings.read_timeout_s,
        # How many there are is for those to decide who make the threads, of which some make threads of their own.
        "max_pool_connections": CONNECTIONS_KEPT_MAX,
        "tcp_keepalive": True,
        # botocore's own is put together anew for each request, at a sixteenth of its whole cost.
        "user_agent": f"tiered-sidecar/{__version__}",
        # sidecar.storage.retry repeats; a second layer would multiply the attempts and hide unknown outcomes.
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        # We send our own CRC-32C; anything else botocore would compute is a second pass over the bytes.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
        "s3": {"addressing_style": settings.addressing_style.value, "payload_signing_enabled": settings.sign_payload},
    }


def revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
