"""Log directories of our own, and a store in memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.doctor import store as store_area
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Of our own, so that it may be spoilt."""
    return Path(shutil.copytree(golden("4.3.0") / "logs", tmp_path / "logs"))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store is slow because this machine is busy."""
    monkeypatch.setattr(store_area, "_SLOW_MS", 300_000)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What every settings' URL leads to."""
    found = MemoryStore(SystemClock())
    monkeypatch.setattr(store_area, "open_store", lambda *_arguments: found)
    return found
