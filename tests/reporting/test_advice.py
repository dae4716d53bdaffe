"""Advice on a damaged file is given once: by its kind, where the error itself has none."""

from __future__ import annotations

import errno
import os
import pickle

import pytest

from sidecar.archive.keys import parse_root
from sidecar.archive.state import empty_state
from sidecar.commits.commit_log import CommitConflict
from sidecar.errors import (
    BrokerTrouble,
    BrokerUnavailable,
    CompactionCutOff,
    CorruptFile,
    CoverageHole,
    PartitionError,
    SidecarError,
    StoreUnavailable,
)
from sidecar.reporting.advice import advised, finding
from tests.commits.commit_logs import ROOT

KEY = "orders/0/x/commits/00000000000000000003.json"
BY_KIND = "restore the object from a replica of the bucket or an earlier version; then the partition continues"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (CorruptFile("ends early", file=KEY), f"{KEY}: ends early; {BY_KIND}"),
        (CorruptFile("a replica is named", file=KEY), f"{KEY}: a replica is named; {BY_KIND}"),
        (CorruptFile("ends early", file=KEY, advice="delete it"), f"{KEY}: ends early; delete it"),
        (CorruptFile("ends early", advice="delete it").within(KEY), f"{KEY}: ends early; delete it"),
        (CorruptFile("ends early"), "ends early"),
        (PartitionError("is gone"), "is gone"),
    ],
)
def test_advice_is_given_once(error: SidecarError, text: str) -> None:
    assert advised(error) == text
    assert advised(pickle.loads(pickle.dumps(error))) == text  # noqa: S301
    if isinstance(error, CorruptFile) and error.file:
        assert finding(error) == text.removeprefix(f"{KEY}: ")


@pytest.mark.parametrize(
    ("number", "form", "ends"),
    [
        (
            errno.EACCES,
            "x: cannot be read: {}",
            "; run as the file's owner (for a broker's files: the broker's user), or give",
        ),
        (errno.EIO, "x: cannot be read ({})", "; check the disk and the system log"),
        (errno.EACCES, "x: cannot be read: {}; run as root", ""),
        (errno.EDOM, "x: cannot be read: {}", ""),
    ],
)
def test_the_systems_own_words_are_followed_by_what_to_do(number: int, form: str, ends: str) -> None:
    cause = OSError(number, os.strerror(number))
    error = PartitionError(form.format(cause.strerror))
    error.__cause__ = cause
    added = advised(error).removeprefix(str(error))
    assert added.startswith(ends)
    assert bool(added) == bool(ends)
    assert advised(pickle.loads(pickle.dumps(error))) == advised(error)  # noqa: S301


@pytest.mark.parametrize(
    "error",
    [
        CompactionCutOff(),
        CommitConflict("another writer was faster", empty_state(parse_root(ROOT))),
        BrokerUnavailable("refused", BrokerTrouble.IDENTITY_REFUSED),
        CoverageHole("a gap", hole=(3, 5)),
        StoreUnavailable("throttled").after(3),
        CorruptFile("ends early", file=KEY, position=7, offset=8, advice="delete it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_go_through_pickle_whole(error: SidecarError) -> None:
    found = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(found), str(found)) == (type(error), str(error))
    assert vars(found) == {**vars(error), "_system_call": None}
