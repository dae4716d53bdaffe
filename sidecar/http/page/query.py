"""Search, order and paging of the rows, from the query of the page's address. What makes no sense there counts as not given."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlencode

from sidecar.http.page.rows import Row, State

ROWS_PER_PAGE = 50
SEARCH_LENGTH_MAX = 260
"""A topic's name has 249 characters at most, its partition 10 more and a hyphen."""
_FIELDS_MAX = 20


class Order(StrEnum):
    """What rows are sorted by."""

    STATE = "state"
    NAME = "name"
    ARCHIVED = "archived"
    WAITING = "waiting"
    DEADLINE = "deadline"


_KEYS: dict[Order, Callable[[Row], Any]] = {
    Order.STATE: lambda row: (row.state.rank, _deadline(row), -row.pending_bytes),
    Order.NAME: lambda row: (row.topic, row.partition),
    Order.ARCHIVED: lambda row: -row.archived_bytes,
    Order.WAITING: lambda row: -row.pending_bytes,
    Order.DEADLINE: lambda row: _deadline(row),
}


def _deadline(row: Row) -> float:
    return math.inf if row.deadline_ms is None else row.deadline_ms


@dataclass(frozen=True, slots=True)
class Query:
    """What a viewer wants to see. `page` counts from 1. `is_reversed`: the other way round than an order's own."""

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
    """The query of an address, without its question mark."""
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
    found.sort(key=lambda row: (row.topic, row.partition))
    found.sort(key=_KEYS[query.order], reverse=query.is_reversed)
    pages = max(1, math.ceil(len(found) / ROWS_PER_PAGE))
    page = min(query.page, pages)
    begin = (page - 1) * ROWS_PER_PAGE
    shown = tuple(found[begin : begin + ROWS_PER_PAGE])
    return Rows(shown, begin + 1 if shown else 0, len(found), page, pages)
