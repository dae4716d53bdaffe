"""The archive's store: whether it can be reached, whether it can do what an archive needs, and what it does by itself."""

import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.doctor.findings import Check, Outcome, Verdict, fine, not_checked, problem, warning
from sidecar.errors import SidecarError, StoreDenied, StoreError, StoreUnsupported
from sidecar.http.page.wording import REMEDIES
from sidecar.plurals import plural
from sidecar.ports import MIB, ObjectStore
from sidecar.storage.directory_store import DirectoryStore
from sidecar.storage.leftovers import list_uploads, remove_leftovers
from sidecar.storage.opening import open_store
from sidecar.storage.probe import NOT_ANSWERED, Question, StoreProbe, UploadsInParts, advice_on, ask, is_answer
from sidecar.storage.s3.store import S3Store
from sidecar.storage.store_clock import PROBE_FOLDER, read_store_clock
from sidecar.store_settings import READ_LATER_CLASSES, AddressingStyle, StoreSettings

_EXIT_CODE = StoreError.exit_code
LEFT_AFTER_MS = 10 * 60_000
"""A probe that is older than this is of a process that was killed: no check takes so long."""
_ATTEMPTS = 2
_DIFFERENCE_PROBLEM_MS = 600_000
"""S3 refuses requests that are signed more than 15 minutes ahead or late."""
_SLOW_MS = 1_000
_LEFT_ADVICE = "gc deletes them after a day, if it has the permission"
_PART_BYTES = 5 * MIB


def endpoint(settings: StoreSettings, store: ObjectStore) -> Outcome:
    """Whether the store's host has an address, under the name that requests will use."""
    if not isinstance(store, S3Store):
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
        is_dns_name = bucket == bucket.lower() and not set("._:/") & set(bucket)
        is_by_path = settings.s3.addressing_style is AddressingStyle.PATH or not is_dns_name
        return host if is_by_path else f"{bucket}.{host}"
    return host


def bucket_rules(store: ObjectStore) -> Outcome:
    """What would delete or hide objects of the archive, or keep what was deleted."""
    if not isinstance(store, S3Store):
        return not_checked("this store is not a bucket")
    rules = store.bucket_rules()
    for rule in rules.lifecycle:
        named = f"the bucket's lifecycle rule {rule.name!r}"
        if rule.expires_days is not None:
            what = f"{named} deletes objects of the archive after {plural(rule.expires_days, 'day')}"
            return problem(
                what, "exclude the archive's prefix from that rule: the objects that it deletes are lost", _EXIT_CODE
            )
        if later := sorted(READ_LATER_CLASSES.intersection(rule.transitions)):
            what = f"{named} moves objects to {later[0]}, where they cannot be read"
            return warning(what, "verify, restore and compaction fail on them: move to a class with immediate reads")
    kept = all(rule.noncurrent_expires_days is None for rule in rules.lifecycle)
    if rules.versioning == "Enabled" and kept and "GetBucketLifecycleConfiguration" not in rules.unknown:
        return warning(
            "the bucket keeps old versions, and no rule expires them: what gc deletes still costs money",
            "add a lifecycle rule with NoncurrentVersionExpiration of a few days",
        )
    aborts = any(rule.aborts_uploads_days is not None for rule in rules.lifecycle)
    reported = [
        f"versions: {rules.versioning.lower() or 'none'}" if "GetBucketVersioning" not in rules.unknown else "",
        f"encryption: {rules.encryption or 'none by default'}" if "GetBucketEncryption" not in rules.unknown else "",
        "a rule aborts unfinished uploads" if aborts else "",
        f"not readable (none of them is required): {', '.join(rules.unknown)}" if rules.unknown else "",
    ]
    return fine("; ".join(filter(None, reported)))


@dataclass(slots=True)
class _BreaksOff:
    """An `UploadSource` that fails behind its first part."""

    size_bytes: int = 2 * _PART_BYTES
    name: str = "a test object"

    def read_at(self, position: int, size_bytes: int) -> bytes:
        if position + size_bytes > _PART_BYTES:
            raise _BrokenOff
        return bytes(size_bytes)


class _BrokenOff(StoreError):
    """Raised on purpose, to have an upload aborted."""


@dataclass(slots=True)
class _Look:
    """The store under examination. `store_now_ms`: by the store's clock; 0, with which nothing is old, until it is known.

    `unanswered`: the questions that the store did not answer, and what came instead. `made`: directories that a probe creates.
    """

    settings: StoreSettings
    store: ObjectStore
    clock: Clock
    store_now_ms: int = 0
    unanswered: dict[str, SidecarError] = field(default_factory=dict)
    probe: StoreProbe = field(init=False)
    made: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        self.probe = StoreProbe(self.store, self.clock)
        if isinstance(self.store, DirectoryStore):
            root = self.store.root
            self.made = tuple(takewhile(lambda path: not path.exists(), (root, *root.parents)))

    def reach(self) -> Outcome:
        found = endpoint(self.settings, self.store)
        if found.verdict is not Verdict.OK:
            return found
        first = next(iter(self.store.list_folders("")), None)
        holds = "no archive there yet" if first is None else "listing works"
        return fine(f"{found.detail}; {holds}")

    def leftovers(self) -> Outcome:
        """Of probes that were killed. Those of processes that run now are younger, and left alone."""
        try:
            left = remove_leftovers(self.store, self.store_now_ms - LEFT_AFTER_MS)
        except StoreDenied as error:
            return warning(f"objects below {PROBE_FOLDER}/ remain: {error}", "remove them by hand")
        return fine(f"objects and unfinished uploads of earlier probes removed: {left}")

    def asked(self, question: Question) -> Outcome:
        try:
            return fine(ask(question, self.clock) or "works")
        except NOT_ANSWERED:
            raise
        except StoreError as error:
            advice = advice_on(question, error) if is_answer(question, error) else ""
            if not question.required and is_answer(question, error):
                return warning(str(error), advice)
            has_no_keys = isinstance(self.store, DirectoryStore) and isinstance(error, StoreDenied)
            remedy = "" if has_no_keys else REMEDIES.get(type(error).__name__, "")
            return problem(str(error), advice or remedy, error.exit_code)

    def check(self, name: str, ask: Callable[[], Outcome], *needs: str) -> Check:
        """A check that is not checked, and counts as unanswered, where the store gives no answer."""

        def asked() -> Outcome:
            try:
                return ask()
            except NOT_ANSWERED as error:
                # Throttling, or an unknown outcome, says nothing about the functions of the store.
                self.unanswered[name] = error
                return not_checked(f"the store gave no answer: {error}")

        return Check(name, asked, needs)

    def answers(self) -> Outcome:
        """Whether every test had a response: what is unknown must not pass for right."""
        if not self.unanswered:
            return fine("every test had a response")
        names = ", ".join(f"'{name}'" for name in self.unanswered)
        last = list(self.unanswered.values())[-1]
        advice = "these were not tested: run doctor again when the store responds"
        return problem(f"no response to {names}: {last}", advice, last.exit_code)

    def abort(self) -> Outcome:
        if not isinstance(self.store, UploadsInParts):
            return not_checked("this kind of store has no multipart uploads")
        key = self.probe.new_key("broken-off")
        with suppress(_BrokenOff):
            self.store.upload_in_parts(key, _BreaksOff(), _PART_BYTES)
        folder = f"{self.probe.folder}/"
        listed = list_uploads(self.store, folder)
        if listed.not_listed:
            return not_checked(f"uploads are not listed: {listed.not_listed}", listed.advice)
        # `upload_in_parts` aborts, and hides why an abort failed: throttling, or a missing right.
        with suppress(StoreDenied):
            for upload in listed.uploads:
                self.store.abort_upload(upload)
        if list_uploads(self.store, folder).uploads:
            return warning(
                "an abandoned upload still exists: its parts cost money and appear in no listing",
                "allow s3:AbortMultipartUpload",
            )
        return fine("an abandoned upload leaves no parts")

    def times(self) -> Outcome:
        try:
            reading = read_store_clock(self.store, self.clock, self.probe.new_key("clock"))
        except StoreUnsupported as error:
            return warning(
                str(error), "gc deletes nothing here: delete by hand the objects that `verify` lists as orphaned"
            )
        self.store_now_ms = reading.store_ms
        if abs(reading.ahead_ms) >= _DIFFERENCE_PROBLEM_MS:
            return problem(str(reading), "correct this machine's clock, or the store's", StoreError.exit_code)
        if reading.differs:
            advice = "synchronise this machine's clock (NTP): beyond 15 minutes an S3 store refuses every request"
            return warning(str(reading), advice)
        return fine(str(reading))

    def latency(self) -> Outcome:
        key = self.probe.new_key("latency")
        put_ms = self._duration_ms(lambda: self.store.put_if_absent(key, b"latency"))
        read_ms = self._duration_ms(lambda: self.store.read(key))
        detail = f"put {put_ms} ms, read {read_ms} ms"
        if max(put_ms, read_ms) > _SLOW_MS:
            return warning(
                detail, "each segment needs about nine requests: use a closer store, or raise run.uploads_ahead"
            )
        return fine(detail)

    def _duration_ms(self, call: Callable[[], object]) -> int:
        begun_s = self.clock.monotonic_s()
        call()
        return round((self.clock.monotonic_s() - begun_s) * 1000)

    def cleared(self) -> Outcome:
        """Whatever the checks left in the folder of this probe is deleted."""
        folder = f"{self.probe.folder}/"
        try:
            self.probe.clear()
            left = [facts.key for facts in self.store.list(folder)]
            self.store.delete(left)
            left = [facts.key for facts in self.store.list(folder)]
        except SidecarError as error:
            return warning(f"objects below {folder} remain: {error}", _LEFT_ADVICE)
        if left:
            return warning(f"objects that remain below {folder}: {len(left)}", _LEFT_ADVICE)
        with suppress(OSError):  # Another process has begun an archive there, or uses the directory.
            for directory in self.made:
                directory.rmdir()
        return fine("the probe removed all its objects")


def impatient(settings: StoreSettings, timeout_s: float) -> StoreSettings:
    """The same store, asked with less patience than uploads have: a check must not outlast its time."""
    retry = settings.retry.model_copy(update={"attempts": min(settings.retry.attempts, _ATTEMPTS), "wait_s_max": 1.0})
    limits = {
        "connect_timeout_s": min(settings.s3.connect_timeout_s, timeout_s / (2 * _ATTEMPTS)),
        "read_timeout_s": min(settings.s3.read_timeout_s, timeout_s / (2 * _ATTEMPTS)),
    }
    s3 = settings.s3.model_copy(update=limits)
    return settings.model_copy(
        update={"retry": retry, "s3": s3, "bandwidth_bytes_per_s": None, "read_bytes_per_s": None}
    )


def store_checks(settings: Settings, clock: Clock, timeout_s: float) -> list[Check]:
    hurried = impatient(settings.store, timeout_s)
    try:
        store = open_store(hurried, clock)
    except SidecarError as error:
        found = problem(str(error), exit_code=error.exit_code)
        return [Check("reachable", lambda: found)]
    look = _Look(hurried, store, clock)
    questions = look.probe.questions(single_writer=settings.store.single_writer)
    return [
        Check("reachable", look.reach),
        *(
            look.check(one.name, partial(look.asked, one), "reachable" if one.name == "write" else "write")
            for one in questions
        ),
        look.check("abort of a multipart upload", look.abort, "write"),
        look.check("clock", look.times, "write"),
        look.check("leftovers of probes", look.leftovers, "clock"),
        look.check("latency", look.latency, "write"),
        Check("cleared up", look.cleared, ("reachable",)),
        look.check("rules of the bucket", lambda: bucket_rules(store), "reachable"),
        Check("every test responded", look.answers, ("reachable",)),
    ]
