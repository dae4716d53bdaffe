"""By which strategy `compact` compacts: the topic's entry in the settings, and what it takes to do otherwise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.storage.directory_store import DirectoryStore
from tests.cli.running import Outcome, in_this_process
from tests.golden import golden
from tests.runner.rig import archived_states
from tests.segment.made_logs import records_in

LATER_MS = 1_700_000_000_000
HDR = {"pattern": "hdr", "strategy": "header", "header": "v"}
ALONE = ("--engine", "local", "--json")
OLD, NEW = 9, 1
"""Versions: the record with the lower offset has the higher one."""
BY_HEADER, BY_OFFSET = {b"k0": OLD, b"k1": OLD}, {b"k0": NEW, b"k1": NEW}


def record(offset: int, key: bytes, version: int, header: str = "v") -> Record:
    return Record(offset, LATER_MS + offset, key, b"%d" % version, ((header, version.to_bytes(8)),))


def partition_directory(parent: Path, *more: Record) -> Path:
    """`hdr-0`: two rolled segments, of which the second has the lower versions; then `more` and an empty active one."""
    directory = parent / "hdr-0"
    directory.mkdir(parents=True)
    first, second = [record(0, b"k0", OLD), record(1, b"k1", OLD)], [record(2, b"k0", NEW), record(3, b"k1", NEW)]
    segments = {0: first, 2: second, **({4: list(more)} if more else {})}
    for base, records in segments.items():
        (directory / f"{base:020d}.log").write_bytes(build_batch(records, leader_epoch=0))
    (directory / f"{4 + len(more):020d}.log").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return directory


class Site:
    """A log dir with `hdr-0`, its archive, and settings as `run` has them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log_dir = directory / "logs"
        self.archive = directory / "archive"
        self.log_dir.mkdir()
        for entry in (golden("4.3.0") / "logs").iterdir():
            if entry.is_file():
                shutil.copy2(entry, self.log_dir)
        self.write()

    def write(self, *more: Record) -> None:
        """Write the log and archive what is new of it."""
        shutil.rmtree(self.log_dir / "hdr-0", ignore_errors=True)
        partition_directory(self.log_dir, *more)
        end_offset = 4 + len(more)
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (self.log_dir / name).write_text(f"0\n1\nhdr 0 {end_offset}\n")
        (self.log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")
        settled = ["--set", "broker.settle_ms=0", "--set", "broker.snapshot_grace_ms=0", "--quiet"]
        places = ["--log-dir", self.log_dir, "--archive", self.archive, "--state-dir", self.directory / "state"]
        done = in_this_process("backfill", "--assume-leader", *places, *settled)
        assert done.code == 0, done.err

    def settings(self, *topics: Any) -> Path:
        file = self.directory / "settings.json"
        file.write_text(json.dumps({"store": {"url": str(self.archive)}, "compaction": {"topics": topics}}))
        return file

    def compact(self, *arguments: str, topics: tuple[Any, ...] = (), as_json: bool = True) -> Outcome:
        place = ("--archive", str(self.archive), "--topic", "hdr", "--config", str(self.settings(*topics)))
        return in_this_process("compact", *place, *(ALONE if as_json else ALONE[:2]), *arguments)

    def kept(self) -> Mapping[bytes | None, int]:
        """By key, the version of the record that is left, of each exactly one."""
        (state,) = archived_states(DirectoryStore(self.archive)).values()
        logs = [(self.archive / state.lineage.root / segment.log_key).read_bytes() for segment in state.segments]
        records = records_in(logs)
        assert len({found.key for found in records}) == len(records)
        return {found.key: int(found.value or b"") for found in records}

    def strategy(self) -> str:
        (state,) = archived_states(DirectoryStore(self.archive)).values()
        return "" if state.clean is None else state.clean.strategy


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def events(outcome: Outcome, name: str) -> list[dict[str, Any]]:
    """Log events of a command that logs JSON."""
    lines = [json.loads(line) for line in outcome.err.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def test_the_entry_of_a_topic_decides_and_the_highest_versions_stay(site: Site) -> None:
    """The accident: the settings say header, and `compact --archive --topic hdr` compacted by offset."""
    done = site.compact(topics=(HDR, "accounts"))
    assert done.code == 0, done.err
    (row,) = done.lines()
    assert (row["strategy"], row["header"], row["entry"], row["strategy_before"]) == ("header", "v", "hdr", None)
    assert "topic hdr: strategy header 'v' (compaction.topics, entry hdr)" in done.err
    assert site.kept() == BY_HEADER


def test_a_flag_that_contradicts_the_entry_is_refused_and_overridden_with_a_log_event(site: Site) -> None:
    for arguments in (("--strategy", "offset"), ("--strategy", ""), ("--strategy", "offset", "--dry-run")):
        refused = site.compact(*arguments, topics=(HDR,))
        (answer,) = refused.lines()
        assert (refused.code, answer["kind"], answer["exit_code"]) == (2, "compact", 2)
        assert (
            "error: topic hdr: --strategy offset means strategy offset, but compaction.topics, entry hdr says header 'v'. "
            "Nothing was compacted." in refused.err
        )
    assert site.strategy() == ""
    done = site.compact("--strategy", "offset", "--override", "--log-format", "json", topics=(HDR,))
    assert done.code == 0, done.err
    (event,) = events(done, "compaction_rules_overridden")
    assert (event["level"], event["subject"]) == ("warning", "topic hdr")
    assert "entry hdr says header 'v'" in event["reason"]
    assert site.kept() == BY_OFFSET


def test_without_an_entry_another_strategy_than_before_needs_override(site: Site) -> None:
    assert site.compact("--strategy", "header", "--header", "v").code == 0
    before = archived_states(DirectoryStore(site.archive))
    for arguments in ((), ("--strategy", "timestamp"), ("--strategy", "header", "--header", "w")):
        refused = site.compact(*arguments)
        assert refused.code == 2
        assert "hdr-0: its newest compaction used strategy header 'v', this one would use" in refused.err
        assert "Give --strategy header --header v to keep the strategy, or --override" in refused.err
    assert archived_states(DirectoryStore(site.archive)) == before
    assert site.compact("--strategy", "header", "--header", " v ").code == 0
    done = site.compact("--override", "--log-format", "json")
    assert done.code == 0, done.err
    assert [event["subject"] for event in events(done, "compaction_rules_overridden")] == ["hdr-0"]
    (changed,) = events(done, "compaction_strategy_changed")
    assert (changed["partition"], changed["old"], changed["new"]) == ("hdr-0", "header 'v'", "offset")


def test_an_entry_that_gives_no_strategy_does_not_change_that_of_the_archive(site: Site) -> None:
    """The accident: where no broker reports the topic's own `header`, the entry alone made `offset` of it without a word."""
    assert site.compact("--strategy", "header", "--header", "v").code == 0
    site.write(record(4, b"k0", 0), record(5, b"k1", 0))
    before = archived_states(DirectoryStore(site.archive))
    used = "hdr-0: its newest compaction used strategy header 'v', this one would use offset"
    for topics, reason in (
        (("hdr",), used),
        (({"pattern": "hdr", "strategy": "header"},), "needs the name of a header"),
    ):
        refused = site.compact(topics=topics)
        assert refused.code == 2
        assert reason in refused.err
        assert archived_states(DirectoryStore(site.archive)) == before
    assert site.compact("--strategy", "header", "--header", "v", topics=("hdr",)).code == 0
    assert site.kept() == BY_HEADER
    done = site.compact("--log-format", "json", topics=({"pattern": "hdr", "strategy": "offset"},))
    assert done.code == 0, done.err
    (warned,) = events(done, "compaction_changes_strategy")
    assert (warned["level"], warned["old"], warned["new"]) == ("warning", "header 'v'", "offset")


def test_the_next_compaction_after_a_change_of_the_settings_decides_only_what_is_dirty(site: Site) -> None:
    """KIP-280: what was compacted stays as it is; records that come later compete by the new strategy."""
    assert site.compact(topics=("hdr",)).code == 0
    assert site.kept() == BY_OFFSET
    dry = site.compact("--dry-run", topics=(HDR,), as_json=False)
    assert (
        "hdr-0: the strategy would change from offset to header 'v'; records that earlier compactions dropped stay"
        in dry.err
    )
    done = site.compact("--log-format", "json", topics=(HDR,))
    assert done.code == 0, done.err
    (row,) = done.lines()
    assert (row["strategy_before"], row["records_after"]) == ("offset", row["records_before"])
    (changed,) = events(done, "compaction_strategy_changed")
    assert (changed["old"], changed["new"], changed["first_dirty_offset"]) == ("offset", "header 'v'", 4)
    assert done.err.index("compaction_changes_strategy") < done.err.index("compaction_strategy_changed")
    assert site.kept() == BY_OFFSET
    site.write(record(4, b"k0", 0), record(5, b"k1", 5), record(6, b"k2", 3))
    later = site.compact("--log-format", "json", topics=(HDR,))
    assert later.code == 0, later.err
    assert events(later, "compaction_strategy_changed") == []
    assert site.kept() == {b"k0": NEW, b"k1": 5, b"k2": 3}


def test_a_header_name_is_trimmed_once_and_then_matches_byte_for_byte(site: Site) -> None:
    """Only `v` counts: not `V`, not ` v`, not `v `, whose versions are higher."""
    site.write(record(4, b"k0", 50, "V"), record(5, b"k0", 60, " v"), record(6, b"k0", 70, "v "), record(7, b"k1", 2))
    assert site.compact(topics=({**HDR, "header": "\tv "},)).code == 0
    assert site.kept() == BY_HEADER


@pytest.mark.parametrize("entry", [{"pattern": "hdr", "strategy": "header"}, {**HDR, "header": " "}])
def test_settings_that_name_no_header_are_refused(site: Site, entry: dict[str, Any]) -> None:
    text = "compaction.topics: 'hdr': strategy header needs the name of a header: set header in the entry, or strategy offset"
    validated = in_this_process("config", "validate", "--config", site.settings(entry))
    assert (validated.code, text in validated.err) == (2, True)
    done = site.compact(topics=(entry,))
    assert (done.code, text in done.err, site.strategy()) == (2, True, "")


def test_with_a_broker_a_topics_config_may_name_the_header(site: Site) -> None:
    """Not an empty name in the entry: it counts instead of the topic's."""
    broker = ("--set", "broker.connection.bootstrap_servers=localhost:9")
    for entry, code in (({"pattern": "hdr", "strategy": "header"}, 0), ({**HDR, "header": " "}, 2)):
        validated = in_this_process("config", "validate", "--config", site.settings(entry), *broker)
        assert (validated.code, "strategy header needs the name of a header" in validated.err) == (code, True)
    validated = in_this_process("config", "validate", "--config", site.settings(HDR), *broker)
    assert (validated.code, "name of a header" in validated.err) == (0, False)


def test_a_broker_that_is_away_is_named_with_the_reason_and_the_way_without_it(site: Site) -> None:
    away = site.compact("--set", "broker.connection.bootstrap_servers=127.0.0.1:1", topics=(HDR,))
    assert (away.code, site.strategy()) == (1, "")
    assert "error: 127.0.0.1:1: Connection refused. This is the broker of broker.connection." in away.err
    without = "broker.connection.bootstrap_servers=[]"
    assert f"With `--set {without}` no broker is asked" in away.err
    assert site.compact("--set", without, topics=(HDR,)).code == 0
    assert site.kept() == BY_HEADER


@pytest.mark.parametrize("header", [(), ("--header", "")])
@pytest.mark.parametrize("topics", [(), (HDR,)])
def test_the_flag_for_strategy_header_needs_a_name(
    site: Site, header: tuple[str, ...], topics: tuple[Any, ...]
) -> None:
    for more in ((), ("--override",), ("--dry-run",)):
        done = site.compact("--strategy", "header", *header, *more, topics=topics)
        if topics and not header:
            assert done.code == 0, done.err  # The entry names it.
            continue
        assert done.code == 2
        assert "topic hdr: strategy header needs the name of a header: give --header NAME" in done.err
        assert site.strategy() == ""


def test_a_directory_is_compacted_by_the_entry_of_its_topic(tmp_path: Path) -> None:
    source = partition_directory(tmp_path / "copies")
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"compaction": {"topics": [HDR]}}))

    def compact(*arguments: str | Path) -> Outcome:
        return in_this_process("compact", source, *ALONE, *arguments)

    refused = compact("--dry-run", "--config", settings, "--strategy", "timestamp")
    assert refused.code == 2
    assert (
        "--strategy timestamp means strategy timestamp, but compaction.topics, entry hdr says header 'v'" in refused.err
    )
    out = tmp_path / "out" / "hdr-0"
    out.parent.mkdir()
    done = compact("--out", out, "--config", settings)
    assert done.code == 0, done.err
    (row,) = done.lines()
    assert (row["strategy"], row["header"], row["entry"]) == ("header", "v", "hdr")
    assert "topic hdr: strategy header 'v' (compaction.topics, entry hdr)" in done.err
    kept = records_in(path.read_bytes() for path in sorted(out.glob("*.log")))
    assert {found.key: int(found.value or b"") for found in kept} == BY_HEADER
    without = compact("--dry-run")
    assert (without.lines()[0]["strategy"], without.lines()[0]["entry"]) == ("offset", None)
    assert "topic hdr: strategy offset (default)" in without.err
    forecast = compact("--what-if", "--config", settings)
    assert [row["strategy"] for row in forecast.lines()] == ["offset", "timestamp", "header"]
