"""Objects of an archive as `inspect` shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.archive.actions import Add
from sidecar.archive.checkpoint import encode_checkpoint
from sidecar.archive.keys import below, checkpoint_key
from sidecar.archive.state import empty_state
from sidecar.cli.inspect import archived_files
from sidecar.storage.directory_store import DirectoryStore
from tests.archive.builders import LINEAGE, a_segment, after


def test_a_checkpoint_larger_than_any_commit_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = after(empty_state(LINEAGE), *[[Add(a_segment(number * 100))] for number in range(9)])
    store, key, body = DirectoryStore(tmp_path), below(LINEAGE.root, checkpoint_key(8)), encode_checkpoint(state)
    store.put_if_absent(key, body)
    monkeypatch.setattr(archived_files, "COMMIT_BYTES_MAX", len(body) // 2)
    content = archived_files.archived_content(store, key).whole
    assert content is not None
    assert len(content["segments"]) == 9
