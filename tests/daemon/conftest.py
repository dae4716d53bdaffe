"""A store in memory."""

from __future__ import annotations

import pytest

from sidecar.runner import assembly
from tests.fakes.memory_store import MemoryStore


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What every settings' URL leads to."""
    found = MemoryStore()
    monkeypatch.setattr(assembly, "open_store", lambda *_arguments: found)
    return found
