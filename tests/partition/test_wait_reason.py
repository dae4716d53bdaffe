"""Every reason to wait has words of its own, and moving figures make no other reason."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from sidecar.errors import BrokerTrouble
from sidecar.partition import wait_reason
from sidecar.partition.wait_reason import Because, Wait, WaitReason, render

KINDS = [
    kind
    for kind in vars(wait_reason).values()
    if isinstance(kind, type) and issubclass(kind, Because) and kind is not Because
]
VALUES = {int: 4711, str: "some words", int | None: 4711, bool: True, BrokerTrouble: BrokerTrouble.NO_ANSWER}


def made(kind: type) -> WaitReason:
    """A reason of this kind, with a value in every field."""
    return kind(**{field.name: VALUES[field.type] for field in fields(kind)})  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_reason_is_plain_text_with_its_parameters(kind: type) -> None:
    text = render(made(kind))
    assert text
    assert text == text.strip()
    assert "\n" not in text
    assert not re.search(r"[<>{}]|None|\(\w+=", text)
    numbers = [field for field in fields(kind) if field.type in (int, int | None)]
    if numbers and not any(field.name.endswith("_ms") for field in numbers):
        assert "4711" in text
    if any(field.type is str for field in fields(kind)):
        assert "some words" in text


def test_no_two_reasons_have_the_same_words() -> None:
    texts = [*map(render, Wait), *(render(made(kind)) for kind in KINDS if kind.__name__ != "WrongCluster")]
    assert len(set(texts)) == len(texts)
    assert all(texts)


def test_nothing_that_waits_has_no_words() -> None:
    assert render(None) == ""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_only_moving_figures_leave_a_reason_the_same(kind: type) -> None:
    reason = made(kind)
    for field in fields(kind):
        others = {int: 4712, str: "other words", int | None: None, bool: False}
        other = {**others, BrokerTrouble: BrokerTrouble.OTHER}[field.type]
        assert (replace(reason, **{field.name: other}) == reason) == (not field.compare)
