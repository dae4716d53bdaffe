"""The archive's store: whether it can be reached, whether it can do what an archive needs, and what it does by itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.errors import ObjectDamaged, SidecarError, StoreDenied, StoreError
from sidecar.http.page.wording import REMEDIES
from sidecar.model import ObjectKey
from sidecar.pipeline.doctor.bucket import bucket_rules, endpoint
from sidecar.pipeline.doctor.findings import Check, Outcome, Verdict, fine, not_checked, problem, warning
from sidecar.ports import MIB, ObjectStore
from sidecar.storage import open_store
from sidecar.storage.probe import PROBE_FOLDER, Question, StoreProbe, UploadsInParts
from sidecar.store_settings import StoreSettings

LEFT_AFTER_MS = 10 * 60_000
"""A probe that is older than this is of a process that was killed: no check takes so long."""
_ATTEMPTS = 2
_SKEW_WARNING_S = 60
_SKEW_PROBLEM_S = 600
"""S3 refuses requests that are signed more than 15 minutes ahead or late."""
_SLOW_MS = 1_000
_PART_BYTES = 5 * MIB


@dataclass(slots=True)
class _BreaksOff:
    """An `UploadSource` that fails behind its first part."""

    size_bytes: int = 2 * _PART_BYTES

    def read_at(self, position: int, size_bytes: int) -> bytes:
        if position + size_bytes > _PART_BYTES:
            raise _BrokenOff
        return bytes(size_bytes)


class _BrokenOff(StoreError):
    """Raised on purpose, to have an upload aborted."""


@dataclass(slots=True)
class _Look:
    """The store under examination, and the folder of this probe in it. `store_now_ms`: the store's own time, once it is known."""

    settings: StoreSettings
    store: ObjectStore
    clock: Clock
    store_now_ms: int = 0
    folder: ObjectKey = field(default_factory=lambda: ObjectKey(f"{PROBE_FOLDER}/{secrets.token_hex(8)}"))

    def reach(self) -> Outcome:
        found = endpoint(self.settings, self.store)
        if found.verdict is not Verdict.OK:
            return found
        first = next(iter(self.store.list_folders("")), None)
        holds = "nothing is archived there yet" if first is None else "it may be listed"
        return fine(f"{found.detail}; {holds}")

    def leftovers(self) -> Outcome:
        """Of probes that were killed. Those of processes that run now are younger, and left alone."""
        # By the store's clock, which has stamped them: by a wrong one of ours another process might lose its probe.
        oldest_ms = self.store_now_ms - LEFT_AFTER_MS
        left = [one.key for one in self.store.list(f"{PROBE_FOLDER}/") if one.modified_ms < oldest_ms]
        uploads = []
        with suppress(StoreDenied):
            uploads = [up for up in self.store.unfinished_uploads(f"{PROBE_FOLDER}/") if up.started_ms < oldest_ms]
        try:
            if left:
                self.store.delete(left)
            for upload in uploads:
                self.store.abort_upload(upload)
        except StoreDenied as error:
            return warning(f"{len(left)} objects below {PROBE_FOLDER}/ are left: {error}", "remove them by hand")
        return fine(f"{len(left)} objects and {len(uploads)} unfinished uploads of earlier probes were removed")

    def asked(self, question: Question) -> Outcome:
        try:
            detail = question.ask()
        except question.tolerates as error:
            return warning(str(error), "gc, and clearing up after uploads that were given up, need this right")
        except StoreError as error:
            make = problem if question.required else _no_problem
            advice = question.advice or REMEDIES.get(type(error).__name__, "")
            return make(str(error), advice, error.exit_code)
        return fine(detail or "works")

    def abort(self) -> Outcome:
        if not isinstance(self.store, UploadsInParts):
            return not_checked("this kind of store has no multipart uploads")
        key = ObjectKey(f"{self.folder}/broken-off")
        with suppress(_BrokenOff):
            self.store.upload_in_parts(key, _BreaksOff(), _PART_BYTES)
        try:
            left = list(self.store.unfinished_uploads(f"{self.folder}/"))
        except StoreDenied as error:
            return warning(str(error), "allow s3:ListBucketMultipartUploads, so that unfinished uploads can be found")
        if left:
            return warning(
                "an upload that was given up is still there: its parts cost money and show in no listing",
                "allow s3:AbortMultipartUpload",
            )
        return fine("an upload that was given up leaves no parts")

    def times(self) -> Outcome:
        key = ObjectKey(f"{self.folder}/clock")
        before_ms = self.clock.now_ms()
        self.store.put_if_absent(key, b"clock")
        after_ms = self.clock.now_ms()
        facts = self.store.head(key)
        if facts is None:
            raise ObjectDamaged(f"{key} was written and is not there")
        self.store_now_ms = facts.modified_ms
        # Stores tell whole seconds.
        skew_s = max(before_ms - facts.modified_ms - 999, facts.modified_ms - after_ms, 0) / 1000
        ahead = "behind" if facts.modified_ms < before_ms else "ahead of"
        detail = f"the store's clock is {skew_s:.0f} s {ahead} ours"
        if skew_s >= _SKEW_PROBLEM_S:
            return problem(detail, "set this machine's clock, or the store's", StoreError.exit_code)
        if skew_s >= _SKEW_WARNING_S:
            return warning(detail, "set this machine's clock: beyond 15 minutes an S3 store refuses every request")
        return fine(detail if skew_s >= 1 else "the store's clock agrees with ours")

    def latency(self) -> Outcome:
        key = ObjectKey(f"{self.folder}/latency")
        put_ms = self._duration_ms(lambda: self.store.put_if_absent(key, b"latency"))
        read_ms = self._duration_ms(lambda: self.store.read(key))
        detail = f"put {put_ms} ms, read {read_ms} ms"
        if max(put_ms, read_ms) > _SLOW_MS:
            return warning(
                detail, "each segment takes some eight requests: use a nearer store, or raise run.uploads_ahead"
            )
        return fine(detail)

    def _duration_ms(self, call: Callable[[], object]) -> int:
        begun_s = self.clock.monotonic_s()
        call()
        return round((self.clock.monotonic_s() - begun_s) * 1000)

    def cleared(self) -> Outcome:
        """Whatever the checks left in the folder of this probe goes."""
        try:
            self.store.delete([facts.key for facts in self.store.list(f"{self.folder}/")])
            left = [facts.key for facts in self.store.list(f"{self.folder}/")]
        except SidecarError as error:
            return warning(f"objects below {self.folder}/ are left: {error}", "remove them by hand")
        if left:
            return warning(f"{len(left)} objects below {self.folder}/ are left", "remove them by hand")
        return fine("the probe left nothing behind")


def _no_problem(detail: str, advice: str, _exit_code: int) -> Outcome:
    return warning(detail, advice)


def impatient(settings: StoreSettings, timeout_s: float) -> StoreSettings:
    """The same store, asked with less patience than uploads have: a check must not outlast its time."""
    retry = settings.retry.model_copy(update={"attempts": min(settings.retry.attempts, _ATTEMPTS), "wait_s_max": 1.0})
    limits = {
        "connect_timeout_s": min(settings.s3.connect_timeout_s, timeout_s / (2 * _ATTEMPTS)),
        "read_timeout_s": min(settings.s3.read_timeout_s, timeout_s / (2 * _ATTEMPTS)),
    }
    s3 = settings.s3.model_copy(update=limits)
    return settings.model_copy(update={"retry": retry, "s3": s3, "bandwidth_bytes_per_s": None})


def store_checks(settings: Settings, clock: Clock, timeout_s: float) -> list[Check]:
    """What can be asked of the store of these settings."""
    hurried = impatient(settings.store, timeout_s)
    try:
        store = open_store(hurried, clock)
    except SidecarError as error:
        found = problem(str(error), exit_code=error.exit_code)
        return [Check("reachable", lambda: found)]
    look = _Look(hurried, store, clock)
    questions = StoreProbe(store, look.folder).questions(single_writer=settings.store.single_writer)
    return [
        Check("reachable", look.reach),
        *(Check(one.name, partial(look.asked, one), _needs(one)) for one in questions),
        Check("abort of a multipart upload", look.abort, ("write",)),
        Check("clock", look.times, ("write",)),
        Check("leftovers of probes", look.leftovers, ("clock",)),
        Check("latency", look.latency, ("write",)),
        Check("cleared up", look.cleared, ("write",)),
        Check("rules of the bucket", lambda: bucket_rules(store), ("reachable",)),
    ]


def _needs(question: Question) -> tuple[str, ...]:
    return ("reachable",) if question.name == "write" else ("write",)
