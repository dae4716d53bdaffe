"""What a bucket does with objects by itself: versions, lifecycle rules, encryption. For people; nothing depends on it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from sidecar.errors import SidecarError, StoreUnavailable
from sidecar.storage.s3.requests import S3Requests
from sidecar.storage.store_clock import PROBE_FOLDER

_NO_SUCH_RULES = ("NoSuchLifecycleConfiguration", "ServerSideEncryptionConfigurationNotFoundError")


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """An enabled rule that meets objects of the archive, not those of the probe alone. Days are None where it does nothing of the
    kind.

    `noncurrent_expires_days`, `aborts_uploads_days`: of a rule for all of the archive only. `transitions`: storage classes to which
    objects are moved.
    """

    name: str
    expires_days: int | None
    noncurrent_expires_days: int | None
    aborts_uploads_days: int | None
    transitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BucketRules:
    """`versioning`: Enabled, Suspended or "". `unknown`: what could not be asked, and why, by what was asked for."""

    versioning: str
    encryption: str
    lifecycle: tuple[LifecycleRule, ...]
    unknown: dict[str, str]


def read_bucket_rules(s3: S3Requests) -> BucketRules:
    """Ask for all rules. Most users may not ask, so only throttling is raised, as StoreUnavailable."""
    unknown: dict[str, str] = {}

    def asked(what: str, call: Callable[..., Any]) -> dict[str, Any]:
        try:
            return s3.repeat(what, "", lambda: _rules_or_none(call, s3.bucket))
        except SidecarError as error:
            if isinstance(error, StoreUnavailable) and error.is_answered:
                raise
            unknown[what] = str(error)
            return {}

    versioning = asked("GetBucketVersioning", s3.client.get_bucket_versioning)
    encryption = asked("GetBucketEncryption", s3.client.get_bucket_encryption)
    lifecycle = asked("GetBucketLifecycleConfiguration", s3.client.get_bucket_lifecycle_configuration)
    rules = encryption.get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
    algorithms = [rule.get("ApplyServerSideEncryptionByDefault", {}).get("SSEAlgorithm", "") for rule in rules]
    return BucketRules(
        versioning=str(versioning.get("Status", "")),
        encryption=", ".join(filter(None, algorithms)),
        lifecycle=tuple(_rules(lifecycle.get("Rules", []), s3.prefix)),
        unknown=unknown,
    )


def _rules_or_none(call: Callable[..., Any], bucket: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = call(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in _NO_SUCH_RULES:
            raise
        return {}
    return found


def _rules(rules: Iterable[dict[str, Any]], archive: str) -> Iterable[LifecycleRule]:
    for rule in rules:
        found = rule.get("Filter", {})
        prefix = str(found.get("Prefix") or found.get("And", {}).get("Prefix") or rule.get("Prefix") or "")
        is_tagged = "Tag" in found or "Tags" in found.get("And", {})
        meets_all = archive.startswith(prefix)
        meets = meets_all or (prefix.startswith(archive) and not prefix.startswith(f"{archive}{PROBE_FOLDER}/"))
        if rule.get("Status") != "Enabled" or is_tagged or not meets:
            continue  # our objects have no tags
        expiration, of_all = rule.get("Expiration", {}), rule if meets_all else {}
        yield LifecycleRule(
            name=str(rule.get("ID", "")),
            expires_days=expiration.get("Days", 0 if "Date" in expiration else None),
            noncurrent_expires_days=of_all.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays"),
            aborts_uploads_days=of_all.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation"),
            transitions=tuple(str(entry.get("StorageClass", "")) for entry in rule.get("Transitions", [])),
        )
