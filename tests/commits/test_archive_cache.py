"""What one process knew of an archive spares the next one reading it, and misleads it never."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.actions import AdoptTopicId, Clean, Lost
from sidecar.archive.commit import Writer
from sidecar.archive.coverage import ArchiveExtent
from sidecar.archive.keys import NO_TOPIC_ID
from sidecar.commits.archive_view import ArchiveView
from sidecar.commits.commit_log import CommitLog
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import CorruptFile, LineageUnknown
from sidecar.host.archive_cache import SEGMENTS_KEPT, ArchiveCache
from sidecar.host.journal import Attempt
from sidecar.logformat.batches import scan_file
from sidecar.model import TopicPartition
from tests.runner.remembered_site import KEYS, NAME, PARTITION, Site
from tests.runner.rig import archive, archived_states, ranges, rolled_ranges, rounds_over, status_of

CRC_POSITION = 17
"""Of the field in a batch of magic 2."""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("lists_etags", [True, False])
def test_a_start_beside_what_is_archived_takes_one_request_or_two(site: Site, lists_etags: bool) -> None:
    """The last commit is read where nothing of the store's shows it yet: no process has listed it, or none can."""
    site.store.lists_etags = lists_etags
    first, _ = site.run()
    assert first.errors == []
    for expected in ({"read": 1, "list": 1}, {"list": 1} if lists_etags else {"read": 1, "list": 1}):
        report, calls = site.run()
        assert report.errors == []
        assert calls == expected
        (outcome,) = report.outcomes
        assert outcome.end_offset == rolled_ranges(site.log_dir, PARTITION)[-1][1]
        assert not site.is_read_anew


def _last_commit(site: Site) -> str:
    return max(key for key in site.store.objects if "/commits/" in key)


def test_a_last_commit_whose_mark_is_another_is_read(site: Site) -> None:
    """Copied there again, or replaced: its bytes decide what it says."""
    site.run()
    site.run()
    site.store.modified_ms[_last_commit(site)] += 1
    assert site.run()[1] == {"read": 1, "list": 1}
    assert site.run()[1] == {"list": 1}


def _stopped(site: Site) -> CorruptFile:
    """A process of one round changes nothing in the store, and says why."""
    before = dict(site.store.objects)
    (error,) = site.run()[0].errors
    assert site.store.objects == before
    assert isinstance(error, CorruptFile)
    return error


def _forget(site: Site) -> None:
    (memory,) = site.state_dir.rglob("archives.sqlite")
    memory.unlink()


@pytest.mark.leaves_damage("commit_log")
def test_a_last_commit_that_was_replaced_is_not_taken_for_the_one_that_was_seen(site: Site) -> None:
    site.run()
    site.run()
    site.store.objects[_last_commit(site)] += b" "
    assert "damaged or was edited" in str(_stopped(site))


def test_an_archive_that_lost_its_newest_commits_is_not_continued(site: Site) -> None:
    """As after a bucket was rolled back. The checkpoint is gone, too: only what is remembered tells."""
    site.run()
    lost = {
        key: body for key, body in site.store.objects.items() if "/checkpoints/" in key or key == _last_commit(site)
    }
    for key in lost:
        del site.store.objects[key]
    for _ in range(2):
        assert "is missing, although this sidecar, a checkpoint or" in str(_stopped(site))
    site.store.objects.update(lost)
    assert site.run()[0].errors == []


def test_nor_does_a_process_continue_it_that_forgot_what_it_knew(site: Site) -> None:
    site.run()
    (files,) = scan_log_dirs([site.log_dir], TopicFilter(("orders",))).partitions
    with site.process() as context:
        known = ArchiveView(replace(context, memory=ArchiveCache()), files)
        known.open(files)
        known.forget()
        last = _last_commit(site)
        commit = site.store.objects.pop(last)
        for key in [key for key in site.store.objects if "/checkpoints/" in key]:
            del site.store.objects[key]
        for _ in range(2):
            with pytest.raises(CorruptFile, match="is missing, although this sidecar, a checkpoint or"):
                known.open(files)
            known.forget()
        site.store.objects[last] = commit
        assert known.open(files).next_number == int(Path(last).stem) + 1


def test_a_resumed_archive_goes_on_where_it_ended(site: Site) -> None:
    bring_back = site.hide(3)
    assert site.run()[0].errors == []
    before = ranges(archived_states(site.store)[PARTITION])
    bring_back()
    assert site.run()[0].errors == []
    state = archived_states(site.store)[PARTITION]
    assert ranges(state) == rolled_ranges(site.log_dir, PARTITION)
    assert len(before) < len(ranges(state))
    with site.process() as context:
        archive(context, site.log_dir, "orders")
        assert status_of(context).figures().partitions[0].extent == ArchiveExtent().grown(state.segments, state.holes)


def test_what_is_remembered_does_not_grow_with_the_archive(site: Site) -> None:
    site.run()
    with site.process() as context:
        remembered = context.memory.recall(NAME)
        assert remembered is not None
        assert len(remembered.state.segments) == SEGMENTS_KEPT < len(rolled_ranges(site.log_dir, PARTITION))
        newest_ms = max(segment.max_timestamp_ms for segment in archived_states(site.store)[PARTITION].segments)
        assert remembered.largest_timestamp_ms == newest_ms


def test_an_archive_that_was_emptied_is_begun_again_once_a_person_says_so(site: Site) -> None:
    site.run()
    site.store.objects.clear()
    (memory,) = site.state_dir.rglob("archives.sqlite")
    said = str(_stopped(site))
    assert f"stop the sidecar, delete {memory}, start it again. Otherwise this forks the history" in said
    assert said.index("restore it from a replica") < said.index("delete ")
    _forget(site)
    assert site.run()[0].errors == []
    assert ranges(archived_states(site.store)[PARTITION]) == rolled_ranges(site.log_dir, PARTITION)


def test_another_archive_in_its_place_is_read_once_a_person_says_so(site: Site, tmp_path: Path) -> None:
    site.run()
    site.store.objects.clear()
    other = Site(tmp_path / "other")
    other.store = site.store
    other.run()
    assert "One of them was replaced" in str(_stopped(site))
    _forget(site)
    site.run()
    with site.process() as context:
        remembered = context.memory.recall(NAME)
    assert remembered is not None
    assert remembered.state.last_sha256 == archived_states(site.store)[PARTITION].last_sha256


def _rewrite_last_checksum(log: Path) -> None:
    """Give the last batch another one: a log of the same shape with other bytes in it."""
    (*_, last) = scan_file(log, base_offset=int(log.stem))
    with log.open("r+b") as file:
        file.seek(int(last.position[-1]) + CRC_POSITION)
        file.write(b"\x01\x02\x03\x04")


def test_a_log_that_does_not_continue_what_is_remembered_is_reported_at_once(site: Site) -> None:
    """Also where nothing has rolled that would be held against the archive before it is appended."""
    site.run()
    rolled = rolled_ranges(site.log_dir, PARTITION)
    _rewrite_last_checksum(site.log_dir / PARTITION / f"{rolled[-1][0]:020d}.log")
    report, _ = site.run()
    (error,) = report.errors
    assert "differ" in str(error)
    assert "same topic id" in str(error)


@pytest.mark.parametrize("is_remembered_whole", [True, False])
def test_an_archive_that_was_compacted_meanwhile_is_read_as_a_whole(site: Site, is_remembered_whole: bool) -> None:
    if is_remembered_whole:
        site.hide(6)
    site.run()
    _, resumed = site.run()
    state = archived_states(site.store)[PARTITION]
    assert state.start_offset is not None
    assert state.end_offset is not None
    log = CommitLog(site.store, state.lineage.root, site.store.clock)
    assert (len(state.segments) <= SEGMENTS_KEPT) == is_remembered_whole
    clean = Clean(state.start_offset, state.end_offset, "latest-per-key")
    log.append([clean], Writer(1, state.highest_leader_epoch, "compactor"), log.read())
    report, calls = site.run()
    assert report.errors == []
    assert resumed["list"] == 1
    assert calls["list"] == 2, "resumed in vain, then read"


def test_whoever_forgot_what_it_knew_reads_the_archive_itself(site: Site) -> None:
    site.run()
    (files,) = scan_log_dirs([site.log_dir], TopicFilter(("orders",))).partitions
    with site.process() as context:
        known = ArchiveView(context, files)
        for is_read_anew in (False, True, True):
            site.listed.clear()
            known.open(files)
            assert site.is_read_anew is is_read_anew
            known.forget()


@pytest.mark.parametrize("is_resumed", [True, False])
def test_nothing_is_appended_where_two_lineages_have_the_topic_id(site: Site, is_resumed: bool) -> None:
    bring_back = site.hide(3)
    site.run()
    before = archived_states(site.store)[PARTITION]
    assert before.topic_id is not None
    nameless = replace(before.lineage, incarnation=NO_TOPIC_ID)
    log = CommitLog(site.store, nameless.root, site.store.clock)
    log.append([AdoptTopicId(before.topic_id)], Writer(1, 0, "another"), log.read())
    bring_back()
    if not is_resumed:
        (site.state_dir / "archives.sqlite").unlink()
    report, _ = site.run()
    assert [type(error) for error in report.errors] == [LineageUnknown]
    assert "both belong to topic id" in str(report.errors[0])
    assert CommitLog(site.store, before.lineage.root, site.store.clock).read().next_number == before.next_number
    site.store.delete([facts.key for facts in site.store.list(nameless.root)])
    assert site.run()[0].errors == []
    assert ranges(archived_states(site.store)[PARTITION]) == rolled_ranges(site.log_dir, PARTITION)


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def _other_bytes(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE archives SET facts = CAST(replace(facts, '1', '2') AS BLOB)")
    connection.close()


def _other_schema(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE archives (something TEXT)")
    connection.close()


def _damaged_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)


def _facts_of_another_release(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        ((state, facts),) = connection.execute("SELECT state, facts FROM archives").fetchall()
        found = json.loads(facts)
        change(found)
        changed = json.dumps(found).encode()
        sealed = hashlib.sha256(state + changed).digest()
        connection.execute("UPDATE archives SET facts = ?, sha256 = ?", (changed, sealed))


def _one_fact_more(path: Path) -> None:
    _facts_of_another_release(path, lambda facts: facts["extent"].update(something_new=1))


def _one_fact_fewer(path: Path) -> None:
    _facts_of_another_release(path, lambda facts: facts.pop("newest_checkpoint"))


def _another_version(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    "damage",
    [_garbage, _other_bytes, _other_schema, _damaged_page, _one_fact_more, _one_fact_fewer, _another_version],
)
def test_a_damaged_memory_costs_a_reading_of_the_archive_and_nothing_else(
    site: Site, damage: Callable[[Path], None]
) -> None:
    site.run()
    damage(site.state_dir / "archives.sqlite")
    report, _ = site.run()
    assert report.errors == []
    assert site.is_read_anew, "nothing was resumed"
    assert site.run()[1] == {"list": 1}, "and from then on it is of use again"


def test_what_a_release_remembered_that_kept_no_marks_is_of_use(site: Site) -> None:
    site.run()
    site.run()
    _facts_of_another_release(site.state_dir / "archives.sqlite", lambda facts: facts.pop("mark"))
    assert site.run()[1] == {"read": 1, "list": 1}
    assert site.run()[1] == {"list": 1}


def test_attempts_that_are_left_are_settled_with_the_whole_archive(site: Site) -> None:
    site.run()
    with site.process() as context:
        state = archived_states(site.store)[PARTITION]
        segment = state.segments[0]
        attempt = Attempt("x" * 22, state.lineage.root, segment.base_offset, segment.end_offset, *KEYS, 1, 2, 3, 4)
        context.journal.begin(attempt)
    report, _ = site.run()
    assert report.errors == []
    assert site.is_read_anew, "nothing was resumed"


LOST: dict[str, Callable[[Site, str], object]] = {
    "gone": lambda site, commit: site.store.objects.pop(commit),
    "all": lambda site, _commit: site.store.objects.clear(),
    "replaced": lambda site, commit: site.store.objects.update({commit: _another_commit(site)}),
}


def _another_commit(site: Site) -> bytes:
    """As a writer commits it that goes on where a bucket was rolled back to."""
    del site.store.objects[(last := _last_commit(site))]
    log = CommitLog(site.store, archived_states(site.store)[PARTITION].lineage.root, site.store.clock)
    state = log.read()
    log.append(
        [Lost(state.end_offset or 0, (state.end_offset or 0) + 1, "another history")], Writer(2, 4, "other"), state
    )
    return site.store.objects[last]


@pytest.mark.parametrize("lost", LOST)
def test_a_running_process_appends_nothing_on_top_of_a_commit_that_is_gone(site: Site, lost: str) -> None:
    """The store loses it between two rounds: nothing but the next commit asks for it."""
    bring_back = site.hide(3)
    with site.process() as context:
        rounds = rounds_over(context, site.log_dir)
        assert rounds.run_once().errors == []
        last = _last_commit(site)
        for key in [key for key in site.store.objects if "/checkpoints/" in key]:
            del site.store.objects[key]
        LOST[lost](site, last)
        left = {key for key in site.store.objects if "/commits/" in key}
        bring_back()
        for _ in range(2):
            report = rounds.run_once()
            (error,) = report.errors
            assert isinstance(error, CorruptFile)
            assert error.file == last
            assert [outcome.archived for outcome in report.outcomes] == [[]]
    assert "is missing, although this sidecar, a checkpoint or" in str(_stopped(site)) or lost == "replaced"
    assert {key for key in site.store.objects if "/commits/" in key} == left


def test_a_start_sees_by_a_checkpoint_that_newer_commits_than_it_remembers_are_missing(site: Site) -> None:
    """Another broker's sidecar went on; its newest commit is lost, and its checkpoint is not."""
    bring_back = site.hide(3)
    site.run()
    (memory,) = site.state_dir.rglob("archives.sqlite")
    remembered = memory.read_bytes()
    bring_back()
    site.run()
    memory.write_bytes(remembered)
    last = _last_commit(site)
    assert last.replace("/commits/", "/checkpoints/") in site.store.objects
    commit = site.store.objects.pop(last)
    for _ in range(2):
        assert "is missing, although this sidecar, a checkpoint or" in str(_stopped(site))
        assert last not in site.store.objects
    site.store.objects[last] = commit
    assert site.run()[0].errors == []


def test_a_file_that_fails_forgets_no_offsets_that_went_within_the_process(tmp_path: Path) -> None:
    cache, lost = ArchiveCache(tmp_path), TopicPartition("orders", 0)
    cache.close()  # Each statement fails from now on.
    gone = ("topic id", "/log"), ((3, 7),)
    cache.note_gone(lost, gone)
    assert cache.gone(lost) == gone
    cache.note_gone(lost, (gone[0], ()))
    assert cache.gone(lost) is None
