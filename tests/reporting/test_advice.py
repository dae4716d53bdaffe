"""Advice on a damaged file is given once: by its kind, where the error itself has none."""

from __future__ import annotations

import pickle

import pytest

from sidecar.errors import CorruptFile, PartitionError, SidecarError
from sidecar.reporting.advice import advised, finding

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
