"""Records without a key: dropped and counted, or refused with file and offset, by the same words everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.errors import RecordRefused
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.legacy import build_legacy_message, build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.storage.directory_store import DirectoryStore
from tests.cli.running import Outcome, in_this_process
from tests.cli.test_compaction_rules import ALONE, LATER_MS, Site, partition_directory
from tests.compaction.engine import compact
from tests.compaction.reference.values import ReferenceSegment
from tests.runner.rig import archived_states

UNKEYED = Record(4, LATER_MS, None, b"who am I", ())
KEYED = Record(5, LATER_MS, b"k9", b"1", ())


def refused(outcome: Outcome) -> bool:
    text = outcome.out + outcome.err
    assert "restore" not in text  # Nothing is damaged.
    return outcome.code == 3 and "a record without a key, and on_unkeyed is refuse" in text and "offset 4" in text


def assert_refusal_leaves_an_archive_as_it_is(tmp_path: Path, run: Callable[..., Outcome]) -> None:
    """`run` runs a command on an engine."""
    site = Site(tmp_path)
    site.write(UNKEYED, KEYED)
    before = archived_states(DirectoryStore(site.archive))
    entry: dict[str, Any] = {"pattern": "hdr", "on_unkeyed": "refuse"}
    place = ("compact", "--archive", str(site.archive), "--topic", "hdr", "--json")
    found = run(*place, "--config", str(site.settings(entry)))
    assert refused(found), found
    assert archived_states(DirectoryStore(site.archive)) == before
    by_flag = in_this_process(*place, "--config", str(site.settings(entry)), "--on-unkeyed", "drop")
    assert by_flag.code == 2
    assert "--on-unkeyed drop was given, but compaction.topics, entry hdr says on_unkeyed refuse" in by_flag.err
    done = run(*place, "--config", str(site.settings("hdr")))
    (row,) = done.lines()
    assert (done.code, row["unkeyed_records"]) == (0, 1)


def test_an_archive_is_left_as_it_is_where_they_are_refused(tmp_path: Path) -> None:
    """On Spark: tests/spark/local/test_engine_of_commands.py."""
    assert_refusal_leaves_an_archive_as_it_is(tmp_path, lambda *place: in_this_process(*place, "--engine", "local"))


def test_what_a_refused_compaction_did_not_begin_is_not_said(tmp_path: Path) -> None:
    """`committing` stands for a put."""
    site = Site(tmp_path)
    site.write(UNKEYED, KEYED)
    steps = ("writing the retained records", "uploading", "committing")

    def said(*arguments: str) -> list[str]:
        lines = site.compact(*arguments, topics=("hdr",)).err.splitlines()
        return [line for line in lines if line in steps]

    assert said("--on-unkeyed", "refuse") == []
    assert said("--dry-run") == ["writing the retained records"]
    assert said() == list(steps)
    assert said() == ["writing the retained records"]  # All of it is there already.


def test_a_directory_says_the_same(tmp_path: Path) -> None:
    source = partition_directory(tmp_path / "copies", UNKEYED, KEYED)
    assert refused(in_this_process("compact", source, *ALONE, "--dry-run", "--on-unkeyed", "refuse"))
    assert in_this_process("compact", source, *ALONE, "--dry-run").lines()[0]["unkeyed_records"] == 1


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1])
def test_the_first_one_is_named_in_every_format(magic: int, codec: int) -> None:
    records = [Record(at, -1, None if at in {12, 14} else b"k", b"v", ()) for at in range(10, 16)]
    if magic == 2:
        log = build_batch(records, codec=codec)
    elif codec:
        log = build_legacy_wrapper(records, magic=magic, codec=codec)
    else:
        log = b"".join(build_legacy_message(one.offset, one.key, one.value, magic=magic) for one in records)
    rules = CompactionRules(LATER_MS, refuses_unkeyed=True)
    with pytest.raises(RecordRefused, match="a record without a key") as error:
        compact([ReferenceSegment(10, 16, log)], rules)
    assert error.value.offset == 12
    assert compact([ReferenceSegment(10, 16, log)], CompactionRules(LATER_MS))


def test_the_settings_take_it_by_topic_and_for_all(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    topics = ["a", {"pattern": "b", "on_unkeyed": "drop"}]
    tree = {"store": {"url": str(tmp_path)}, "compaction": {"on_unkeyed": "refuse", "topics": topics}}
    file.write_text(json.dumps(tree))
    for topic, expected in (("a", "refuse"), ("b", "drop")):
        shown = in_this_process("config", "show", "--config", file, "--topic", topic, "--json")
        assert json.loads(shown.out)["policy"]["compaction.on_unkeyed"]["value"] == expected
