"""What a store can really do, found out by doing it. Vendors' promises and version tables are not believed.

A probe decides on definite answers only: an unknown outcome, or no answer, says nothing about what a store can do.

A known store lets every second create-only put succeed under one of its switches (versitygw --nometa). Up to its version
1.7.0, the same store refuses the second put if it comes after the first, but not always if both come at once. So both questions
are put to the store at hand.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Event
from typing import Final, Protocol, runtime_checkable

from sidecar.clock import Clock, SystemClock
from sidecar.errors import (
    ObjectDamaged,
    ObjectExists,
    OutcomeUnknown,
    SettingsError,
    SidecarError,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    StoreUnsafe,
    StoreUnsupported,
    TwoWriters,
)
from sidecar.event_log import EVENTS
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectStore, UploadSource
from sidecar.randomness import SystemRandomness
from sidecar.storage.leftovers import DENIED_ADVICE, LIFECYCLE_ADVICE, list_uploads
from sidecar.storage.race import Race
from sidecar.storage.source import BytesSource
from sidecar.storage.store_clock import PROBE_FOLDER, new_probe_folder
from sidecar.threads import begun

_BODY = b"tiered-sidecar capability probe"
_PART_BYTES = 5 * MIB
"""S3's smallest part."""
UPLOAD_BYTES: Final = _PART_BYTES + 1024
"""What a probe uploads within `store.bandwidth_bytes_per_s`: two parts. Its small puts do not wait."""
_CREATE_ONLY_ADVICE = "use a store that honours If-None-Match on PutObject"
_IN_ONE_STEP_ADVICE = "mount the file system and name the directory, or use an object store"
_CHECKSUM_ADVICE = "if the store computes wrong checksums of multipart uploads, set store.s3.checksum: none"
_DELETE_ADVICE = "without deletes gc frees nothing, and each start leaves its probe objects"
_DELETE_DENIED_ADVICE = f"allow s3:DeleteObject: {_DELETE_ADVICE}"
_UNLISTED = "abandoned uploads cost money and are not found:"
_TIMES_ADVICE = "gc deletes nothing on this store, because the age of an object is unknown"


@runtime_checkable
class UploadsInParts(Protocol):
    """A store whose objects may be made of parts of a given size."""

    def upload_in_parts(self, key: ObjectKey, source: UploadSource, part_bytes: int) -> int:
        """As `ObjectStore.upload`."""


@runtime_checkable
class MayShowUnfinished(Protocol):
    """A store that can tell whether it shows an object before all of its bytes are there."""

    def shows_unfinished(self, key: ObjectKey) -> bool:
        """Create an object, and list it in the middle."""


class ShownUnfinished(StoreUnsafe):
    """A store that shows an object while it is written: a writer that dies leaves a piece of it under its key."""


class StaleListing(StoreUnsafe):
    """A listing that does not show what was written before it: proof, however often it does."""


@dataclass(frozen=True, slots=True)
class Question:
    """`ask` returns a detail, or raises StoreError: StoreUnsafe if the answer is wrong. It may be asked again.

    `required`: without it no archive can be kept there. `tolerates`: errors that are a no, where nothing depends on a yes.
    `advice`: what to do about a no; `advice_if_denied`: where only a right is missing.
    """

    name: str
    ask: Callable[[], str]
    required: bool = True
    advice: str = ""
    tolerates: tuple[type[StoreError], ...] = ()
    advice_if_denied: str = ""


class StoreProbe:
    """Asks one store; `clear` at its end."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._randomness = SystemRandomness()
        self.folder = new_probe_folder(self._randomness)
        self._store = store
        self._clock = clock
        self._numbers = count(1)
        self._keys: list[ObjectKey] = []
        self._small = ObjectKey(f"{self.folder}/small")

    def clear(self) -> None:
        """Delete all objects of this probe and abort its uploads. Raises StoreError."""
        self._store.delete(self._keys)
        self._keys = []
        for upload in list_uploads(self._store, f"{self.folder}/").uploads:
            self._store.abort_upload(upload)

    def questions(self, *, single_writer: bool) -> tuple[Question, ...]:
        """All of them, in the order in which they must be asked."""
        is_shared, may_show = not single_writer, isinstance(self._store, MayShowUnfinished)
        optional = (StoreDenied, StoreUnsupported)
        unlisted, denied = f"{_UNLISTED} {LIFECYCLE_ADVICE}", f"{_UNLISTED} {DENIED_ADVICE}"
        return (
            Question("write", self.write),
            Question("create-only put", self.create_only, is_shared, _CREATE_ONLY_ADVICE),
            Question("create-only put under a race", self.race, is_shared, _CREATE_ONLY_ADVICE),
            *((Question("create in one step", self.in_one_step, True, _IN_ONE_STEP_ADVICE),) if may_show else ()),
            Question("read", self.read),
            Question("range read", self.read_range),
            Question("list after write", self.list_after_write),
            Question("modification times", self.times, required=False, advice=_TIMES_ADVICE),
            Question("multipart upload with checksum", self.multipart, advice=_CHECKSUM_ADVICE),
            Question("list unfinished uploads", self.unfinished, False, unlisted, optional, denied),
            Question("delete", self.delete, False, _DELETE_ADVICE, optional, _DELETE_DENIED_ADVICE),
        )

    def new_key(self, name: str) -> ObjectKey:
        """A fresh key: never put before, and no unknown outcome is about it."""
        key = ObjectKey(f"{self.folder}/{name}-{next(self._numbers)}")
        self._keys.append(key)
        return key

    def write(self) -> str:
        self._small = self.new_key("small")
        self._store.put_if_absent(self._small, _BODY)
        return f"{len(_BODY)} bytes"

    def create_only(self) -> str:
        with suppress(ObjectExists):
            self._store.put_if_absent(self._small, _BODY[::-1])
            raise TwoWriters(
                "a second put of the same key succeeded: commits of two writers would overwrite each other"
            )
        # Also after a put whose answer was lost: had it taken hold, these would be its bytes.
        if self._store.read(self._small) == _BODY[::-1]:
            raise TwoWriters("a second put of the same key was refused, and replaced the object all the same")
        return "the second put of a key was refused"

    def race(self) -> str:
        return f"exactly one put succeeded in each of {Race(self._store, self._clock, self.new_key).run()} races"

    def in_one_step(self) -> str:
        if isinstance(self._store, MayShowUnfinished) and self._store.shows_unfinished(self.new_key("unfinished")):
            raise ShownUnfinished(
                "an object shows while it is written: if a writer dies in the middle of a commit, nothing can read the partition"
            )
        return "an object shows when all of its bytes are there"

    def read(self) -> str:
        # Where the second put was let through, its bytes are there; the check above has said so.
        if self._store.read(self._small) not in {_BODY, _BODY[::-1]}:
            raise ObjectDamaged("the store returns other bytes than were written")
        return ""

    def read_range(self) -> str:
        found = self._store.read(self._small, 7, 9)
        if found not in {_BODY[7:16], _BODY[::-1][7:16]}:
            raise StoreUnsafe(f"bytes 7 to 15 came back as {found[:32]!r}")
        return ""

    def list_after_write(self) -> str:
        keys = [facts.key for facts in self._store.list(self._small)]
        if keys != [self._small]:
            raise StaleListing(f"one object was written, the listing shows {keys}")
        return ""

    def times(self) -> str:
        facts = next(iter(self._store.list(self._small)), None)
        if facts is None or facts.modified_ms is None:
            raise StoreUnsupported("the store gives its objects no modification times")
        return ""

    def multipart(self) -> str:
        key = self.new_key("large")
        sent = self._randomness.random_bytes(MIB) * (UPLOAD_BYTES // MIB) + bytes(UPLOAD_BYTES % MIB)
        try:
            return self._uploaded(key, sent)
        except ObjectDamaged as error:
            if not self._has_bytes(key, sent):
                raise
            raise StoreUnsafe(
                f"{error}. The bytes are right, so the store computes wrong checksums: set store.s3.checksum: none"
            ) from error

    def _uploaded(self, key: ObjectKey, sent: bytes) -> str:
        source = BytesSource(sent)
        if isinstance(self._store, UploadsInParts):
            crc32c = self._store.upload_in_parts(key, source, _PART_BYTES)
        else:
            crc32c = self._store.upload(key, source)
        facts = self._store.head(key)
        if facts is None or facts.size_bytes != len(sent):
            raise ObjectDamaged(f"{len(sent)} bytes were sent, the store has {facts and facts.size_bytes}")
        if facts.crc32c is not None and facts.crc32c != crc32c:
            raise ObjectDamaged(f"CRC-32C {crc32c:08x} was sent, the store reports {facts.crc32c:08x}")
        if b"".join(self._store.stream(key)) != sent:
            raise ObjectDamaged("the store returns other bytes than were uploaded")
        return f"the store {'keeps no' if facts.crc32c is None else 'keeps a'} checksum of the whole"

    def _has_bytes(self, key: ObjectKey, sent: bytes) -> bool:
        """By a range, which no checksum of the store covers."""
        try:
            return self._store.read(key, 0, len(sent)) == sent
        except StoreUnavailable:
            raise
        except StoreError:
            return False

    def unfinished(self) -> str:
        return f"{sum(1 for _ in self._store.unfinished_uploads(f'{self.folder}/'))} left"

    def delete(self) -> str:
        self._store.delete(self._keys)
        if self._store.head(self._small) is not None:
            raise StoreUnsafe("a deleted object is still there (a versioned or locked bucket: it will grow)")
        self._keys = []  # In a versioned bucket each delete leaves a marker, also of what is gone already.
        return ""


NOT_ANSWERED: Final = (StoreUnavailable, OutcomeUnknown)
"""Nothing is known after these; asking again later may help."""
_SAYS_NOTHING_OF_THE_QUESTION = (*NOT_ANSWERED, StoreDenied, StoreMissing, SettingsError)
_PROOF = (TwoWriters, ShownUnfinished, StaleListing, StoreUnsupported)
"""Definite when it comes once. Any other no may be a fault on the way: it is definite when it comes each time."""
_ATTEMPTS: Final = 4
_PAUSE_S_FIRST: Final = 0.2
_AGAIN_S_FIRST: Final = 1.0
_AGAIN_S_MAX: Final = 15.0
_SINGLE_WRITER_ADVICE = (
    "use another store, or set single_writer: true to promise that only one sidecar ever writes here"
)
_PROMISED_ADVICE = "single_writer: true is your promise: no second sidecar may ever write to this archive"


def probe_store(
    store: ObjectStore,
    *,
    single_writer: bool = False,
    clock: Clock | None = None,
    patience_s: float = 0.0,
    questions: int | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """Examine the store and refuse it if something required is missing. What else it lacks is logged, once, and returned.

    Args:
        patience_s: for so long a store that does not answer is asked again, after waits that grow.
        questions: only the first ones. Default: all.
        is_stopping: ends the patience.

    Raises StoreUnsafe naming what is missing; StoreDenied, StoreMissing, StoreUnavailable, OutcomeUnknown or SettingsError where
    nothing is known.
    """
    clock = clock or SystemClock()
    deadline_s, wait_s = clock.monotonic_s() + patience_s, _AGAIN_S_FIRST
    while True:
        try:
            found = _refused(store, clock, questions, single_writer=single_writer)
            break
        except NOT_ANSWERED as error:
            if is_stopping() or clock.monotonic_s() + wait_s > deadline_s:
                raise
            EVENTS.warning("waiting_for_store", error=str(error), next_try_s=wait_s)
        clock.sleep_s(wait_s)
        wait_s = min(2 * wait_s, _AGAIN_S_MAX)
    missing = [f"{question.name} ({finding})" for question, finding in found if question.required]
    if missing:
        raise StoreUnsafe(f"{store.url}: not fit for an archive: {'; '.join(missing)}")
    for question, finding in found:
        EVENTS.warning("store_function_missing", function=question.name, finding=finding)
    return {question.name: finding for question, finding in found}


@contextmanager
def probing_store(
    store: ObjectStore, *, single_writer: bool, clock: Clock, patience_s: float, stop: Event
) -> Iterator[Callable[[], object]]:
    """As `probe_store`, while the block runs. Before it, only whether the store takes an object: that shows wrong settings.

    Yields what waits for the end of the probe, and raises what `probe_store` raises. It is to be called before each commit, and
    before what another process uploaded is deleted. Leaving the block waits too, and raises that rather than a SidecarError of the
    block. An interrupt (KeyboardInterrupt, SystemExit) and a fault of the program leave it at once.

    Args:
        stop: set as soon as the probe has failed. Where it is set, a store that does not answer is not asked again.
    """
    probe = partial(
        probe_store, store, single_writer=single_writer, clock=clock, patience_s=patience_s, is_stopping=stop.is_set
    )

    probe(questions=1)
    found = begun("probe", probe)
    found.add_done_callback(lambda done: None if done.exception() is None else stop.set())
    try:
        yield found.result
    except SidecarError:
        found.result()
        raise
    found.result()


def _refused(
    store: ObjectStore, clock: Clock, questions: int | None, *, single_writer: bool
) -> list[tuple[Question, str]]:
    """Ask once: the questions that got a no, and what was found. Raises where nothing is known, as `probe_store`.

    The probe's objects are removed on every way out, where that is allowed.
    """
    found: list[tuple[Question, str]] = []
    probe = StoreProbe(store, clock)
    try:
        for question in probe.questions(single_writer=single_writer)[:questions]:
            try:
                ask(question, clock)
            except StoreError as error:
                if not is_answer(question, error):
                    # Each try has a folder of its own, and each time the words are the same: who counts errors knows them again.
                    raise type(error)(str(error).replace(probe.folder, PROBE_FOLDER)) from error
                found.append((question, "; ".join(filter(None, (str(error), advice_on(question, error))))))
    finally:
        # What stays now, `gc` and `run` remove a day later.
        with suppress(SidecarError):
            probe.clear()
    return found


def is_answer(question: Question, error: SidecarError) -> bool:
    """Whether the error is a definite no to this question."""
    return isinstance(error, question.tolerates) or not isinstance(error, _SAYS_NOTHING_OF_THE_QUESTION)


def advice_on(question: Question, error: SidecarError) -> str:
    """What to do about a no. Only two writers that both succeeded lead to advice on `single_writer`."""
    if isinstance(error, TwoWriters):
        return _SINGLE_WRITER_ADVICE if question.required else _PROMISED_ADVICE
    return question.advice_if_denied if isinstance(error, StoreDenied) else question.advice


def ask(question: Question, clock: Clock) -> str:
    """The answer to a question; an error only when it is proof, or came each time. Raises SidecarError.

    StoreUnavailable and errors of rights are raised at once: the store's own layer has repeated what it was worth.
    """
    for attempt in range(_ATTEMPTS - 1):
        try:
            return question.ask()
        except StoreError as error:
            may_pass = isinstance(error, OutcomeUnknown) or is_answer(question, error)
            if not may_pass or isinstance(error, (*_PROOF, *question.tolerates)):
                raise
        clock.sleep_s(_PAUSE_S_FIRST * 2**attempt)
    return question.ask()
