"""Search, order and paging, as the page's address asks for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.http.page.rows import ROWS_PER_PAGE, Order, Query, Row, State, parse, row_of, select
from tests.page.made_up import NOW_MS, a_look, figures, thousand
from tests.runner.archived import segment

ROWS: list[Row] = [
    row_of(figures(look, [segment(0, 80, size_bytes=1000 * (number + 1))]), {})
    for number, look in enumerate(thousand())
]


def names(query: str) -> list[str]:
    return [row.name for row in select(ROWS, parse(query)).rows]


def test_what_needs_a_person_stands_first() -> None:
    found = select(ROWS, parse("")).rows
    assert [row.state for row in found[:4]] == [State.AT_RISK, State.GAP, State.STOPPED, State.ARCHIVED]
    assert len(found) == ROWS_PER_PAGE
    assert [row.name for row in found[3:6]] == ["topic-00-0", "topic-00-1", "topic-00-2"]


def test_a_search_finds_parts_of_names_in_any_case_and_states_narrow_it() -> None:
    assert names("q=TOPIC-61-7") == ["topic-61-7"]
    assert len(names("q=topic-61")) == 10
    assert names("state=gap") == ["topic-30-5"]
    assert names("q=topic-61&state=gap") == []
    assert select(ROWS, parse("q=nothing")).first == 0


def test_rows_are_sorted_either_way_and_ties_by_name() -> None:
    assert names("sort=name")[0] == "topic-00-0"
    assert names("sort=name&dir=reverse")[0] == "topic-99-9"
    assert names("sort=archived")[0] == "topic-99-9"
    assert names("sort=archived&dir=reverse")[0] == "topic-00-0"
    assert names("sort=deadline")[0] == "topic-61-7"
    assert names("sort=waiting")[:3] == ["topic-04-4", "topic-30-5", "topic-61-7"]
    assert select(ROWS, parse("sort=deadline")).rows[0].deadline_ms == NOW_MS + 1_800_000


def test_partitions_sort_by_number() -> None:
    rows = [row_of(figures(a_look(f"orders-{number}")), {}) for number in (10, 9, 2)]
    assert [row.status.topic_partition.partition for row in select(rows, parse("sort=name")).rows] == [2, 9, 10]


def test_pages_follow_one_another_and_the_last_answers_for_those_beyond() -> None:
    second = select(ROWS, parse("sort=name&page=2"))
    assert (second.first, second.last, second.total, second.pages) == (51, 100, 1000, 20)
    assert select(ROWS, parse("page=999")).page == 20
    assert select([], parse("page=3")).last == 0


@pytest.mark.parametrize(
    "query",
    [
        "page=0",
        "page=-1",
        "page=x",
        "page=1e9",
        "page=99999999999999",
        "sort=up",
        "state=fine",
        "dir=down",
        "a=b",
        "&".join("ab") * 50,
        "page=\u00b2",
    ],
)
def test_what_makes_no_sense_counts_as_not_given(query: str) -> None:
    assert parse(query) == Query()


@given(st.text(max_size=300))
def test_any_query_is_understood_and_its_own_address_means_the_same(text: str) -> None:
    query = parse(text)
    assert parse(query.address(page=query.page).removeprefix("?")) == query


def test_an_order_that_is_chosen_again_turns_round_and_begins_at_page_1() -> None:
    query = parse("q=a%26b&sort=archived&page=3")
    assert query.sorted_by("archived") == "?q=a%26b&sort=archived&dir=reverse"
    assert query.sorted_by("state") == "?q=a%26b"
    assert query.direction("archived") == "descending"
    assert parse("sort=archived&dir=reverse").direction("archived") == "ascending"
    assert query.direction("name") == "none"
    assert Query().direction(Order.STATE) == "ascending"
