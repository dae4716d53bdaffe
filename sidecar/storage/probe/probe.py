"""What a store can really do, found out by doing it. Vendors' promises and version tables are not believed.

A probe decides on definite answers only. An unknown outcome, or no answer, says nothing about what a store can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from sidecar.clock import Clock, SystemClock
from sidecar.errors import (
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
from sidecar.ports import ObjectStore
from sidecar.storage.probe.folder import PROBE_FOLDER
from sidecar.storage.probe.questions import Question, ShownUnfinished, StaleListing, StoreProbe

NOT_ANSWERED: Final = (StoreUnavailable, OutcomeUnknown)
"""Nothing is known after these; asking again later may help."""
_SAYS_NOTHING_OF_THE_QUESTION = (*NOT_ANSWERED, StoreDenied, StoreMissing, SettingsError)
_PROOF = (TwoWriters, ShownUnfinished, StaleListing, StoreUnsupported)
"""Definite when it comes once. Any other no may be a fault on the way: it is definite when it comes each time."""
_ATTEMPTS: Final = 4
_PAUSE_S_FIRST: Final = 0.2
_AGAIN_S_FIRST: Final = 1.0
_AGAIN_S_MAX: Final = 15.0
_SINGLE_WRITER_ADVICE = "use another store, or promise by single_writer: true that only one sidecar ever writes here"
_PROMISED_ADVICE = "keep the promise of single_writer: true: no second sidecar may ever write to this archive"

_log = structlog.get_logger(__name__)


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


def probe_store(
    store: ObjectStore, *, single_writer: bool = False, clock: Clock | None = None, patience_s: float = 0.0
) -> ProbeReport:
    """Examine the store and refuse it if something required is missing. What else it lacks is logged, once.

    Args:
        patience_s: for so long a store that does not answer is asked again, after waits that grow.

    Raises StoreUnsafe naming what is missing; StoreDenied, StoreMissing, StoreUnavailable, OutcomeUnknown or SettingsError where
    nothing is known.
    """
    clock = clock or SystemClock()
    report = _examined(store, clock, single_writer=single_writer, patience_s=patience_s)
    missing = [f"{check.name} ({check.detail})" for check in report.checks if check.required and not check.passed]
    if missing:
        raise StoreUnsafe(f"{store.url}: not fit for an archive: {'; '.join(missing)}")
    for check in report.checks:
        if not check.passed:
            _log.warning("store_lacks", function=check.name, finding=check.detail)
    return report


def _examined(store: ObjectStore, clock: Clock, *, single_writer: bool, patience_s: float) -> ProbeReport:
    deadline_s, wait_s = clock.monotonic_s() + patience_s, _AGAIN_S_FIRST
    while True:
        try:
            return examine_store(store, clock, single_writer=single_writer)
        except NOT_ANSWERED as error:
            if clock.monotonic_s() + wait_s > deadline_s:
                raise
            _log.warning("waiting_for_store", error=str(error), next_try_s=wait_s)
        clock.sleep_s(wait_s)
        wait_s = min(2 * wait_s, _AGAIN_S_MAX)


def examine_store(store: ObjectStore, clock: Clock, *, single_writer: bool = False) -> ProbeReport:
    """Ask everything once and report; the probe's objects are removed on every way out, where that is allowed.

    Raises StoreDenied, StoreMissing, StoreUnavailable, OutcomeUnknown or SettingsError: then nothing is known.
    """
    with StoreProbe(store, clock) as probe:
        try:
            questions = probe.questions(single_writer=single_writer)
            return ProbeReport(store.url, tuple(_check(question, clock) for question in questions))
        except StoreError as error:
            # Each try has a folder of its own, and each time the words are the same: who counts errors knows them again.
            raise type(error)(str(error).replace(probe.folder, PROBE_FOLDER)) from error


def _check(question: Question, clock: Clock) -> ProbeCheck:
    """One check. What is neither a yes nor a no is raised on, except what the question tolerates."""
    name, required = question.name, question.required
    try:
        return ProbeCheck(name, passed=True, required=required, detail=ask(question, clock))
    except StoreError as error:
        if not is_answer(question, error):
            raise
        advice = advice_on(question, error)
        return ProbeCheck(name, passed=False, required=required, detail=f"{error}; {advice}" if advice else str(error))


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
