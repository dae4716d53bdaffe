"""The rows of the table, one per partition: what state it is in, the texts of its cells; search, order and paging."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlencode

from sidecar.http.page.ranges import OffsetRange, Piece, bar_text, is_at_risk, pieces_of, ranges_of
from sidecar.http.page.wording import REMEDIES
from sidecar.model import TopicPartition
from sidecar.partition.status import PartitionStatus
from sidecar.partition.wait_reason import AboveLastStableOffset, OpenTransaction
from sidecar.reporting.status_model import PartitionFigures

MORE_TIME = "To gain time, raise the topic's retention.ms and retention.bytes with kafka-configs.sh."
ONLY_HELD = (
    "The broker has deleted some of it; only this process still has it open. Do not restart this process or "
    "the broker before it is archived."
)
NOT_PINNED = "Segments not pinned: {:,}. Retention may delete them before they are archived."
LATE_S = 21_600.0
"""A segment that has waited for longer is late: the threshold of the alert TieredSidecarUploadsStalled."""
STANDS_S = 3_600.0
"""So long nothing was archived of a partition that is late: who catches up with old segments gets on meanwhile."""
ROWS_PER_PAGE = 50
SEARCH_LENGTH_MAX = 260
"""A topic's name has 249 characters at most, its partition 10 more and a hyphen."""
_FIELDS_MAX = 20


class State(StrEnum):
    """How a partition is, worst first."""

    AT_RISK = "at_risk"
    GAP = "gap"
    STOPPED = "stopped"
    UPLOADING = "uploading"
    WAITING = "waiting"
    ARCHIVED = "archived"
    NOTHING_ROLLED = "nothing_rolled"
    NOT_LED = "not_led"

    @property
    def label(self) -> str:
        return self.value.replace("_", " ").capitalize()


_RANKS = {state: rank for rank, state in enumerate(State)}
TROUBLE = (State.AT_RISK, State.GAP, State.STOPPED)
"""States that need a person."""


@dataclass(frozen=True, slots=True)
class Row:
    """A partition as the table shows it: its figures, the worst that is true of it, and its offsets."""

    figures: PartitionFigures
    state: State
    ranges: tuple[OffsetRange, ...]

    @property
    def status(self) -> PartitionStatus:
        return self.figures.status

    @property
    def name(self) -> str:
        return str(self.status.topic_partition)

    @property
    def deadline_ms(self) -> int | None:
        """When the broker deletes the first segment that is not archived, the active one included; None for never or unknown."""
        status = self.status
        deadlines_ms = (status.deadline_ms if status.pending_segments else None, status.active_deadline_ms)
        return min((deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None), default=None)

    @property
    def is_retention_known(self) -> bool:
        return self.status.is_retention_known or not self.status.pending_segments

    def late_s(self, now_ms: int) -> float | None:
        """For how long the oldest segment has waited, if that is too long and none gets on; else None."""
        oldest_ms, stands_since_ms = self.status.oldest_pending_ms, self.figures.stands_since_ms
        if oldest_ms is None or stands_since_ms is None:
            return None
        age_s, stands_s = (now_ms - oldest_ms) / 1000, (now_ms - stands_since_ms) / 1000
        return age_s if age_s > LATE_S and stands_s > STANDS_S else None

    @property
    def advice(self) -> str:
        """What to do about it, "" where nothing is to be done."""
        status, partition = self.status, self.status.topic_partition
        known, is_at_risk = REMEDIES.get(status.error or "", ""), self.state is State.AT_RISK
        if is_at_risk and isinstance(status.reason, AboveLastStableOffset | OpenTransaction) and status.error is None:
            where = f"--topic {partition.topic} --partition {partition.partition}"
            known = (
                f"A transaction may hang: find it with kafka-transactions.sh find-hanging {where}, end it with abort."
            )
        if self.figures.unpinned_segments:
            known = f"{known} {NOT_PINNED.format(self.figures.unpinned_segments)}"
        elif not is_at_risk:
            return known
        return f"{known} {ONLY_HELD if status.pinned_deleted_bytes else MORE_TIME}".strip()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return pieces_of(self.ranges)

    @property
    def bar_text(self) -> str:
        return f"{self.name}: {bar_text(self.ranges)}"


def row_of(figures: PartitionFigures, clean_ends: Mapping[TopicPartition, int]) -> Row:
    """The row of one partition. `clean_ends`: end of what was compacted in the archive."""
    return Row(figures, state_of(figures), ranges_of(figures, clean_ends.get(figures.status.topic_partition)))


def state_of(figures: PartitionFigures) -> State:
    status = figures.status
    if not status.leads:
        return State.NOT_LED
    if is_at_risk(status, None):
        return State.AT_RISK
    if status.error is not None:
        return State.GAP if status.hole is not None else State.STOPPED
    if figures.uploads:
        return State.UPLOADING
    if status.pending_segments:
        return State.WAITING
    has_archive = figures.extent.end_offset is not None or status.archived_end_offset is not None
    return State.ARCHIVED if has_archive else State.NOTHING_ROLLED


class Order(StrEnum):
    STATE = "state"
    NAME = "name"
    ARCHIVED = "archived"
    WAITING = "waiting"
    DEADLINE = "deadline"


_KEYS: dict[Order, Callable[[Row], Any]] = {
    Order.STATE: lambda row: (_RANKS[row.state], _deadline(row), -row.status.pending_bytes),
    Order.NAME: lambda row: row.status.topic_partition,
    Order.ARCHIVED: lambda row: -row.figures.extent.size_bytes,
    Order.WAITING: lambda row: -row.status.pending_bytes,
    Order.DEADLINE: lambda row: _deadline(row),
}


def _deadline(row: Row) -> float:
    return math.inf if row.deadline_ms is None else row.deadline_ms


@dataclass(frozen=True, slots=True)
class Query:
    """What a viewer wants to see. `page` counts from 1. `is_reversed`: the reverse of an order's own."""

    search: str = ""
    state: State | None = None
    order: Order = Order.STATE
    is_reversed: bool = False
    page: int = 1

    @property
    def is_filtered(self) -> bool:
        return bool(self.search) or self.state is not None

    def address(self, **changes: Any) -> str:
        """The relative address of this query with changes; any other change than of the page begins at page 1."""
        wanted = replace(self, **({"page": 1} | changes))
        fields = {
            "q": wanted.search,
            "state": wanted.state or "",
            "sort": "" if wanted.order is Order.STATE else wanted.order,
            "dir": "reverse" if wanted.is_reversed else "",
            "page": "" if wanted.page == 1 else str(wanted.page),
        }
        return "?" + urlencode({name: value for name, value in fields.items() if value})

    def sorted_by(self, order: str) -> str:
        """The address of the same rows in this order; in the reverse one if they are in it already."""
        return self.address(order=Order(order), is_reversed=self.order == order and not self.is_reversed)

    def direction(self, order: str) -> str:
        """The value of `aria-sort` of a column."""
        if self.order != order:
            return "none"
        rises = order in (Order.NAME, Order.STATE, Order.DEADLINE)
        return "ascending" if rises != self.is_reversed else "descending"


@dataclass(frozen=True, slots=True)
class Rows:
    """One page of rows. `first` counts from 1, 0 if there are none; `total`: rows that were found."""

    rows: tuple[Row, ...]
    first: int
    total: int
    page: int
    pages: int

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1 if self.rows else 0


def parse(query: str) -> Query:
    """The query of an address, without its question mark. What makes no sense there counts as not given."""
    try:
        fields = {name: values[-1] for name, values in parse_qs(query, max_num_fields=_FIELDS_MAX).items()}
    except ValueError:
        return Query()
    state, order, page = fields.get("state", ""), fields.get("sort", ""), fields.get("page", "")
    return Query(
        search=fields.get("q", "").strip()[:SEARCH_LENGTH_MAX],
        state=State(state) if state in set(State) else None,
        order=Order(order) if order in set(Order) else Order.STATE,
        is_reversed=fields.get("dir") == "reverse",
        page=int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 7 and int(page) else 1,
    )


def select(rows: Sequence[Row], query: Query) -> Rows:
    """The rows of the wanted page, or of the last one if there are fewer."""
    needle = query.search.lower()
    found = [row for row in rows if needle in row.name.lower() and query.state in (None, row.state)]
    found.sort(key=lambda row: row.status.topic_partition)
    found.sort(key=_KEYS[query.order], reverse=query.is_reversed)
    pages = max(1, math.ceil(len(found) / ROWS_PER_PAGE))
    page = min(query.page, pages)
    begin = (page - 1) * ROWS_PER_PAGE
    shown = tuple(found[begin : begin + ROWS_PER_PAGE])
    return Rows(shown, begin + 1 if shown else 0, len(found), page, pages)
