"""An upload whose process was killed, and of which no journal tells: nobody sees it, and `run` and `gc` end it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.archive.keys import below, indexes_key, log_key
from sidecar.commits.commit_window import ORPHAN_MS
from sidecar.compactor.archive.stored_parts import STAGING
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.compactor.gc import GcTask
from sidecar.host.journal import Attempt
from sidecar.model import ObjectKey, TopicPartition
from sidecar.ports import ObjectStore, UnfinishedUpload
from sidecar.runner.context import RunContext
from tests.archive.builders import an_id
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.fakes.store_at import StoreAt
from tests.golden import golden
from tests.runner.rig import tools_for
from tests.storage.s3_servers import new_bucket, s3_store

ROOT = ObjectKey(f"cluster/orders/0/{an_id('topic')}")
KEY = below(ROOT, log_key(0, an_id("killed")))
OURS = LedPartition(TopicPartition("orders", 0), ROOT, 1, 0)

KILLED = """
import os, signal, sys
from tests.storage.s3_servers import s3_store

class Fatal:
    size_bytes = 20 << 20
    def read_at(self, position, size_bytes):
        if position >= 10 << 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(size_bytes)

endpoint, bucket, key = sys.argv[1:]
with s3_store(endpoint, bucket, concurrency=1) as store:
    store.upload(key, Fatal())
"""


@contextmanager
def a_day_later(store: ObjectStore, upload: UnfinishedUpload, tmp_path: Path, more_ms: int = 0) -> Iterator[RunContext]:
    """What `run` has with a new journal, so long after an upload began that nobody can be at it any more."""
    with tools_for(golden("4.3.0") / "logs", store, tmp_path / "state") as context:
        # By the store's clock: this host's stays where it was.
        yield replace(context, store=StoreAt(store, (upload.started_ms or 0) + ORPHAN_MS + more_ms))


def aborted(context: RunContext) -> float | None:
    return context.metrics.registry.get_sample_value("tiered_sidecar_gc_uploads_aborted_total")


def clear_up(context: RunContext) -> None:
    clearing = GcTask(context, 0)
    clearing.offer([OURS])
    clearing()


def test_an_upload_of_a_killed_process_is_seen_by_nobody_and_aborted_by_run(s3_endpoint: str, tmp_path: Path) -> None:
    bucket = new_bucket(s3_endpoint)
    command = [sys.executable, "-c", KILLED, s3_endpoint, bucket, KEY]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with s3_store(s3_endpoint, bucket) as store:
        assert list(store.list("")) == []
        assert list(store.list_folders("")) == []
        (upload,) = store.unfinished_uploads("")
        assert upload.key == KEY
        with a_day_later(store, upload, tmp_path, more_ms=-1) as context:
            clear_up(context)
            assert list(store.unfinished_uploads("")) == [upload]
            assert aborted(context) == 0
        with a_day_later(store, upload, tmp_path) as context:
            clear_up(context)
            assert aborted(context) == 1
        assert list(store.unfinished_uploads("")) == []
        # Aborted once more, as by two who look at the same time: no error.
        store.abort_upload(upload)


def test_an_upload_that_the_journal_knows_goes_on(tmp_path: Path) -> None:
    store = MemoryStore()
    upload = UnfinishedUpload(KEY, "slow", 1_000)
    store.unfinished = [upload]
    with a_day_later(store, upload, tmp_path) as context:
        keys = (log_key(0, an_id("killed")), indexes_key(0, an_id("killed")))
        context.journal.begin(
            Attempt(an_id("killed"), ROOT, 0, 9, *keys, inode=1, size_bytes=1, mtime_ns=1, begun_ms=1_000)
        )
        clear_up(context)
        assert store.unfinished == [upload]
        context.journal.end(an_id("killed"))
        clear_up(context)
    assert store.unfinished == []


@pytest.mark.parametrize("kind", [FaultKind.DENIED, FaultKind.UNSUPPORTED])
def test_a_store_that_lists_no_uploads_is_reported_once_and_the_other_garbage_goes(
    kind: FaultKind, tmp_path: Path
) -> None:
    store = MemoryStore(faults=[Fault("unfinished_uploads", nth, kind) for nth in range(9)])
    with a_day_later(store, UnfinishedUpload(KEY, "", 0), tmp_path) as context:
        part = ObjectKey(f"{STAGING}{an_id('job')}/00000001-{an_id('attempt')}.part")
        store.put_if_absent(part, b"part")
        store.modified_ms[part] = 0
        clearing = GcTask(context, 0)
        with capture_logs() as logs:
            clearing()
            clearing()
        assert [entry["event"] for entry in logs] == ["unfinished_uploads_not_listed"]
        assert part not in store.objects
        assert aborted(context) == 0
        assert context.metrics.registry.get_sample_value("tiered_sidecar_gc_last_success_timestamp_seconds")
