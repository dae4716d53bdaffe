"""Settings that are valid and may still not be meant: each rule says why."""

from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

from sidecar.config import Settings
from sidecar.doctor.findings import Check, Outcome, fine, problem, warning
from sidecar.errors import SettingsError
from sidecar.partition.wait_reason import Wait, render
from sidecar.store_settings import READ_LATER_CLASSES, ChecksumMode

_HOUR_MS = 3_600_000
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def _remarks(settings: Settings) -> Iterator[Check]:
    store, s3 = settings.store, settings.store.s3
    endpoint = urlsplit(s3.endpoint_url or "")
    rules = (
        (
            "store.single_writer",
            store.single_writer,
            "single_writer: true: nothing keeps a second sidecar from overwriting commits",
            "leave it out if the store has create-only puts; see the store's checks",
        ),
        (
            "store.s3.verify_tls",
            not s3.verify_tls,
            "verify_tls: false: everyone on the network path can read and change the archive",
            "set store.s3.ca_file to the store's certificate authority",
        ),
        (
            "store.s3.endpoint_url",
            endpoint.scheme == "http" and endpoint.hostname not in _LOOPBACK,
            "the connection to the store has no TLS",
            "use https:// unless the network is private",
        ),
        (
            "store.s3.checksum",
            s3.checksum is ChecksumMode.NONE,
            "checksum: none: damage in transit is found only when an object is read",
            "use crc32c if the store supports it, otherwise run verify --deep regularly",
        ),
        (
            "store.s3.storage_class",
            s3.storage_class in READ_LATER_CLASSES,
            "objects of this storage class cannot be read: no upload can be checked",
            "use a class with immediate reads, such as GLACIER_IR",
        ),
        (
            "gc.grace_period_ms",
            settings.gc.enabled and settings.gc.grace_period_ms < _HOUR_MS,
            "less than an hour: an object may be deleted while it is read",
            "set it above the longest read",
        ),
        (
            "run.record_lost",
            settings.run.record_lost,
            "record_lost: true: every gap is recorded as lost, also one that another replica could fill",
            "set it only while you pass a known gap",
        ),
    )
    for name, applies, detail, advice in rules:
        if applies:
            yield Check(name, partial(warning, detail, advice))


def _leadership(settings: Settings) -> Outcome:
    broker = settings.broker
    if not (broker.assume_leader or broker.connection.is_configured):
        return problem("nothing will be archived", render(Wait.LEADERSHIP_NOT_ON_DISK), SettingsError.exit_code)
    if broker.assume_leader:
        return fine(
            "assumed, no broker is queried: correct for a single broker, or where no other sidecar archives its replicas"
        )
    return fine("queried from the broker")


def settings_checks(settings: Settings) -> list[Check]:
    named = "all names known, all values within their limits"
    return [
        Check("valid", partial(fine, named)),
        Check("leadership", partial(_leadership, settings)),
        *_remarks(settings),
    ]
