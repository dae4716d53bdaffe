"""What the archive has not, or cannot tell, of some partitions: reported, and never taken for success."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli.restore.report import as_json, show
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import LineageUnknown, PartitionError, SettingsError
from sidecar.logformat.names import TRANSACTION_STATE_TOPIC
from sidecar.restore.plan import choose_lineage
from sidecar.restore.request import LeaderEpochMode, ProducerStateMode, RestoreRequest, TargetCluster
from sidecar.restore.restore import RestoreReport, plan_restore, restore
from sidecar.runner.archive_loop import ArchiveLoop
from tests.fakes.memory_store import MemoryStore
from tests.golden import manifest
from tests.restore.archives import CLOCK, archived, golden_topic_id, other_log_dir, own_log_dir, restored
from tests.restore.test_refusals import OTHER_ID, new_topic
from tests.runner.rig import archived_states, copy_partitions, tools_for

ID = str(golden_topic_id("orders"))
OTHER_CLUSTER = "3OtherClusterId0000000"


def run(store: MemoryStore, log_dir: Path, **request: Any) -> RestoreReport:
    return restore(store, CLOCK, RestoreRequest("orders", log_dir, **{"topic_id": ID, **request}))


def without(part: str) -> MemoryStore:
    store = archived()
    for key in [key for key in store.objects if part in key]:
        del store.objects[key]
    return store


def test_a_gap_in_the_numbers_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(without("/orders/0/"), own_log_dir(tmp_path))
    assert (report.not_archived, report.exit_code) == ([0], 3)
    assert as_json(report)["not_archived"] == [0]
    show(report, colors=False, dry_run=False)
    assert "partitions 0: they are not in the archive" in capsys.readouterr().err


def test_the_targets_directories_and_the_cluster_tell_of_more(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    new_topic(log_dir, "orders-2", ID)
    assert run(archived(), log_dir).not_archived == [2]
    (tmp_path / "fresh").mkdir()
    cluster = TargetCluster("b2:9092", str(manifest("4.3.0")["cluster_id"]), ID, dict.fromkeys(range(5), 9))
    assert run(archived(), tmp_path / "fresh", cluster=cluster).not_archived == [2, 3, 4]
    # Who names partitions has named them all.
    (tmp_path / "one").mkdir()
    named = run(archived(), own_log_dir(tmp_path / "one"), partitions=(1,))
    assert (named.not_archived, named.exit_code) == ([], 0)


def with_another_history(of: MemoryStore, partition: int) -> MemoryStore:
    """An archive in which this partition of the topic is a second time, as of another cluster."""
    store = archived()
    own = str(manifest("4.3.0")["cluster_id"])
    for key, content in of.objects.items():
        cluster_id, _, below = key.partition("/")
        if below.startswith(f"orders/{partition}/"):
            store.objects[f"{OTHER_CLUSTER if cluster_id == own else cluster_id}/{below}"] = content
    return store


def test_a_partition_of_which_two_histories_may_be_meant_stops_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, log_dir = with_another_history(archived(), 0), own_log_dir(tmp_path)
    report = run(store, log_dir)
    assert report.exit_code == 3
    (done,), (stopped,) = report.outcomes, report.unreadable
    assert (done.plan.topic_partition.partition, done.state, stopped.topic_partition.partition) == (1, "restored", 0)
    assert {"lineage": None, "state": "stopped"}.items() <= stopped.to_json().items()
    assert sorted(path.name for path in log_dir.glob("orders*")) == ["orders-0.restoring", "orders-1"]
    show(report, colors=False, dry_run=False)
    reported = capsys.readouterr().err
    assert "orders-0: several histories are archived" in reported
    assert reported.count(", last committed to at ") == 2
    assert "--cluster-id ID, --incarnation ID, with --partition 0" in reported
    # As it was reported.
    report = run(store, log_dir, partitions=(0,), cluster_id=str(manifest("4.3.0")["cluster_id"]))
    assert (report.exit_code, report.unfinished) == (0, [])
    assert sorted(path.name for path in log_dir.glob("orders*")) == ["orders-0", "orders-1"]


def test_of_several_histories_the_newest_is_named_first(tmp_path: Path) -> None:
    """A topic that was deleted and created again: which of its ids was the last one is in no other place."""
    state = archived_states(archived())["orders-0"]
    later = replace(state, last_committed_at_ms=state.last_committed_at_ms + 1, topic_id=OTHER_ID)
    request = RestoreRequest("orders", tmp_path)
    for states in ((state, later), (later, state)):
        with pytest.raises(LineageUnknown) as refused:
            choose_lineage(states, request)
        times = [found.last_committed_at_ms for found in (later, state)]
        assert [int(found) for found in re.findall(r"last committed to at (\d+)", str(refused.value))] == times


def test_the_only_history_of_a_partition_is_not_for_that_the_one_that_is_meant(tmp_path: Path) -> None:
    # Partition 1 has only the history of one of two topics, and which of them is wanted was not said.
    store, log_dir = with_another_history(archived("3.9.1"), 0), own_log_dir(tmp_path)
    with pytest.raises(LineageUnknown, match="orders-0: several histories"):
        run(store, log_dir, topic_id=OTHER_ID)
    assert not list(log_dir.glob("orders*"))
    assert [outcome.state for outcome in run(store, log_dir).outcomes] == ["restored", "restored"]


def test_a_stray_folder_far_above_the_topics_numbers_costs_no_memory(tmp_path: Path) -> None:
    store = without("/orders/0/")
    cluster_id, _, below = first_commit(store).partition("/orders/1/")
    store.objects[f"{cluster_id}/orders/2147483647/{below.split('/')[0]}/what"] = b""
    report = run(store, own_log_dir(tmp_path))
    assert (report.not_archived, report.exit_code) == ([0, 2147483647], 3)


def first_commit(store: MemoryStore, partition: int = 1) -> str:
    return min(key for key in store.objects if f"/orders/{partition}/" in key and "/commits/" in key)


def without_checkpoints() -> MemoryStore:
    return without("/checkpoints/")


def test_a_damaged_commit_stops_only_its_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, log_dir = without_checkpoints(), own_log_dir(tmp_path)
    key = first_commit(store)
    good = store.objects[key]
    store.objects[key] = b"{}"
    plan = plan_restore(store, CLOCK, RestoreRequest("orders", log_dir, topic_id=ID))
    assert (plan.exit_code, [found.topic_partition.partition for found in plan.unreadable]) == (3, [1])
    report = run(store, log_dir)
    assert report.exit_code == 3
    assert [row["state"] for row in as_json(report)["partitions"]] == ["restored", "stopped"]
    assert as_json(report)["partitions"][0].keys() == as_json(report)["partitions"][1].keys()
    show(report, colors=False, dry_run=False)
    assert key in (reported := capsys.readouterr().err)
    assert "orders-1.restoring stays, and no broker starts while it is there" in reported
    assert (log_dir / "orders-1.restoring").is_dir()
    store.objects[key] = good
    again = run(store, log_dir)
    assert [outcome.state for outcome in again.outcomes] == ["done before", "restored"]
    assert not list(log_dir.rglob("*.note"))


@pytest.mark.leaves_damage("commit_log")
def test_a_missing_commit_stops_only_its_partition(tmp_path: Path) -> None:
    store = without_checkpoints()
    del store.objects[first_commit(store)]
    report = run(store, own_log_dir(tmp_path))
    assert [row["state"] for row in as_json(report)["partitions"]] == ["restored", "stopped"]


@pytest.mark.leaves_damage("commit_log")
def test_where_no_partition_can_be_read_the_command_ends(tmp_path: Path) -> None:
    store, log_dir = without_checkpoints(), own_log_dir(tmp_path)
    for partition in (0, 1):
        store.objects[first_commit(store, partition)] = b"{}"
    with pytest.raises(PartitionError, match="/orders/0/"):
        run(store, log_dir)
    assert not list(log_dir.glob("orders*"))


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    with pytest.raises(SettingsError, match=r"match for --partition 7. It has: cluster .*, partitions 0, 1"):
        run(archived(), log_dir, partitions=(7,))
    with pytest.raises(
        SettingsError, match=rf"match for --cluster-id x. It has: cluster {manifest('4.3.0')['cluster_id']}"
    ):
        run(archived(), log_dir, cluster_id="x")


def test_without_topic_ids_a_topic_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path, "2.7.2")
    with pytest.raises(SettingsError, match="it is unknown whether the topic was re-created"):
        restored(archived("2.7.2"), log_dir, "orders", "2.7.2", leader_epochs=None)
    assert not list(log_dir.glob("orders*"))
    # What an empty log or the cluster has seen tells.
    new_topic(log_dir, "orders-0", ID, "0\n1\n0 0\n")
    (log_dir / "orders-0" / "partition.metadata").unlink()
    outcome = restored(archived("2.7.2"), log_dir, "orders", "2.7.2", leader_epochs=None)
    assert outcome.decisions is not None
    assert outcome.decisions.leader_epochs is LeaderEpochMode.FLATTEN


def test_another_clusters_producers_are_not_kept_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(archived(), other_log_dir(tmp_path), producer_state=ProducerStateMode.KEEP)
    show(report, colors=False, dry_run=False)
    assert "OUT_OF_ORDER_SEQUENCE" in capsys.readouterr().err


@pytest.mark.parametrize("topic", ["orders", TRANSACTION_STATE_TOPIC])
def test_the_state_of_transactions_is_restored_with_a_warning(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    (source / "orders-0").rename(source / f"{topic}-0")
    for path in source.glob("*-offset-checkpoint"):
        path.write_text(path.read_text().replace("orders 0 ", f"{topic} 0 "))
    scan = partial(scan_log_dirs, [source], TopicFilter(internal=True))
    with tools_for(source, store, tmp_path / "state") as context:
        assert ArchiveLoop(context, scan).run_once().errors == []
    request = RestoreRequest(topic, own_log_dir(tmp_path), topic_id=ID)
    show(plan_restore(store, CLOCK, request), colors=False, dry_run=True)
    assert ("can make producers fail" in capsys.readouterr().err) == (topic != "orders")
