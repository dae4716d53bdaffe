"""For each alert a story in which it fires and one, as near as can be, in which it does not."""

from __future__ import annotations

from dataclasses import dataclass, field

TARGET = 'job="tiered-sidecar", instance="10.0.0.1:9308", pod="kafka-0"'
HOUR_MIN = 60


@dataclass(frozen=True)
class Story:
    """Values by series, one each minute, in the notation of promtool. `{T}` stands for the labels of the target."""

    firing: dict[str, str]
    quiet: dict[str, str]
    summary: str
    """As it is when the alert fires."""
    labels: dict[str, str] = field(default_factory=dict)
    """Those that the alert has besides the target's and the severity."""
    eval_minute: int = 2 * HOUR_MIN
    also_quiet: tuple[dict[str, str], ...] = ()
    also_firing: tuple[dict[str, str], ...] = ()
    """With the same summary."""


COMMITTED = 'tiered_sidecar_segments_total{{T}, stage="committed", result="ok"}'
AGE = "tiered_sidecar_oldest_pending_segment_age_seconds{{T}}"
LOST = "tiered_sidecar_last_loss_timestamp_seconds{{T}}"
DENIED = 'tiered_sidecar_store_requests_total{{T}, operation="upload", result="StoreDenied"}'
MISSING = 'tiered_sidecar_store_requests_total{{T}, operation="read", result="ObjectMissing"}'
STORED = 'tiered_sidecar_store_requests_total{{T}, operation="upload", result="ok"}'
SUCCESS = "tiered_sidecar_last_success_timestamp_seconds{{T}}"
STARTED = "process_start_time_seconds{{T}}"
STARTS = "tiered_sidecar_starts_total{{T}}"
UP = "up{{T}}"
BUILD = 'tiered_sidecar_build_info{{T}, version="0.1.0", python="3.11"}'


BROKER = 'kube_pod_labels{{T}, namespace="kafka", label_strimzi_io_broker_role="true"}'
OTHER_SIDECAR = 'kube_pod_init_container_info{namespace="kafka", pod="other", container="tiered-sidecar"}'


def _errors(kind: str) -> str:
    return f'tiered_sidecar_errors_total{{{{T}}, kind="{kind}"}}'


def _conformance(result: str) -> str:
    return f'tiered_sidecar_snapshot_conformance_total{{{{T}}, result="{result}"}}'


def _not_ready(condition: str) -> str:
    return f'tiered_sidecar_not_ready{{{{T}}, condition="{condition}"}}'


STORIES: dict[str, Story] = {
    "TieredSidecarUploadsStalled": Story(
        firing={AGE: "0+60x200", COMMITTED: "5x200"},
        # A large backlog: old segments, but one arrives every ten minutes.
        quiet={AGE: "0+60x200", COMMITTED: "0+0.1x200"},
        summary="kafka-0: no segment was archived for 30 minutes; the oldest waits for 2h 0m 0s",
    ),
    "TieredSidecarSegmentStuck": Story(
        # One partition is stuck while others are busy.
        firing={AGE: "0+60x600", COMMITTED: "0+5x600"},
        # A backlog of a week that is worked off.
        quiet={AGE: "0x3 600000-20x597"},
        summary="kafka-0: the same segment has waited for 8h 20m 0s",
        eval_minute=500,
        # A week's backlog that came three hours ago or less, and is worked off: after 20 minutes, and after 100.
        also_quiet=(
            {AGE: "0x480 600000-3000x120", COMMITTED: "0x480 5+20x120"},
            {AGE: "0x400 600000-3000x200", COMMITTED: "0x400 5+20x200"},
        ),
    ),
    "TieredSidecarDataAtRisk": Story(
        firing={"tiered_sidecar_data_at_risk_in_seconds{{T}}": "9000-60x200"},
        quiet={"tiered_sidecar_data_at_risk_in_seconds{{T}}": " ".join(["+Inf"] * 200)},
        summary="kafka-0: in 30m 0s the broker deletes a segment that is not archived",
    ),
    "TieredSidecarDeletedSegmentsPinned": Story(
        firing={"tiered_sidecar_pinned_deleted_bytes{{T}}": "0x60 2831155x140"},
        # Retention takes what is on its way: it is in the archive within minutes.
        quiet={"tiered_sidecar_pinned_deleted_bytes{{T}}": "0x60 2831155x3 0x54 2831155x2 0x80"},
        summary="kafka-0: 2.7MiB that the broker deleted are not archived, and exist only as pinned files",
    ),
    "TieredSidecarSegmentsNotPinned": Story(
        firing={"tiered_sidecar_unpinned_segments{{T}}": "0x30 904x170"},
        # A backlog that is worked off at once.
        quiet={"tiered_sidecar_unpinned_segments{{T}}": "0x30 904x10 0x160"},
        summary="kafka-0: 904 segments wait for upload without a pin",
    ),
    "TieredSidecarRetentionUnknown": Story(
        firing={"tiered_sidecar_retention_unknown_partitions{{T}}": "0x30 3x170"},
        # A broker that restarts, and segments that wait for a moment.
        quiet={"tiered_sidecar_retention_unknown_partitions{{T}}": "0x90 3x10 0x10 3x90"},
        summary="kafka-0: the retention of 3 partitions with waiting segments is unknown",
    ),
    "TieredSidecarCoverageGap": Story(
        # Promtool's clock begins at 0. Losses of a moment ago, and of two days ago.
        firing={_errors("CoverageHole"): "0x200", LOST: "7000x200"},
        quiet={_errors("CoverageHole"): "1x200", _errors("CorruptFile"): "0x115 1x85", LOST: "-172800x200"},
        summary="kafka-0: offsets were deleted from disk before they were archived",
    ),
    "TieredSidecarPartitionsStopped": Story(
        firing={'tiered_sidecar_partitions{{T}, state="stopped"}': "0x60 2x140"},
        # One failed try, and the next succeeds.
        quiet={
            'tiered_sidecar_partitions{{T}, state="stopped"}': "0x115 1x3 0x82",
            'tiered_sidecar_partitions{{T}, state="waiting"}': "3x200",
        },
        summary="kafka-0: 2 partitions are stopped",
        labels={"state": "stopped"},
    ),
    "TieredSidecarSnapshotMismatch": Story(
        firing={_conformance("wrong"): "0x70 3x130", _conformance("corrupt"): "0x200"},
        # Brokers before 2.8 leave none, and brokers may differ among themselves.
        quiet={
            _conformance("wrong"): "3x200",
            _conformance("absent"): "0+1x200",
            _conformance("permissible"): "0+1x200",
        },
        summary="kafka-0: 3 producer snapshots of the broker contradict the log",
    ),
    "TieredSidecarBrokerCleanerStalled": Story(
        firing={"tiered_sidecar_broker_cleaner_stalled{{T}}": "0x60 2x140"},
        # Much is dirty, but the cleaner moves.
        quiet={
            "tiered_sidecar_broker_cleaner_stalled{{T}}": "0x115 1x3 0x82",
            "tiered_sidecar_broker_cleaner_dirty_bytes{{T}}": "0+1000000x200",
        },
        summary="kafka-0: the broker's log cleaner makes no progress on 2 partitions",
    ),
    "TieredSidecarCompactionStalled": Story(
        firing={"tiered_sidecar_compaction_oldest_due_age_seconds{{T}}": "0+60x600"},
        quiet={"tiered_sidecar_compaction_oldest_due_age_seconds{{T}}": "0+60x300 0+60x300"},
        summary="kafka-0: a partition has been due for compaction for 8h 20m 0s",
        eval_minute=500,
    ),
    "TieredSidecarCompactionInvalidRecords": Story(
        firing={'tiered_sidecar_compaction_invalid_records_total{{T}, kind="unkeyed"}': "0x100 60x100"},
        quiet={'tiered_sidecar_compaction_invalid_records_total{{T}, kind="unkeyed"}': "60x200"},
        summary="kafka-0: compaction read 60 unkeyed records within an hour",
        labels={"kind": "unkeyed"},
    ),
    "TieredSidecarArchivedWithoutCompaction": Story(
        firing={'tiered_sidecar_compaction_uncompacted_segments_total{{T}, reason="delay_over"}': "0x100 6x100"},
        quiet={'tiered_sidecar_compaction_uncompacted_segments_total{{T}, reason="delay_over"}': "6x200"},
        summary="kafka-0: 6 segments were archived without compaction within an hour (delay_over)",
        labels={"reason": "delay_over"},
    ),
    "TieredSidecarPartitionUncleanable": Story(
        firing={_errors("StagingTooSmall"): "0x115 1x85"},
        quiet={_errors("StagingTooSmall"): "4x200"},
        summary="kafka-0: a partition is not compacted: too little space for its work files",
    ),
    "TieredSidecarStoreErrors": Story(
        firing={DENIED: "0+1x200", STORED: "0+3x200", MISSING: "0+0x200"},
        # Absent objects are answers, not errors.
        quiet={DENIED: "0x200", STORED: "0+3x200", MISSING: "0+3x200"},
        summary="kafka-0: 25% of the requests to the object store fail",
    ),
    "TieredSidecarDown": Story(
        # It lives for a minute, and then not for four.
        firing={UP: "1x60 " + "1 0x3 " * 28, BUILD: "1x60"},
        # A restart; and another program's target in the same job.
        quiet={UP: "1x110 0x5 1x80", BUILD: "1x200", 'up{job="tiered-sidecar-not", instance="10.0.0.9:80"}': "1x200"},
        summary="kafka-0: the sidecar does not respond, or only sometimes",
    ),
    "TieredSidecarRestarting": Story(
        firing={STARTED: "0x70 60x10 120x20 180x20", BUILD: "1x200"},
        # Restarted twice, as a change of settings may need; and another program that restarts over and over.
        quiet={STARTED: "0x70 60x20 120x100", BUILD: "1x200", 'process_start_time_seconds{job="other"}': "0+60x200"},
        summary="kafka-0: the sidecar started 3 times within an hour",
        # In one process, with --retry-start.
        also_firing=({STARTED: "0x200", STARTS: "1x70 2x10 3x20 4x100", BUILD: "1x200"},),
        also_quiet=({STARTED: "0x200", STARTS: "1x70 2x20 3x120", BUILD: "1x200"},),
    ),
    "TieredSidecarNoSuccess": Story(
        firing={SUCCESS: "60x600", STARTED: "0x600"},
        # Just started, and not successful yet.
        quiet={SUCCESS: "0x600", STARTED: "21600x600"},
        summary="kafka-0: no check ended without an error for 6 hours",
        eval_minute=500,
    ),
    "TieredSidecarBrokerUnreachable": Story(
        firing={"tiered_sidecar_broker_unreachable{{T}}": "0x60 1x140"},
        # A restart of the broker.
        quiet={"tiered_sidecar_broker_unreachable{{T}}": "0x110 1x90"},
        summary="kafka-0: the broker does not respond",
    ),
    "TieredSidecarBrokerPermissionDenied": Story(
        firing={"tiered_sidecar_broker_denied_permissions{{T}}": "0x60 1x140"},
        # Given within minutes.
        quiet={"tiered_sidecar_broker_denied_permissions{{T}}": "0x110 1x5 0x85"},
        summary="kafka-0: the broker denies permissions of 1 kinds",
    ),
    "TieredSidecarNotReady": Story(
        # A log directory is lost after a quiet hour, while others go on.
        firing={_not_ready("log_dirs"): "0x60 1x140", _not_ready("first_check"): "0x200", COMMITTED: "0+1x200"},
        # The first round of a large backlog: what is reported after a round is not known yet.
        quiet={
            _not_ready("log_dirs"): "1x200",
            _not_ready("first_check"): "1x200",
            _not_ready("broker"): "1x200",
            _not_ready("store"): "0x200",
            # One start that failed, as where the settings came late.
            _not_ready("start"): "0x110 1x5 0x85",
            COMMITTED: "0+1x200",
        },
        summary="kafka-0: the sidecar cannot archive",
    ),
    "TieredSidecarConfigStale": Story(
        firing={"tiered_sidecar_config_stale{{T}}": "0x60 1x140"},
        # A mistake that was corrected.
        quiet={"tiered_sidecar_config_stale{{T}}": "0x110 1x5 0x85"},
        summary="kafka-0: the changed settings file is not in effect",
    ),
    "TieredSidecarStagingNearlyFull": Story(
        firing={'tiered_sidecar_work_dir_free_ratio{{T}, directory="staging"}': "0.5x60 0.04x140"},
        quiet={'tiered_sidecar_work_dir_free_ratio{{T}, directory="staging"}': "0.5x60 0.12x140"},
        summary="kafka-0: only 4% of the staging directory's disk is free",
        labels={"directory": "staging"},
    ),
    "TieredSidecarStagingFull": Story(
        firing={_errors("StagingFull"): "0x115 1x85"},
        quiet={_errors("StagingFull"): "4x200", _not_ready("state_dir"): "0x200", _not_ready("store"): "1x200"},
        # The journal, for longer than the wait between two tries.
        also_firing=({_errors("StagingFull"): "0x60 1x140", _not_ready("state_dir"): "0x60 1x140"},),
        summary="kafka-0: no space for work files",
    ),
    "TieredSidecarMissing": Story(
        firing={BROKER: "1x200", OTHER_SIDECAR: "1x200"},
        quiet={BROKER: "1x200", OTHER_SIDECAR.replace("other", "kafka-0"): "1x200"},
        # An ordinary container.
        also_quiet=(
            {
                BROKER: "1x200",
                OTHER_SIDECAR.replace("other", "kafka-0").replace("init_container", "container"): "1x200",
            },
        ),
        summary="kafka-0: this broker of Strimzi has no sidecar",
        labels={"namespace": "kafka", "label_strimzi_io_broker_role": "true"},
    ),
}
