"""Counts in texts for people."""

from __future__ import annotations

import pytest

from sidecar.http.page.wording import plural as of_page
from sidecar.plurals import plural


@pytest.mark.parametrize(("count", "text"), [(0, "0 gaps"), (1, "1 gap"), (2, "2 gaps"), (1_000, "1000 gaps")])
def test_one_is_no_plural(count: int, text: str) -> None:
    assert plural(count, "gap") == text
    assert of_page(count, "gap") == text.replace("1000", "1,000")


def test_a_verb_agrees_with_its_count() -> None:
    assert [plural(count, "key is", "keys are") for count in (1, 2)] == ["1 key is", "2 keys are"]
