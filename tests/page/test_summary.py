"""The sentence at the top, the totals, and the charts."""

from __future__ import annotations

from collections import Counter

import pytest

from sidecar import errors
from sidecar.errors import SidecarError, StaleLeadership
from sidecar.http.page.charts import backlog, throughput
from sidecar.http.page.rows import row_of
from sidecar.http.page.summary import Summary, summary_of
from sidecar.http.page.wording import REMEDIES, bytes_text, duration_text
from sidecar.partition.status import PartitionCondition, PartitionStatus
from sidecar.partition.wait_reason import AboveHighWatermark, OpenTransaction, Wait
from sidecar.reporting import health_reporter
from sidecar.reporting.health_reporter import conditions_at_start
from sidecar.reporting.status_model import PartitionFigures, Sample, StatusFigures
from tests.page.made_up import HOUR_MS, NOW_MS, a_look, figures, waiting

STALLED = {"stalled": [{"topic": "accounts", "partition": 0}]}


def board(*partitions: PartitionFigures, **snapshots: int) -> StatusFigures:
    uploads = tuple(upload for partition in partitions for upload in partition.uploads)
    return StatusFigures("s3://bucket", "host/1", NOW_MS, partitions, uploads, (), Counter(snapshots), ())


AT_START = conditions_at_start("s3://bucket")
WAITS = "waiting for the first response of s3://bucket"


def summary(figures: StatusFigures, **changes: object) -> Summary:
    rows = [row_of(partition, {}) for partition in figures.partitions]
    awaited, stalled_s = changes.pop("awaited", ()), changes.pop("stalled_s", None)
    return summary_of(rows, figures, {"not_ready": {}, **changes}, awaited, stalled_s, NOW_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "tone", "headline"),
    [
        (summary(board()), "busy", "No partitions"),
        (summary(board(), not_ready=AT_START, awaited=AT_START), "busy", f"Starting: store: {WAITS}"),
        (summary(board(), not_ready=AT_START), "bad", "Needs attention"),
        (summary(board(), not_ready={"first_check": "not over"}), "busy", "Starting: the first check"),
        (summary(board(), not_ready={"first_check": "", "store": "no answer"}), "bad", "Needs attention"),
        (summary(board(figures(a_look()))), "good", "Every rolled segment is archived"),
        (summary(board(figures(a_look(archived_end_offset=None), segments=()))), "good", "No segment has rolled yet"),
        (summary(board(figures(waiting()))), "good", "1 partition uploads segments"),
        (summary(board(figures(a_look(leads=False)))), "good", "is leader of no partition"),
        (summary(board(figures(waiting(at_risk_end_offset=90)))), "bad", "Needs attention"),
        (summary(board(figures(waiting(error="CorruptFile")))), "bad", "Needs attention"),
        (summary(board(figures(a_look())), not_ready={"store": "no answer"}), "bad", "Needs attention"),
        (summary(board(figures(a_look())), broker_cleaner=STALLED), "bad", "Needs attention"),
        (summary(board(figures(a_look())), stalled_s=300.0), "bad", "Needs attention"),
        (summary(board(figures(a_look()), wrong=2)), "warn", "check this"),
        (summary(board(figures(a_look())), compaction={"partitions": [{"quarantined": {}}]}), "warn", "check this"),
    ],
)
def test_one_sentence_says_how_it_is(found: Summary, tone: str, headline: str) -> None:
    assert found.tone == tone
    assert headline in found.headline


def test_every_trouble_is_said_once_and_leads_to_where_it_is_shown() -> None:
    found = summary(
        board(
            figures(waiting(at_risk_end_offset=90)),
            figures(waiting("a-1", hole=(80, 90), error="CoverageHole")),
            wrong=1,
        ),
        not_ready={"log_dirs": "not mounted", "first_check": "not known yet"},
        broker_cleaner=STALLED,
        stalled_s=300.0,
    )
    texts = {trouble.link: trouble.text for trouble in found.troubles}
    assert texts["?state=at_risk#partitions"].startswith("1 partition at risk")
    assert texts["?state=gap#partitions"] == "1 partition stopped at a gap"
    assert "1 partition" in texts["#cleaner"]
    assert found.troubles[0].text == f"the loop has made no progress for {duration_text(300)}"
    assert found.troubles[1].text == "log dirs: not mounted"


def test_segments_that_only_this_process_has_are_not_called_at_risk() -> None:
    found = summary(
        board(
            figures(waiting(at_risk_end_offset=90)),
            figures(waiting("a-1", at_risk_end_offset=90, pinned_deleted_bytes=7)),
        )
    )
    assert [trouble.text for trouble in found.troubles] == [
        (
            "1 partition: the broker deleted unarchived segments. Only this process has their bytes: restart neither the "
            "sidecar nor the broker"
        ),
        "1 partition at risk: the broker deletes unarchived segments within the hour",
    ]


def test_a_partition_that_does_not_get_on_is_reported_and_one_that_catches_up_is_not() -> None:
    old = waiting(oldest_pending_ms=NOW_MS - 7 * HOUR_MS)
    stuck = summary(board(figures(old, stands_since_ms=NOW_MS - HOUR_MS - 1), figures(a_look("a-1"))))
    assert stuck.tone == "warn"
    assert [trouble.text for trouble in stuck.troubles] == [
        f"1 partition makes no progress, a segment waits for {duration_text(7 * 3600)}"
    ]
    for busy in (
        figures(old, stands_since_ms=NOW_MS - HOUR_MS),
        figures(waiting(oldest_pending_ms=NOW_MS - 6 * HOUR_MS), stands_since_ms=NOW_MS - 5 * HOUR_MS),
    ):
        assert summary(board(busy)).tone == "good"


def test_a_partition_without_a_leader_is_reported() -> None:
    leaderless = a_look(leads=False, condition=PartitionCondition.NOT_LED, reason=Wait.NO_LEADER)
    found = summary(board(figures(leaderless), figures(a_look("a-1"))))
    assert found.tone == "warn"
    assert [trouble.text for trouble in found.troubles] == [
        "1 partition has no leader: what is not archived may be on this disk only. Do not replace it"
    ]


def test_refused_settings_and_missing_rights_are_reported() -> None:
    found = summary(
        board(figures(a_look())),
        config={"stale": True, "refused": {"reason": "these need a restart", "settings": ["store.url", "log.format"]}},
        missing_rights=["allow it Describe on topic orders; until then it is not archived"],
    )
    assert found.tone == "warn"
    texts = "\n".join(trouble.text for trouble in found.troubles)
    assert "the old ones stay in effect: these need a restart: store.url, log.format" in texts
    assert "allow it Describe on topic orders" in texts


@pytest.mark.parametrize(
    ("look", "advice"),
    [
        (
            waiting(at_risk_end_offset=90, reason=OpenTransaction(0, 7, 5, 9)),
            "kafka-transactions.sh find-hanging --topic orders --partition 0",
        ),
        (waiting(at_risk_end_offset=90, error="StoreUnavailable"), REMEDIES["StoreUnavailable"]),
        (waiting(at_risk_end_offset=90), "retention.ms"),
        (waiting(error="PartitionError"), REMEDIES["PartitionError"]),
        (waiting(error=StaleLeadership.__name__), "None if it passes: another broker has not learned of the election"),
    ],
)
def test_a_row_in_trouble_says_what_to_do(look: PartitionStatus, advice: str) -> None:
    assert advice in row_of(figures(look), {}).advice


def test_where_nothing_is_to_be_done_or_the_text_says_it_nothing_is_said() -> None:
    hole = waiting(hole=(80, 90), error="CoverageHole", error_text="offsets are gone; set run.record_lost to go on")
    assert row_of(figures(hole), {}).advice == ""
    assert row_of(figures(waiting()), {}).advice == ""
    replicas = waiting(at_risk_end_offset=90, reason=AboveHighWatermark(0, 5))
    assert "transaction" not in row_of(figures(replicas), {}).advice


ERRORS = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SidecarError)]


KINDS = [
    health_reporter.CLEANER_STALLED,
    health_reporter.REPLICAS_NOT_SEEN,
    health_reporter.RIGHT_MISSING,
    health_reporter.START_FAILED,
]


@pytest.mark.parametrize("error", [*(name for name in ERRORS if name != SidecarError.__name__), *KINDS])
def test_for_every_error_there_is_something_to_do(error: str) -> None:
    assert error in REMEDIES


def test_totals_add_up_and_the_earliest_deadline_counts() -> None:
    found = summary(
        board(
            figures(waiting(deadline_ms=NOW_MS + 5 * HOUR_MS), uploads=[(80, 90)]),
            figures(waiting("a-1", deadline_ms=NOW_MS + 4 * HOUR_MS, active_deadline_ms=NOW_MS + 3 * HOUR_MS)),
            figures(a_look("a-2", leads=False)),
        )
    )
    shown = {tile.label: (tile.figure, tile.note) for tile in found.tiles}
    assert shown["Partitions"] == ("3", "leader of 2, 0 in trouble")
    assert shown["Waiting"] == (bytes_text(2000), "2 rolled segments")
    assert shown["Uploading now"] == (bytes_text(1000), "1 segment")
    assert shown["Unarchived data deleted in"][0] == duration_text(3 * 3600)


def test_a_retention_that_no_broker_has_reported_threatens_for_all_we_know() -> None:
    unreported = figures(waiting(is_retention_known=False))
    tiles = {tile.label: tile for tile in summary(board(unreported)).tiles}
    assert tiles["Unarchived data deleted in"].figure == "unknown"
    assert tiles["Unarchived data deleted in"].note == "the retention of 1 partition is unknown: no broker reported it"
    tiles = {tile.label: tile for tile in summary(board(figures(waiting()))).tiles}
    assert tiles["Unarchived data deleted in"].figure == "never"


@pytest.mark.parametrize("condition", ["first_check", "start"])
def test_before_the_first_check_it_is_unknown_what_is_at_risk(condition: str) -> None:
    tiles = {tile.label: tile for tile in summary(board(), not_ready={condition: "not over"}).tiles}
    tile = tiles["Unarchived data deleted in"]
    assert (tile.figure, tile.note) == ("unknown", "the first check of all partitions is not over")


def test_charts_draw_rates_and_levels_of_the_last_hour() -> None:
    samples = [Sample(180, 0, 500), Sample(120, 6_000, 300), Sample(60, 6_000, 100), Sample(0, 12_000, 0)]
    rate = throughput(samples)
    assert (rate.now, rate.highest) == (bytes_text(50) + "/s", bytes_text(100) + "/s")
    assert rate.line.startswith("M570.0,6.0L580.0,6.0L580.0,98.0")
    assert "at most" in rate.text
    level = backlog(samples)
    assert (level.now, level.highest) == (bytes_text(0), bytes_text(300))


@pytest.mark.parametrize("samples", [[], [Sample(0, 0, 0)], [Sample(0, 5, 5), Sample(0, 5, 5)]])
def test_charts_without_a_past_are_empty(samples: list[Sample]) -> None:
    assert throughput(samples).line == ""
    assert throughput(samples).now == bytes_text(0) + "/s"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1023 * 1024, "1.0 MiB"),
        (5 * 2**60, "5120 PiB"),
    ],
)
def test_sizes_have_three_digits(size_bytes: int, text: str) -> None:
    assert bytes_text(size_bytes).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (172_799, "47 h"),
        (172_800, "2 days"),
    ],
)
def test_durations_are_rounded_down(seconds: float, text: str) -> None:
    assert duration_text(seconds).replace("\u00a0", " ") == text
