"""Of S3 stores only: whether the endpoint can be found under its name, and what the bucket does with objects by itself."""

from __future__ import annotations

import ipaddress
import socket
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from sidecar.doctor.findings import Outcome, fine, not_checked, problem, warning
from sidecar.errors import StoreError
from sidecar.ports import ObjectStore
from sidecar.storage.s3.bucket_rules import BucketRules
from sidecar.store_settings import AddressingStyle, StoreSettings

_EXIT_CODE = StoreError.exit_code
_READS_LATER = {"GLACIER", "DEEP_ARCHIVE"}
"""Storage classes without immediate reads."""


@runtime_checkable
class HasBucket(Protocol):
    """A store whose objects lie in a bucket behind an address."""

    @property
    def endpoint_url(self) -> str:
        """The address, without the bucket."""
        ...

    def bucket_rules(self) -> BucketRules:
        """What the bucket does with objects by itself."""
        ...


def endpoint(settings: StoreSettings, store: ObjectStore) -> Outcome:
    """Whether the store's host has an address, under the name that requests will use."""
    if not isinstance(store, HasBucket):
        return fine(store.url)
    parts = urlsplit(store.endpoint_url)
    host = parts.hostname or ""
    if getproxies().get(parts.scheme) and not proxy_bypass(host):
        return fine(f"{store.url} by the proxy of the environment")
    for name in dict.fromkeys([host, _requested_host(settings, host)]):
        try:
            socket.getaddrinfo(name, parts.port or parts.scheme, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            what = f"{store.endpoint_url}: no address of {name}: {error}"
            if name == host:
                return problem(what, "correct store.s3.endpoint_url, or the name server's entry", _EXIT_CODE)
            return problem(what, "set store.s3.addressing_style: path", _EXIT_CODE)
    return fine(f"{store.url} at {store.endpoint_url}")


def _requested_host(settings: StoreSettings, host: str) -> str:
    """The host of requests to the bucket: with its name before it, unless addressed by path."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        bucket = urlsplit(settings.url).netloc
        is_by_path = settings.s3.addressing_style is AddressingStyle.PATH or not _is_dns_name(bucket)
        return host if is_by_path else f"{bucket}.{host}"
    return host


def _is_dns_name(bucket: str) -> bool:
    return bucket == bucket.lower() and not set("._:/") & set(bucket)


def bucket_rules(store: ObjectStore) -> Outcome:
    """What would delete or hide objects of the archive, or keep what was deleted."""
    if not isinstance(store, HasBucket):
        return not_checked("this store is no bucket")
    rules = store.bucket_rules()
    for rule in rules.lifecycle:
        named = f"the bucket's lifecycle rule {rule.name!r}"
        if rule.expires_days is not None:
            what = f"{named} deletes objects of the archive after {rule.expires_days} days"
            return problem(what, "take the archive's prefix out of that rule: what it deletes is lost", _EXIT_CODE)
        if later := sorted(_READS_LATER.intersection(rule.transitions)):
            what = f"{named} moves objects to {later[0]}, where they cannot be read"
            return warning(what, "verify, restore and compaction fail on them: move to a class with immediate reads")
    kept = all(rule.noncurrent_expires_days is None for rule in rules.lifecycle)
    if rules.versioning == "Enabled" and kept and "GetBucketLifecycleConfiguration" not in rules.unknown:
        return warning(
            "the bucket keeps versions, and no rule ends them: what gc deletes goes on costing",
            "add a lifecycle rule with NoncurrentVersionExpiration of some days",
        )
    aborts = any(rule.aborts_uploads_days is not None for rule in rules.lifecycle)
    told = [
        f"versions: {rules.versioning.lower() or 'none'}" if "GetBucketVersioning" not in rules.unknown else "",
        f"encryption: {rules.encryption or 'none by default'}" if "GetBucketEncryption" not in rules.unknown else "",
        "a rule aborts unfinished uploads" if aborts else "",
        f"not told (no right is needed): {', '.join(rules.unknown)}" if rules.unknown else "",
    ]
    return fine("; ".join(filter(None, told)))
