"""A store whose clock says what a test wants: the times of all other objects stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sidecar.ports import ObjectFacts, ObjectStore
from sidecar.storage.store_clock import PROBE_FOLDER


class StoreAt:
    """Everything of `store`, but objects of probes, by which its clock is read, were modified at `now_ms`."""

    def __init__(self, store: ObjectStore, now_ms: int) -> None:
        self._store = store
        self._now_ms = now_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        """See `ObjectStore`."""
        for facts in self._store.list(prefix, start_after):
            is_probe = facts.key.startswith(f"{PROBE_FOLDER}/")
            yield replace(facts, modified_ms=self._now_ms) if is_probe else facts
