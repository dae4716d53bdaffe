"""A store that fails its probe at every try: the same words each time, so that errors can be counted."""

from __future__ import annotations

import pytest

from sidecar.errors import StoreDenied, StoreUnavailable
from sidecar.storage import probe_store
from tests.fakes.memory_store import MemoryStore


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreDenied])
def test_each_try_fails_in_the_same_words(kind: type[Exception]) -> None:
    def refuse(operation: str, key: str) -> None:
        raise kind(f"{operation} {key} at s3://bucket: no")

    store, texts = MemoryStore(), set()
    store.before = refuse
    for _ in range(2):
        with pytest.raises(kind) as caught:
            probe_store(store)
        texts.add(str(caught.value))
    (text,) = texts
    assert "_probe/small at s3://bucket: no" in text
