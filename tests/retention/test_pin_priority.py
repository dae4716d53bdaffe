"""Which partition's files are pinned where not all can be: what retention deletes first."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.errors import StoreUnavailable, TooManyOpenFiles
from sidecar.host.listed_files import BrokerFiles, identity_of
from sidecar.host.pinned_files import PinnedFiles
from sidecar.topic_policy import TopicPolicy
from tests.fakes.disk_with_room import DiskWithRoom
from tests.fakes.memory_store import MemoryStore
from tests.retention.pinned_rig import Outage
from tests.runner.rig import copy_partitions, rolled_ranges, rounds_over, sample, tools_for
from tests.runner.test_changes_during_tasks import site

HOUR_MS = 3_600_000


class Retention(FileBrokerFacts):
    """Facts of files, and the retention of the topics that a test sets; the others keep all."""

    retention_ms: dict[str, int | None]

    def policy(self, topic: str) -> TopicPolicy:
        return replace(
            super().policy(topic),
            cleanup_policy=frozenset({"delete"}),
            retention_ms=self.retention_ms.get(topic),
            retention_bytes=None,
        )


def retention(log_dir: Path, **retention_ms: int | None) -> Retention:
    facts = Retention([log_dir], assume_leader=True)
    facts.retention_ms = {name.replace("_", "-"): found for name, found in retention_ms.items()}
    return facts


def pinned(held: PinnedFiles) -> set[tuple[str, int]]:
    return {(file.directory.name, int(file.path.stem)) for file in held._pinned}


def test_a_partition_that_rests_keeps_its_pins_though_others_have_a_backlog_that_never_goes(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "transactions-0")
    due = {("transactions-0", base) for base, _ in rolled_ranges(log_dir, "transactions-0")[:2]}
    seen = []

    def uploads(operation: str, key: str) -> None:
        if operation == "upload":
            seen.append(pinned(context.pinned))
            raise StoreUnavailable("no answer")

    store = MemoryStore(before=uploads)
    with tools_for(log_dir, store, tmp_path / "state", retry_wait_s=60, pins=2) as context:
        facts = retention(log_dir, transactions=10**12)
        rounds = rounds_over(replace(context, facts=facts), log_dir)
        assert rounds.run_once().errors
        shutil.copytree(copy_partitions(tmp_path / "other", "orders-0") / "orders-0", log_dir / "orders-0")
        assert rounds.run_once().errors
    assert len(seen) > 1
    assert all(found == due for found in seen)


def test_a_backlog_behind_a_task_takes_no_pins_from_segments_that_go_sooner(tmp_path: Path) -> None:
    with site(tmp_path, max_queue=2) as made:
        spans = rolled_ranges(made.log_dir, "orders-0")
        logs = [made.log_dir / "orders-0" / f"{base:020d}.log" for base, _ in spans]
        began_s = logs[0].stat().st_mtime
        for hours, log in enumerate(logs):
            os.utime(log, (began_s, began_s + hours * HOUR_MS / 1000))
        facts = retention(made.log_dir, orders=10**12)
        few = PinnedFiles(3, files=DiskWithRoom())
        object.__setattr__(made.context, "facts", facts)
        object.__setattr__(made.context, "pinned", few)
        made.roll("append-time-0")
        made.hang.partition = "orders-0"
        made.begin("upload")
        orders, other = (
            next(found for found in made.rounds.checks.archivers if str(found.topic_partition) == name)
            for name in ("orders-0", "append-time-0")
        )
        facts.retention_ms["append-time"] = 10**12
        first_ms, other_ms = orders.deadline_ms(orders.files), other.deadline_ms(other.files)
        assert first_ms is not None
        assert other_ms is not None
        facts.retention_ms["append-time"] = 10**12 + first_ms - other_ms + HOUR_MS * 3 // 2
        made.hang.is_silent = True
        made.look()
        assert pinned(few) == {*(("orders-0", base) for base, _ in spans[:2]), ("append-time-0", 0)}
        made.end()
        few.release()


def test_segments_that_retention_never_deletes_do_not_count_as_not_pinned(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0", "transactions-0"), Outage().store
    rolled = len(rolled_ranges(log_dir, "transactions-0"))
    with tools_for(log_dir, store, tmp_path / "state", pins=2) as context:
        facts = retention(log_dir, orders=-1, transactions=10**12)
        assert rounds_over(replace(context, facts=facts), log_dir).run_once().errors
        assert sample(context, "unpinned_segments") == rolled - 2
        facts.retention_ms["orders"] = None  # Not known.
    with tools_for(log_dir, store, tmp_path / "other", pins=2) as context:
        assert rounds_over(replace(context, facts=facts), log_dir).run_once().errors
        assert sample(context, "unpinned_segments") == rolled - 2 + len(rolled_ranges(log_dir, "orders-0"))


def test_a_file_that_was_deleted_since_it_was_listed_keeps_its_pin(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number:020d}.log" for number in range(4)]
    for path in paths:
        path.touch()
    first, second, *newer = (identity_of(path, path.stat()) for path in paths)
    held = PinnedFiles(limit=2, files=DiskWithRoom())
    assert held.keep([first, second]) == ()
    second.path.unlink()
    assert held.keep([*newer, second, first]) == (newer[1], first)
    assert held.has(second)
    assert held.has(newer[0])
    assert held.keep(newer) == ()
    assert not held.has(second)
    held.release()


def test_files_that_the_process_may_not_open_any_more_count_as_not_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number:020d}.log" for number in range(4)]
    for path in paths:
        path.touch()
    files = [identity_of(path, path.stat()) for path in paths]
    held, left = PinnedFiles(limit=3, files=BrokerFiles()), [2]
    opens = os.open

    def limited(*arguments: object) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opens(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", limited)
        assert held.keep(files) == tuple(files[2:])
        patch.setattr(os, "dup", limited)
        with pytest.raises(TooManyOpenFiles, match="Too many open files") as raised:
            held.take(files[0])
        assert raised.value.retryable
        with pytest.raises(TooManyOpenFiles):
            held.take(files[2])
    assert held.keep(files) == (files[3],)
    held.release()
