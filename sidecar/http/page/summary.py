"""The part above the table: one sentence about the health, its troubles, and totals."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.http.page.rows import TROUBLE, Row, State
from sidecar.http.page.wording import bytes_text, count_text, duration_text, plural
from sidecar.partition.wait_reason import Wait
from sidecar.reporting.status_model import StatusFigures

MISMATCHES = ("wrong", "corrupt")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that needs a person. `link`: where on the page it is shown, "" if the text says everything."""

    text: str
    link: str
    is_grave: bool = True


@dataclass(frozen=True, slots=True)
class Tile:
    """A total: a figure in large type, what it counts, and what more there is to say."""

    label: str
    figure: str
    note: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """`tone`: good, busy, warn or bad."""

    tone: str
    headline: str
    troubles: tuple[Trouble, ...]
    tiles: tuple[Tile, ...]


def summary_of(
    rows: Sequence[Row],
    figures: StatusFigures,
    status: Mapping[str, Any],
    awaited: Container[str],
    stalled_s: float | None,
    now_ms: int,
) -> Summary:
    """`status`: as /status shows it. `awaited`: see `Health`. `stalled_s`: how long the loop has stood still, None if it works."""
    not_ready: Mapping[str, str] = status["not_ready"]
    states = Counter(row.state for row in rows)
    is_starting = "first_check" in not_ready
    faults = {name: why for name, why in not_ready.items() if name != "first_check" and name not in awaited}
    waits = (f"{name}: {why}" for name, why in not_ready.items() if name != "first_check" and name in awaited)
    troubles = [
        *_process_troubles(faults, stalled_s),
        *_partition_troubles(rows, states),
        *_late(rows, now_ms),
        *_leaderless(rows),
        *_broker_troubles(figures, status),
        *_settings_troubles(status.get("config", {})),
    ]
    quarantined = sum("quarantined" in row for row in status.get("compaction", {}).get("partitions", ()))
    if quarantined:
        troubles.append(Trouble(f"{plural(quarantined, 'partition')} not compacted", "#compaction", is_grave=False))
    waits_for = next(waits, "the first check of all partitions is still running" if is_starting else "")
    tone, headline = _headline(states, troubles, waits_for)
    nothing_chosen = status.get("topics", {}).get("nothing_chosen")
    if tone == "busy" and nothing_chosen and not states:
        headline = f"Nothing to do: {nothing_chosen}"
    is_checked = not {"first_check", "start"} & not_ready.keys()
    return Summary(tone, headline, tuple(troubles), _tiles(rows, states, figures, now_ms, is_checked=is_checked))


def _headline(states: Counter[State], troubles: Sequence[Trouble], waits_for: str) -> tuple[str, str]:
    if any(trouble.is_grave for trouble in troubles):
        return "bad", "Needs attention"
    if troubles:
        return "warn", "Archiving goes on, but check this"
    if waits_for:
        return "busy", f"Starting: {waits_for}"
    if not states:
        return "busy", "No partitions in the log directories yet"
    busy = states[State.UPLOADING] + states[State.WAITING]
    if busy:
        return "good", f"All is well. {plural(busy, 'partition uploads', 'partitions upload')} segments"
    if states[State.NOT_LED] == states.total():
        return "good", "All is well. This broker is leader of no partition: other sidecars archive them"
    if states[State.NOT_LED] + states[State.NOTHING_ROLLED] == states.total():
        return "good", "All is well. No segment has rolled yet: nothing to archive"
    return "good", "All is well. Every rolled segment is archived"


def _process_troubles(faults: Mapping[str, str], stalled_s: float | None) -> list[Trouble]:
    troubles = []
    if stalled_s is not None:
        troubles.append(Trouble(f"the loop has made no progress for {duration_text(stalled_s)}", "#errors"))
    texts = (f"{condition.replace('_', ' ')}: {reason}" for condition, reason in sorted(faults.items()))
    return [*troubles, *(Trouble(text, "#errors") for text in texts)]


def _partition_troubles(rows: Sequence[Row], states: Counter[State]) -> list[Trouble]:
    only_here = sum(row.state is State.AT_RISK and row.status.pinned_deleted_bytes > 0 for row in rows)
    near = " at risk: the broker deletes unarchived segments within the hour"
    gone = ": the broker deleted unarchived segments. Only this process has their bytes: restart neither the sidecar nor the broker"
    counted = (
        (only_here, gone, State.AT_RISK),
        (states[State.AT_RISK] - only_here, near, State.AT_RISK),
        (states[State.GAP], " stopped at a gap", State.GAP),
        (states[State.STOPPED], " stopped", State.STOPPED),
    )
    found = ((f"{plural(count, 'partition')}{text}", state) for count, text, state in counted if count)
    return [Trouble(text, f"?state={state}#partitions") for text, state in found]


def _late(rows: Sequence[Row], now_ms: int) -> list[Trouble]:
    """Partitions that nothing stops, and that still do not get on."""
    late = [row.late_s(now_ms) or 0.0 for row in rows if row.state in (State.WAITING, State.UPLOADING)]
    count, longest_s = sum(map(bool, late)), max(late, default=0.0)
    if not count:
        return []
    who = f"{plural(count, 'partition makes', 'partitions make')} no progress"
    text = f"{who}, a segment waits for {duration_text(longest_s)}"
    return [Trouble(text, f"?state={State.WAITING}#partitions", is_grave=False)]


def _leaderless(rows: Sequence[Row]) -> list[Trouble]:
    """No sidecar archives these, as after the disk of the only replica failed. Who reads that all is well would replace it."""
    count = sum(row.status.reason is Wait.NO_LEADER for row in rows)
    if not count:
        return []
    who = plural(count, "partition has no leader", "partitions have no leader")
    text = f"{who}: what is not archived may be on this disk only. Do not replace it"
    return [Trouble(text, f"?state={State.NOT_LED}#partitions", is_grave=False)]


def _settings_troubles(config: Mapping[str, Any]) -> list[Trouble]:
    refused = config.get("refused")
    if not refused:
        return []
    what = ": ".join(filter(None, (refused["reason"], ", ".join(refused.get("settings", ())))))
    return [Trouble(f"the changed settings were rejected, the old ones stay in effect: {what}", "", is_grave=False)]


def _broker_troubles(figures: StatusFigures, status: Mapping[str, Any]) -> list[Trouble]:
    troubles = [
        Trouble(f"the broker denies a permission: {right}", "#errors", is_grave=False)
        for right in status.get("missing_rights", ())
    ]
    stalled = len(status.get("broker_cleaner", {}).get("stalled", ()))
    if stalled:
        troubles.append(
            Trouble(f"the broker's log cleaner makes no progress on {plural(stalled, 'partition')}", "#cleaner")
        )
    wrong = mismatches(figures.snapshots)
    if wrong:
        text = f"{plural(wrong, 'producer snapshot')} of the broker did not match the log; the archive has correct ones"
        troubles.append(Trouble(text, "#errors", is_grave=False))
    return troubles


def mismatches(snapshots: Mapping[str, int]) -> int:
    """Snapshots of the broker that differ from the replay, or that cannot be read."""
    return sum(snapshots.get(result, 0) for result in MISMATCHES)


def _tiles(
    rows: Sequence[Row], states: Counter[State], figures: StatusFigures, now_ms: int, *, is_checked: bool
) -> tuple[Tile, ...]:
    archived = sum(row.figures.extent.size_bytes for row in rows)
    segments = sum(row.figures.extent.segments for row in rows)
    pending_bytes = sum(row.status.pending_bytes for row in rows)
    pending_segments = sum(row.status.pending_segments for row in rows)
    led = len(rows) - states[State.NOT_LED]
    sending = sum(upload.size_bytes for upload in figures.uploads)
    deadline_ms = min((row.deadline_ms for row in rows if row.deadline_ms is not None), default=None)
    in_trouble = sum(states[state] for state in TROUBLE)
    return (
        Tile("Partitions", count_text(len(rows)), f"leader of {count_text(led)}, {count_text(in_trouble)} in trouble"),
        Tile("Archived", bytes_text(archived), plural(segments, "segment")),
        Tile("Waiting", bytes_text(pending_bytes), f"{plural(pending_segments, 'rolled segment')}"),
        Tile("Uploading now", bytes_text(sending), plural(len(figures.uploads), "segment")),
        Tile(
            "Unarchived data deleted in",
            *_time_left(deadline_ms, sum(not row.is_retention_known for row in rows), now_ms, is_checked=is_checked),
            "bad" if states[State.AT_RISK] else "",
        ),
    )


def _time_left(deadline_ms: int | None, unknown: int, now_ms: int, *, is_checked: bool) -> tuple[str, str]:
    """Figure and note: time until the broker deletes unarchived data.

    `unknown`: partitions with an unknown retention. `is_checked`: whether the first check of all partitions is over.
    """
    why_unknown = (
        f"the retention of {plural(unknown, 'partition')} is unknown: no broker reported it" if unknown else ""
    )
    if deadline_ms is not None:
        return duration_text((deadline_ms - now_ms) / 1000), why_unknown or "time left for the first segment"
    if unknown or not is_checked:
        return "unknown", why_unknown or "the first check of all partitions is not over"
    return "never", "nothing at risk"
