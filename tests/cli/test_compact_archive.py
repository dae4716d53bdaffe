"""`compact --archive` as an operator meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.replacement import NoUndo, Obstacle
from sidecar.archive.state import RemovedSegment
from sidecar.cli.compact.archive_compaction import reason_of
from tests.cli import unprivileged
from tests.cli.running import in_this_process
from tests.cli.test_compaction_rules import Site
from tests.golden import golden, manifest


@pytest.fixture
def url(tmp_path: Path) -> str:
    return archived("4.3.0", tmp_path)


def archived(version: str, directory: Path) -> str:
    """One archive in the directory, whatever the version."""
    archive = str(directory / "archive")
    settled = ["--set", "broker.settle_ms=0", "--set", "broker.snapshot_grace_ms=0", "--topic", "orders", "--quiet"]
    places = ["--log-dir", str(golden(version) / "logs"), "--archive", archive, "--state-dir", str(directory / "state")]
    assert in_this_process("backfill", "--assume-leader", *places, *settled).code == 0
    return archive


def cleared(*arguments: str) -> list[dict[str, Any]]:
    """What `gc` says of each partition."""
    found = in_this_process("gc", *arguments, "--json")
    *partitions, work_files = found.lines()
    assert (found.code, work_files["kind"]) == (0, "garbage_work_files")
    assert (work_files["work_files"], work_files["unfinished_uploads"]) == (0, 0)
    return partitions


def test_topics_are_compacted_verified_and_cleared_up(url: str) -> None:
    dry = in_this_process("compact", "--archive", url, "--dry-run", "--json", "--quiet")
    assert {row["commit"] for row in dry.lines()} == {None}
    done = in_this_process("compact", "--archive", url, "--topic", "orders", "--json", "--quiet", "--engine", "local")
    assert done.code == 0
    for before, after in zip(dry.lines(), done.lines(), strict=True):
        assert after["problem"] is None
        assert isinstance(after.pop("commit"), int)
        assert after["records_after"] < after["records_before"]
        # Delete horizons are reckoned from the time of the run, and their digits have a share in compressed sizes.
        assert before["bytes_after"] == pytest.approx(after["bytes_after"], abs=64)
        for segment, made in zip(before["segments"], after["segments"], strict=True):
            assert segment.pop("size_bytes") == pytest.approx(made.pop("size_bytes"), abs=64)
        of_the_run = {"now_ms": 0, "commit": None, "would_commit": None, "bytes_after": 0}
        assert {**before, **of_the_run} == {**after, **of_the_run}
    assert in_this_process("verify", "--archive", url, "--deep").code == 0
    waiting = cleared("--archive", url)
    assert {row["replaced_segments"] for row in waiting} == {0}
    counted = cleared("--archive", url, "--grace-ms", "0", "--dry-run")
    objects = list(Path(url).rglob("*.log"))
    deleted = cleared("--archive", url, "--grace-ms", "0")
    assert [row["replaced_segments"] for row in deleted] == [row["replaced_segments"] for row in counted]
    gone = sum(row["replaced_segments"] for row in deleted)
    assert gone > 0
    assert len(list(Path(url).rglob("*.log"))) == len(objects) - gone
    assert in_this_process("verify", "--archive", url, "--deep").code == 0
    again = cleared("--archive", url, "--grace-ms", "0")
    assert {row["replaced_segments"] for row in again} == {0}


def test_what_if_says_which_keys_have_another_winner(url: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.jsonl"
    found = in_this_process("compact", "--archive", url, "--what-if", "--json", "--quiet", "--keys-file", str(keys))
    assert found.code == 0
    assert {row["strategy"] for row in found.lines()} == {"offset", "timestamp"}
    others = [json.loads(line) for line in keys.read_text().splitlines()]
    for row in found.lines():
        name = {field: row[field] for field in ("cluster_id", "topic", "partition", "incarnation", "strategy")}
        assert sum(name.items() <= other.items() for other in others) == row["keys_with_another_winner"]
    assert len(others) == sum(row["keys_with_another_winner"] for row in found.lines())
    assert others
    wrong = in_this_process(
        "compact", "--archive", url, "--what-if", "--json", "--keys-file", tmp_path / "none" / "keys"
    )
    assert (wrong.code, [row["exit_code"] for row in wrong.lines()]) == (
        3,
        [3],
    )  # no outlook: found before the analysis


@pytest.mark.leaves_damage("commit_log")  # the copy names the topic id of the other incarnation
def test_why_a_topic_that_was_created_again_is_skipped_is_said_once(url: str, tmp_path: Path) -> None:
    (incarnation,) = Path(url).glob("*/orders/0/*")
    shutil.copytree(incarnation, incarnation.with_name("0"))
    policies = [{"pattern": "orders", "cleanup_policy": "delete"}]
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"store": {"url": url}, "topics": {"policies": policies}}))
    done = in_this_process("compact", "--archive", url, "--topic", "orders", "--config", str(settings), "--quiet")
    assert (done.code, done.err.count("orders-0 is skipped: its cleanup.policy is delete")) == (0, 1)


@pytest.mark.leaves_damage("commit_log")  # the copy's commits name the other topic
def test_why_a_topic_is_skipped_is_said_where_a_later_one_cannot_be_read(url: str, tmp_path: Path) -> None:
    (orders,) = Path(url).glob("*/orders")
    shutil.copytree(orders, orders.with_name("young"))
    policies = [{"pattern": "orders", "cleanup_policy": "delete"}]
    topics = ["orders", {"pattern": "young", "min_compaction_lag_ms": 60_000}]
    settings = tmp_path / "settings.json"
    settings.write_text(
        json.dumps({"store": {"url": url}, "topics": {"policies": policies}, "compaction": {"topics": topics}})
    )
    done = in_this_process("compact", "--archive", url, "--topic", ".*", "--config", str(settings), "--quiet")
    assert "young" in done.err.splitlines()[-1]
    assert (done.code, done.err.count("orders-0 is skipped: its cleanup.policy is delete")) == (3, 1), done.err


@pytest.mark.leaves_damage("commit_log")
def test_commits_that_cannot_be_read_stop_their_partition_alone_with_a_lag_too(url: str, tmp_path: Path) -> None:
    damaged = max(Path(url).glob("*/orders/0/*/commits/*"))
    damaged.write_bytes(b"damaged")
    settings = tmp_path / "settings.json"
    topics = [{"pattern": "orders", "min_compaction_lag_ms": 60_000}]
    settings.write_text(json.dumps({"store": {"url": url}, "compaction": {"topics": topics}}))
    place = ("--archive", url, "--topic", "orders", "--config", str(settings))
    found = in_this_process("compact", *place, "--json", "--quiet", "--engine", "local")
    bad, fine = found.lines()
    assert (found.code, damaged.name in bad["problem"], fine["problem"]) == (3, True, None)
    assert fine["commit"] is not None


@pytest.mark.leaves_damage("checksum_mismatch", "corrupt_content")
def test_a_damaged_partition_stays_as_it_is_and_is_reported(url: str) -> None:
    damaged = sorted(Path(url).glob("*/orders/0/*/segments/*.log"))[1]
    content = damaged.read_bytes()
    damaged.write_bytes(content[:100] + b"\xff" + content[101:])
    found = in_this_process("compact", "--archive", url, "--topic", "orders", "--json", "--quiet")
    bad, fine = found.lines()
    assert (found.code, bad["commit"]) == (3, None)
    assert damaged.name in bad["problem"]
    assert fine["problem"] is None


@pytest.mark.leaves_damage("missing_object")
def test_a_vanished_object_stops_its_partition_alone_and_is_reported_with_what_to_do(url: str) -> None:
    vanished = sorted(Path(url).glob("*/orders/0/*/segments/*.log"))[1]
    vanished.unlink()
    arguments = ("compact", "--archive", url, "--json", "--engine", "local")
    found = in_this_process(*arguments, "--topic", "orders", "--quiet")
    bad, fine = found.lines()
    assert (found.code, bad["commit"], fine["problem"]) == (3, None, None)
    assert vanished.name in bad["problem"]
    assert "committed, but not in the store; restore the object from a replica of the bucket" in bad["problem"]
    foreseen = in_this_process(*arguments, "--what-if", "--quiet")
    assert foreseen.code == 3
    problems = {row["partition"]: row["problem"] for row in foreseen.lines()}
    assert vanished.name in problems.pop(0)
    assert set(problems.values()) == {None}
    table = in_this_process("compact", "--archive", url, "--topic", "orders", "--engine", "local").out
    (shown,) = [line for line in table.splitlines() if "orders-0" in line]
    assert "failed" in shown
    assert " 0 " not in shown


def test_gc_of_a_topic_that_is_not_there_is_wrong_usage(url: str) -> None:
    found = in_this_process("gc", "--archive", url, "--topic", "nope")
    assert (found.code, "orders" in found.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "name a partition directory, or --topic REGEX of an archive"),
        (("--topic", "t"), "store.url: not set"),
        (("--archive", "a", "b-0"), "give only one of a partition directory and --archive URL"),
        (("--archive", "a"), "--topic"),
        (("--archive", "a", "--topic", "t", "--out", "o"), "--out"),
        (("a-0", "--topic", "t", "--dry-run"), "--topic"),
    ],
)
def test_contradictions_are_refused(arguments: tuple[str, ...], named: str) -> None:
    found = in_this_process("compact", *arguments)
    assert (found.code, named in found.err) == (2, True)


def rows_by_partition(url: str) -> dict[int, dict[str, Any]]:
    return {row["partition"]: row for row in in_this_process("status", "--archive", url, "--json").lines()}


def test_a_dry_run_says_whether_there_would_be_a_commit(url: str) -> None:
    """The second compaction would remove no record, and would end the undo of the first one."""
    place = ("compact", "--archive", url, "--topic", "orders", "--quiet")
    for is_needed in (True, False):
        dry = in_this_process(*place, "--dry-run", "--json").lines()
        shown = in_this_process(*place, "--dry-run").out
        done = in_this_process(*place, "--json").lines()
        assert {row["would_commit"] for row in dry} == {row["commit"] is not None for row in done} == {is_needed}
        assert ("would be" in shown) == is_needed
        changing = ("now_ms", "commit", "would_commit", *(("bytes_after", "segments") if is_needed else ()))
        for before, after in zip(dry, done, strict=True):
            assert {**before, **dict.fromkeys(changing)} == {**after, **dict.fromkeys(changing)}


def test_topics_of_one_name_are_told_apart_by_their_clusters(url: str, tmp_path: Path) -> None:
    place = ["--archive", archived("3.9.1", tmp_path), "--topic", "orders"]
    roots = {str(path.relative_to(url)) for path in Path(url).glob("*/orders/*/*")}
    assert len(roots) == 4
    commands = (["compact", "--what-if"], ["compact", "--engine", "local"], ["compact", "--undo"], ["gc"])
    for command in commands:
        found = in_this_process(*command, *place)
        assert found.code == 0
        assert {root for root in roots if root in found.out} == roots, command
        rows = [row for row in in_this_process(*command, *place, "--json").lines() if "topic" in row]
        fields = ("cluster_id", "topic", "partition", "incarnation")
        assert {"/".join(str(row[field]) for field in fields) for row in rows} == roots, command
    # Nothing is longer than it needs to be: these are of one cluster.
    (other,) = {root.partition("/")[0] for root in roots} - {manifest("3.9.1")["cluster_id"]}
    shutil.rmtree(Path(url) / other)
    assert "orders/0" not in in_this_process("gc", *place).out


def test_a_compaction_is_undone_partition_by_partition(url: str) -> None:
    place = ["--archive", url, "--topic", "orders"]
    before = rows_by_partition(url)
    assert {row["undo_until_ms"] for row in before.values()} == {None}
    assert in_this_process("compact", *place, "--quiet", "--engine", "local").code == 0
    compacted = rows_by_partition(url)
    assert all(row["undo_until_ms"] > 0 for row in compacted.values())
    shown = in_this_process("status", "--archive", url)
    assert "undo until" in shown.out
    dry = in_this_process("compact", *place, "--undo", "--dry-run", "--json")
    assert (dry.code, {row["commit"] for row in dry.lines()}) == (0, {None})
    assert rows_by_partition(url) == compacted
    assert in_this_process("compact", *place, "--undo", "--partition", "7").code == 2
    done = in_this_process("compact", *place, "--undo", "--partition", "0", "--json")
    (row,) = done.lines()
    assert (done.code, row["kind"], row["version"], row["problem"]) == (0, "compaction_undo", 1, None)
    assert row["segments_live_again"] > 0
    assert row["commit"] == row["undone_commit"] + 1
    after = rows_by_partition(url)
    assert after[0] == before[0]
    assert all(after[number] == compacted[number] for number in after if number)
    assert in_this_process("verify", "--archive", url, "--deep").code == 0
    again = in_this_process("compact", *place, "--undo", "--partition", "0")
    assert again.code == 0
    assert "nothing to undo: commit" in again.err
    assert "has undone the newest compaction already" in again.err
    (row,) = in_this_process("compact", *place, "--undo", "--partition", "0", "--json").lines()
    assert (row["nothing_to_undo"], row["undone_commit"], row["problem"]) == ("undone", None, None)


@pytest.mark.parametrize(
    ("obstacle", "text"),
    [
        (
            Obstacle(NoUndo.NEVER_COMPACTED),
            "nothing to undo: no live segment comes from a compaction of the archive (before_upload keeps none raw)",
        ),
        (Obstacle(NoUndo.UNDONE, 9), "nothing to undo: commit 9 has undone the newest compaction already"),
        (
            Obstacle(NoUndo.PURGED),
            (
                "the newest compaction cannot be undone: gc has committed the deletion of what it replaced. The compacted "
                "segments stay live"
            ),
        ),
        (
            Obstacle(NoUndo.UNDONE, 9, (RemovedSegment("a", 0, 5, 1_700_000_000_000, "", 0, 4),)),
            (
                "nothing to undo: commit 9 has undone the newest compaction already. Only the newest compaction can be undone: "
                "commit 4, an older compaction, replaced 1 segment, which gc keeps until 2023-11-14T23:13:20Z at least"
            ),
        ),
    ],
)
def test_each_reason_why_nothing_is_undone_has_a_text_of_its_own(obstacle: Obstacle, text: str) -> None:
    assert reason_of(obstacle, 3_600_000) == text


def test_a_failed_undo_shows_no_figures(url: str) -> None:
    place = ["--archive", url, "--topic", "orders", "--partition", "0"]
    assert in_this_process("compact", *place[:4], "--quiet", "--engine", "local").code == 0
    root = next(Path(url).glob("*/orders/0/*"))
    removed = next(
        action["segment_id"]
        for path in sorted(root.glob("commits/*.json"))
        for action in json.loads(path.read_text())["commit"]["actions"]
        if action["type"] == "remove"
    )
    for path in root.glob(f"segments/*{removed}*"):
        path.unlink()
    found = in_this_process("compact", *place, "--undo")
    assert found.code == 3
    (row,) = [line for line in found.out.splitlines() if "orders-0" in line]
    assert row.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split() == ["orders-0", "-", "-", "-", "-", "failed"]


@pytest.mark.parametrize("command", [("status",), ("verify",), ("verify", "--deep"), ("compact", "--topic", "hdr")])
def test_a_store_that_lets_nothing_be_read_is_exit_code_6_everywhere(command: tuple[str, ...], tmp_path: Path) -> None:
    """It lists its objects, and refuses to give any."""
    site = Site(tmp_path)
    engine = ("--engine", "local") if "--topic" in command else ()
    objects = [path for path in site.archive.rglob("*") if path.is_file()]
    for path in objects:
        path.chmod(0)
    found = unprivileged.in_this_process(*command, "--archive", site.archive, *engine)
    assert found.code == 6, found
    for path in objects:
        path.chmod(0o644)
    assert unprivileged.in_this_process(*command, "--archive", site.archive, *engine).code == 0


def test_a_partition_goes_with_an_undo_only() -> None:
    found = in_this_process("compact", "--archive", "x", "--topic", "t", "--partition", "1")
    assert (found.code, "--partition goes with --undo only" in found.err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("DIR", "--undo"),
        ("--archive", "x", "--undo"),
        ("--archive", "x", "--topic", "t", "--undo", "--what-if"),
        ("--archive", "x", "--topic", "t", "--undo", "--out", "y"),
        *(
            ("--archive", "x", "--topic", "t", "--undo", *flags)
            for flags in (
                ("--strategy", "header"),
                ("--strategy", ""),
                ("--header", "zzz"),
                ("--no-strict",),
                ("--on-unkeyed", "drop"),
                ("--now-ms", "0"),
                ("--delete-retention-ms", "0"),
                ("--segment-bytes", "50"),
                ("--exact-keys",),
                ("--override",),
                ("--engine", "local"),
                ("--master", "local[1]"),
            )
        ),
    ],
)
def test_an_undo_needs_an_archive_and_topics(arguments: tuple[str, ...]) -> None:
    found = in_this_process("compact", *arguments)
    assert found.code == 2
    assert "--undo needs --topic REGEX of an archive" in found.err


def test_the_archive_of_the_settings_file_is_compacted(url: str, tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(f"store: {{url: {url}}}\n")
    arguments = ("compact", "--config", config, "--topic", "orders", "--json", "--quiet", "--engine", "local")
    compacted = in_this_process(*arguments)
    assert (compacted.code, [row["commit"] is None for row in compacted.lines()]) == (0, [False, False])
    undone = in_this_process("compact", "--config", config, "--topic", "orders", "--undo", "--json")
    assert (undone.code, [row["commit"] is None for row in undone.lines()]) == (0, [False, False])


@pytest.mark.leaves_damage("size_mismatch")
@pytest.mark.parametrize("size_bytes", [0, 100])
@pytest.mark.parametrize("command", ["compact --dry-run", "compact --topic .*", "snapshots check", "verify"])
def test_a_truncated_object_is_damaged_and_not_a_change(command: str, size_bytes: int, url: str) -> None:
    log = min(Path(url).rglob("orders/0/*/segments/*.log"))
    committed = log.stat().st_size
    log.chmod(0o644)
    log.write_bytes(log.read_bytes()[:size_bytes])
    outcome = in_this_process(*command.split(), "--archive", url, "--quiet")
    assert outcome.code in {3, 4}
    shown = outcome.out + outcome.err
    assert f"has {size_bytes} bytes in the store, but the commit says {committed}" in shown
    assert "from a replica of the bucket or" in shown
    assert "became shorter" not in shown
