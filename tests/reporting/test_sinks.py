"""What each domain event becomes: a line of the log, a sample of a metric, and something on the status page."""

from __future__ import annotations

import ast
import errno
import math
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import sidecar
from sidecar.archive.actions import DeleteRecords, Lost
from sidecar.archive.coverage import ArchiveExtent
from sidecar.errors import CorruptFile, StoreDenied
from sidecar.metrics import Metrics
from sidecar.model import FileIdentity, SegmentFiles, TopicPartition
from sidecar.partition import domain_events as events
from sidecar.partition.status import PartitionCondition, PartitionStatus
from sidecar.reporting.log_sink import fan_out, log_event
from sidecar.reporting.status_model import StatusModel
from tests.fakes.manual_clock import ManualClock
from tests.runner.archived import segment as archived_segment

NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
LOGS = Path("logs")
SEGMENT = SegmentFiles(ORDERS, LOGS, 0, 10, FileIdentity(LOGS / "orders-0", "0.log", 1, 100, 0), None, None, None, None)
ENTRY = archived_segment(0, 10)
DENIED = StoreDenied("not allowed")
WAITS = PartitionStatus(
    ORDERS,
    True,
    0,
    10,
    pending_segments=1,
    deadline_ms=NOW_MS + 5_000,
    is_retention_known=False,
    condition=PartitionCondition.WAITING,
    oldest_pending_ms=NOW_MS - 7_000,
)
CHECKED = events.PartitionsChecked((WAITS,), frozenset())

Lines = list[tuple[str, str]]
Samples = dict[str, float]
Errors = list[tuple[str, str]]


def reported(*happened: events.DomainEvent) -> tuple[list[Any], Metrics, StatusModel]:
    clock = ManualClock(NOW_MS)
    metrics, status = Metrics(clock), StatusModel(clock)
    emit = fan_out(metrics.handle, status.handle, log_event)
    with capture_logs() as logs:
        for event in happened:
            emit(event)
    return logs, metrics, status


NEVER_ARCHIVED = (
    f"{events.LossReason.NOT_ON_DISK}; the partition had no archive before, so its archive begins above them"
)


@pytest.mark.parametrize(
    ("event", "lines", "samples", "errors"),
    [
        (events.SegmentUploadStarted(SEGMENT), [], {}, []),
        (
            events.SegmentUploaded(SEGMENT, 108, 1.5),
            [],
            {"segments_total{stage=uploaded,result=ok}": 1, "upload_duration_seconds_sum": 1.5},
            [],
        ),
        (events.SegmentUploadFailed(SEGMENT), [], {"segments_total{stage=uploaded,result=failed}": 1}, []),
        (
            events.SegmentCommitted(SEGMENT, ENTRY, "equal"),
            [("info", "segment_committed")],
            {"segments_total{stage=committed,result=ok}": 1, "snapshot_conformance_total{result=equal}": 1},
            [],
        ),
        (
            events.SnapshotMismatch(SEGMENT, ENTRY, "epoch 3, not 4"),
            [("error", "producer_snapshot_mismatch")],
            {},
            [("SnapshotMismatch", "epoch 3, not 4")],
        ),
        (events.CommitFailed(), [], {"segments_total{stage=committed,result=failed}": 1}, []),
        (
            events.OffsetsLost(ORDERS, 3, 8),
            [("error", "offsets_lost")],
            {"lost_offsets_total": 5, "last_loss_timestamp_seconds": NOW_MS / 1000},
            [("OffsetsLost", f"offsets 3 to 7 recorded as LOST: {events.LossReason.NOT_ON_DISK}")],
        ),
        (
            events.OffsetsLost(ORDERS, 3, 8, is_recorded=False),
            [("error", "offsets_lost")],
            {"lost_offsets_total": 5},
            [("OffsetsLost", f"offsets 3 to 7 are lost: {NEVER_ARCHIVED}")],
        ),
        (
            events.DeletedBeforeArchived(ORDERS, 3, 8),
            [("warning", "deleted_before_archived")],
            {"lost_offsets_total": 0},
            [],
        ),
        (events.RecordsDeleted(ORDERS, 8, 1), [("warning", "records_deleted")], {}, []),
        (
            events.DeletedRecordsUnknown(ORDERS, 8, CorruptFile("damaged")),
            [("warning", "deleted_records_unknown")],
            {},
            [],
        ),
        (events.LostOffsetsOnDisk(ORDERS, "again"), [("error", "lost_offsets_on_disk")], {}, []),
        (
            events.OffsetsTakenAsCompacted(SEGMENT, (5, 10), "compact"),
            [("warning", "missing_offsets_accepted_as_compacted")],
            {"offsets_accepted_as_compacted_total": 5},
            [],
        ),
        (events.MarkerAdded(SEGMENT, 7, 3, 5, may_be_committed=False), [("warning", "abort_marker_added")], {}, []),
        (
            events.MarkerAdded(SEGMENT, 7, 3, 5, may_be_committed=True),
            [("error", "hidden_transaction_may_be_committed")],
            {},
            [],
        ),
        (events.DeletesMayBeMissing(SEGMENT, 90_000_000), [("warning", "deletes_may_be_missing")], {}, []),
        (events.PinReleased("0.log", 100, "full"), [("error", "pinned_segment_released")], {}, []),
        (events.PinsChecked({ORDERS: 3}), [], {"unpinned_segments": 3}, []),
        (events.TransactionHangs(SEGMENT, 7, 3, 900.4), [("warning", "hanging_transaction")], {}, []),
        (events.ExtentChanged(ORDERS, ArchiveExtent(1)), [], {}, []),
        (CHECKED, [], {"pending_segments": 1, "data_at_risk_in_seconds": 5, "retention_unknown_partitions": 1}, []),
        (CHECKED, [], {"partitions{state=waiting}": 1, "oldest_pending_segment_age_seconds": 7}, []),
        (events.PartitionChecked(WAITS), [], {}, []),
        (
            events.PartitionFailed(ORDERS, DENIED),
            [("error", "partition_stopped")],
            {"errors_total{kind=StoreDenied}": 1},
            [("StoreDenied", "not allowed")],
        ),
        (
            events.DirectoryUnreadable("/data", DENIED),
            [("error", "scan_problem")],
            {},
            [("StoreDenied", "not allowed")],
        ),
        (events.BrokerFactsRead(NOW_MS, True, 2), [], {"broker_unreachable": 1, "broker_denied_permissions": 2}, []),
        (events.CycleProgressed(0, archived=True), [], {"last_success_timestamp_seconds": NOW_MS / 1000}, []),
        (events.CycleEnded(2, 3), [], {"partitions{state=stopped}": 2, "unfinished_attempts": 3}, []),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.DomainEvent) else "",
)
def test_each_event_becomes_its_line_its_samples_and_its_error(
    event: events.DomainEvent, lines: Lines, samples: Samples, errors: Errors
) -> None:
    logs, metrics, status = reported(event)
    assert [(line["log_level"], line["event"]) for line in logs] == lines
    for name, value in samples.items():
        series, _, labels = name.removesuffix("}").partition("{")
        found = metrics.registry.get_sample_value(
            f"tiered_sidecar_{series}", dict(label.split("=") for label in labels.split(",") if label)
        )
        assert found == value, name
    assert [(error.kind, error.text) for error in status.figures().errors] == errors


def test_a_log_that_cannot_be_written_keeps_no_other_sink_from_an_event() -> None:
    def full(_event: events.DomainEvent) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    status = StatusModel(ManualClock(NOW_MS))
    fan_out(full, status.handle)(events.PartitionFailed(ORDERS, DENIED))
    assert [error.kind for error in status.figures().errors] == ["StoreDenied"]


def test_no_event_is_without_an_example_above() -> None:
    (mark,) = test_each_event_becomes_its_line_its_samples_and_its_error.pytestmark  # type: ignore[attr-defined]
    shown = {type(row[0]).__name__ for row in mark.args[1]} | {"BacklogChanged"}
    assert shown == {found.__name__ for found in events.DomainEvent.__subclasses__()}


def test_a_commit_moves_the_risk_of_its_partition_and_of_no_other() -> None:
    other = TopicPartition("other", 0)
    checked = events.PartitionsChecked(
        (WAITS, PartitionStatus(other, True, 0, 10, deadline_ms=NOW_MS + 9_000)), frozenset()
    )
    for backlog, at_risk_in_s, unknown, age_s in (
        (events.BacklogChanged(ORDERS, 1, 100, NOW_MS - 2_000, NOW_MS + 7_000, 0), 7, 1, 2),
        (events.BacklogChanged(ORDERS, 0, 0, None, None, 0), 9, 0, 0),
    ):
        _, metrics, _ = reported(checked, backlog)
        shown = [
            metrics.registry.get_sample_value(f"tiered_sidecar_{name}")
            for name in (
                "data_at_risk_in_seconds",
                "retention_unknown_partitions",
                "oldest_pending_segment_age_seconds",
            )
        ]
        assert shown == [at_risk_in_s, unknown, age_s]


def test_what_is_at_risk_is_unknown_before_the_first_check() -> None:
    _, metrics, _ = reported()
    at_risk_in_s = "tiered_sidecar_data_at_risk_in_seconds"
    assert math.isnan(metrics.registry.get_sample_value(at_risk_in_s) or 0)
    metrics.handle(events.PartitionsChecked((), frozenset()))
    assert metrics.registry.get_sample_value(at_risk_in_s) == math.inf


def test_an_active_segment_is_at_risk_as_others_are() -> None:
    idle = PartitionStatus(ORDERS, True, 0, 10, active_deadline_ms=NOW_MS + 3_000)
    _, metrics, _ = reported(events.PartitionsChecked((idle,), frozenset()))
    assert metrics.registry.get_sample_value("tiered_sidecar_data_at_risk_in_seconds") == 3


def test_the_lines_name_all_that_an_alert_or_a_person_needs() -> None:
    (committed, lost), _, _ = reported(
        events.SegmentCommitted(SEGMENT, ENTRY, "equal", ("index",)), events.OffsetsLost(ORDERS, 3, 8, 8)
    )
    assert committed == {
        "log_level": "info",
        "event": "segment_committed",
        "topic": "orders",
        "partition": 0,
        "base_offset": 0,
        "end_offset": 10,
        "segment_id": ENTRY.segment_id,
        "size_bytes": ENTRY.size_bytes,
        "snapshot_origin": "broker",
        "replaced_indexes": ["index"],
    }
    assert {**lost, "action": ""} == {
        "log_level": "error",
        "event": "offsets_lost",
        "partition": "orders-0",
        "from_offset": 3,
        "to_offset": 8,
        "log_start_offset": 8,
        "reason": "no longer on the broker's disk when it was to be archived",
        "action": "",
    }


def test_a_commit_is_reported_by_what_it_says() -> None:
    said = [Lost(0, 4, events.LossReason.DELETED_FIRST), Lost(4, 9, events.LossReason.NOT_ON_DISK), DeleteRecords(4)]
    assert list(events.committed_events(ORDERS, said, 5, 9)) == [
        events.DeletedBeforeArchived(ORDERS, 0, 4, 9),
        events.OffsetsLost(ORDERS, 4, 9, 9),
        events.RecordsDeleted(ORDERS, 4, 5, 9),
    ]


def test_nothing_decides_by_the_status_model() -> None:
    """It is fed by the sinks, made by the daemon and its supervisor, and rendered by `http`. Nothing else can read it."""
    product = Path(sidecar.__file__).parent
    may_read = {"reporting", "http", "daemon.py", "supervisor.py"}
    for path in product.rglob("*.py"):
        name = path.relative_to(product)
        if name.parts[0] in may_read:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            for module in imported:
                assert module != "sidecar.reporting.status_model", name
