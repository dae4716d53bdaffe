"""One partition's archive has a commit that no release wrote: its partition stops, and every other one is archived."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.archive.bundle import INDEXES_BYTES_MAX, LOG_BYTES_MAX
from sidecar.archive.keys import COMMITS
from sidecar.archive.strict_json import seal, unseal
from sidecar.commits.commit_log import CommitLog
from sidecar.errors import CorruptFile
from sidecar.model import ObjectKey
from sidecar.storage.directory_store import DirectoryStore
from tests.fakes.manual_clock import ManualClock
from tests.runner.rig import archive, copy_partitions, ranges, rolled_ranges, set_aside_last, tools_for

HOSTILE, OTHER = "orders-0", "orders-1"


def part(name: str, field: str, value: int) -> Callable[[bytes], bytes]:
    """One number of the last segment's table of parts."""

    def change(inner: bytes) -> bytes:
        commit = json.loads(inner)
        commit["actions"][-1]["segment"]["parts"][name][field] = value
        return json.dumps(commit).encode()

    return change


def version(text: bytes) -> Callable[[bytes], bytes]:
    """Anything in the place of the format's version."""
    return lambda inner: inner.replace(b'"version":1', b'"version":' + text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (part("producer_snapshot", "size_bytes", 2**44), rf"producer_snapshot claims .* at most {INDEXES_BYTES_MAX}"),
        (part("producer_snapshot", "position", 2**44), rf"producer_snapshot claims .* at most {INDEXES_BYTES_MAX}"),
        (part("offset_index", "size_bytes", 2**63 - 1), rf"offset_index claims .* at most {INDEXES_BYTES_MAX}"),
        (part("log", "size_bytes", 2**44), rf"log claims .* at most {LOG_BYTES_MAX}"),
        # Within the bounds, but more than the object has.
        (part("producer_snapshot", "size_bytes", INDEXES_BYTES_MAX // 2), "producer_snapshot reaches from"),
        (version(b"[" * 800 + b"]" * 800), "version: expected an integer"),
        (version(b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
        (version(b"9" * 5000), "not JSON of this program"),
    ],
)
def test_it_stops_its_partition_only(
    change: Callable[[bytes], bytes], message: str, tmp_path: Path, expect_damage: Callable[[str], None]
) -> None:
    expect_damage("size_mismatch" if "reaches from" in message else "commit_log")
    log_dir, aside = copy_partitions(tmp_path, HOSTILE, OTHER), tmp_path / "aside"
    aside.mkdir()
    for partition in (HOSTILE, OTHER):
        set_aside_last(log_dir / partition, aside / partition)
    store = DirectoryStore(tmp_path / "archive")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir, "orders").exit_code == 0
    replace_newest_commit(tmp_path / "archive", change)
    for partition in (HOSTILE, OTHER):
        for path in (aside / partition).iterdir():
            path.rename(log_dir / partition / path.name)
    with tools_for(log_dir, store, tmp_path / "state of another process") as context:
        report = archive(context, log_dir, "orders")
    stopped = {str(outcome.files.topic_partition): outcome.error for outcome in report.outcomes if outcome.error}
    assert {partition: type(error) for partition, error in stopped.items()} == {HOSTILE: CorruptFile}
    assert re.search(message, str(stopped[HOSTILE]))
    other = CommitLog(store, root_of(tmp_path / "archive", OTHER), ManualClock(0)).read()
    assert ranges(other) == rolled_ranges(log_dir, OTHER)


def root_of(archive_dir: Path, partition: str) -> ObjectKey:
    """The root of the partition's only lineage."""
    (commits,) = archive_dir.glob(f"*/{partition.replace('-', '/')}/*/{COMMITS}")
    return ObjectKey(str(commits.parent.relative_to(archive_dir)))


def replace_newest_commit(archive_dir: Path, change: Callable[[bytes], bytes]) -> None:
    """Change and seal the newest commit; the checkpoints go."""
    root = archive_dir / root_of(archive_dir, HOSTILE)
    newest = max((root / COMMITS).iterdir())
    newest.write_bytes(seal("commit", change(unseal("commit", newest.read_bytes()))))
    for checkpoint in root.glob("checkpoints/*"):
        checkpoint.unlink()
