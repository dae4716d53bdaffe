"""What a store can really do, found out by doing it. Vendors' promises and version tables are not believed.

A known store lets every second create-only put succeed under one of its switches (versitygw --nometa); the same store up to
its version 1.7.0 refuses the second put if it comes after the first, but not always if both come at once. So both questions are
put to the store at hand.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sidecar.errors import (
    ObjectDamaged,
    ObjectExists,
    SettingsError,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    StoreUnsafe,
)
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectStore, UploadReceipt, UploadSource
from sidecar.storage.probe_race import WRITERS, Race
from sidecar.storage.source import BytesSource

PROBE_FOLDER = "_probe"
"""Top-level folder of probe objects; no cluster id is this short."""
_BODY = b"tiered-sidecar capability probe"
_MULTIPART_BYTES = 5 * MIB + 1024
"""S3's smallest part and a little: two parts."""


@runtime_checkable
class UploadsInParts(Protocol):
    """A store whose objects may be made of parts of a given size."""

    def upload_in_parts(self, key: ObjectKey, source: UploadSource, part_bytes: int) -> UploadReceipt:
        """As `ObjectStore.upload`."""
        ...


@dataclass(frozen=True, slots=True)
class ProbeCheck:
    """One question to the store. `required`: without it no archive can be kept there."""

    name: str
    passed: bool
    required: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All answers, in the order of asking."""

    url: str
    checks: tuple[ProbeCheck, ...]

    @property
    def safe(self) -> bool:
        """Whether nothing required is missing."""
        return all(check.passed for check in self.checks if check.required)


def probe_store(store: ObjectStore, *, single_writer: bool = False) -> ProbeReport:
    """Examine the store and refuse it if something required is missing.

    Raises StoreUnsafe naming what is missing; StoreDenied, StoreUnavailable or SettingsError where it cannot be examined.
    """
    report = examine_store(store, single_writer=single_writer)
    missing = [f"{check.name} ({check.detail})" for check in report.checks if check.required and not check.passed]
    if missing:
        raise StoreUnsafe(f"{store.url}: not fit for an archive: {'; '.join(missing)}")
    return report


def examine_store(store: ObjectStore, *, single_writer: bool = False) -> ProbeReport:
    """Ask everything and report; the probe's objects are removed again where that is allowed.

    Raises StoreDenied, StoreUnavailable or SettingsError: then nothing is known.
    """
    folder = ObjectKey(f"{PROBE_FOLDER}/{secrets.token_hex(8)}")
    questions = StoreProbe(store, folder).questions(single_writer=single_writer)
    try:
        return ProbeReport(store.url, tuple(map(_answered, questions)))
    except StoreError as error:
        # Each try has a folder of its own, and each time the words are the same: who counts errors knows them again.
        raise type(error)(str(error).replace(folder, PROBE_FOLDER)) from error


def _answered(question: Question) -> ProbeCheck:
    """One check. What is neither a yes nor a no is raised on, except what the question tolerates."""
    name, required = question.name, question.required
    try:
        return ProbeCheck(name, passed=True, required=required, detail=question.ask())
    except question.tolerates as error:
        return ProbeCheck(name, passed=False, required=required, detail=str(error))
    except (StoreUnavailable, StoreDenied, StoreMissing, SettingsError):
        raise
    except StoreError as error:
        detail = f"{error}; {question.advice}" if question.advice else str(error)
        return ProbeCheck(name, passed=False, required=required, detail=detail)


_SINGLE_WRITER_ADVICE = "use another store, or promise by single_writer: true that only one sidecar ever writes here"


@dataclass(frozen=True, slots=True)
class Question:
    """`ask` returns a detail, or raises StoreError: StoreUnsafe if the answer is wrong.

    `required`: without it no archive can be kept there. `tolerates`: errors that are a no, where nothing depends on a yes.
    """

    name: str
    ask: Callable[[], str]
    required: bool = True
    advice: str = ""
    tolerates: tuple[type[StoreError], ...] = ()


class StoreProbe:
    """The questions, asked by objects in a folder of their own, which the last one removes."""

    def __init__(self, store: ObjectStore, folder: ObjectKey) -> None:
        self._store = store
        self._folder = folder
        self._small = ObjectKey(f"{folder}/small")
        self._large = ObjectKey(f"{folder}/large")
        self._raced: list[ObjectKey] = []

    def questions(self, *, single_writer: bool) -> tuple[Question, ...]:
        """All of them, in the order in which they must be asked."""
        is_shared = not single_writer
        return (
            Question("write", self.write),
            Question("create-only put", self.create_only, is_shared, _SINGLE_WRITER_ADVICE),
            Question("create-only put under a race", self.race, is_shared, _SINGLE_WRITER_ADVICE),
            Question("read", self.read),
            Question("range read", self.read_range),
            Question("list after write", self.list_after_write),
            Question("multipart upload with checksum", self.multipart),
            Question("list unfinished uploads", self.unfinished, required=False, tolerates=(StoreDenied,)),
            Question("delete", self.delete, required=False, tolerates=(StoreDenied,)),
        )

    def write(self) -> str:
        self._store.put_if_absent(self._small, _BODY)
        return f"{len(_BODY)} bytes"

    def create_only(self) -> str:
        try:
            self._store.put_if_absent(self._small, _BODY[::-1])
        except ObjectExists:
            return "the second put of a key was refused"
        raise StoreUnsafe("a second put of the same key succeeded: commits of two writers would overwrite each other")

    def race(self) -> str:
        with ThreadPoolExecutor(WRITERS) as pool:
            for number, turn in enumerate(Race(self._store, pool).turns(), 1):
                key = ObjectKey(f"{self._folder}/race-{number}")
                self._raced.append(key)
                winners = turn(key)
                if winners > 1:
                    raise StoreUnsafe(f"of {WRITERS} puts of the same key at once {winners} succeeded (turn {number})")
        return f"one winner in each of {len(self._raced)} turns"

    def read(self) -> str:
        # Where the second put was let through, it is the second body that is there; the check above has said so.
        if self._store.read(self._small) not in {_BODY, _BODY[::-1]}:
            raise ObjectDamaged("other bytes came back than were written")
        return ""

    def read_range(self) -> str:
        found = self._store.read(self._small, 7, 9)
        if found not in {_BODY[7:16], _BODY[::-1][7:16]}:
            raise StoreUnsafe(f"bytes 7 to 15 came back as {found[:32]!r}")
        return ""

    def list_after_write(self) -> str:
        keys = [facts.key for facts in self._store.list(f"{self._folder}/small")]
        if keys != [self._small]:
            raise StoreUnsafe(f"one object was written, the listing shows {keys}")
        return ""

    def multipart(self) -> str:
        source = BytesSource(secrets.token_bytes(MIB) * (_MULTIPART_BYTES // MIB) + bytes(_MULTIPART_BYTES % MIB))
        receipt = self._upload(source)
        facts = self._store.head(self._large)
        if facts is None or facts.size_bytes != source.size_bytes:
            raise ObjectDamaged(f"{source.size_bytes} bytes were uploaded, the store has {facts}")
        if facts.crc32c not in {None, receipt.crc32c}:
            raise ObjectDamaged(f"CRC-32C {receipt.crc32c} was sent, the store reports {facts.crc32c}")
        if b"".join(self._store.stream(self._large)) != source.read_at(0, source.size_bytes):
            raise ObjectDamaged("other bytes came back than were uploaded")
        return f"{receipt.requests} requests; the store {'keeps no' if facts.crc32c is None else 'keeps a'} checksum of the whole"

    def _upload(self, source: BytesSource) -> UploadReceipt:
        if isinstance(self._store, UploadsInParts):
            return self._store.upload_in_parts(self._large, source, 5 * MIB)
        return self._store.upload(self._large, source)

    def unfinished(self) -> str:
        return f"{sum(1 for _ in self._store.unfinished_uploads(f'{self._folder}/'))} left"

    def delete(self) -> str:
        self._store.delete([self._small, self._large, *self._raced])
        if self._store.head(self._small) is not None:
            raise StoreUnsafe("a deleted object is still there (a versioned or locked bucket: it will grow)")
        return ""
