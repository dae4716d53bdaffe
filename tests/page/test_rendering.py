"""The page as bytes: shared, cheap, escaped, and known again by its tag."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from threading import Thread

import pytest

from sidecar.http.page.rendering import FRESH_S, FRESH_S_MAX, RENDERED_MAX, StatusPage
from sidecar.partition.domain_events import PartitionChecked, PartitionsChecked
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel
from tests.fakes.manual_clock import ManualClock
from tests.page.made_up import NOW_MS, a_look, fill, thousand, waiting

HEARTBEAT_TIMEOUT_S = 60.0
NASTY = '"><script>alert(1)</script>&amp;\u202e'


class Rig:
    """A page over a status model that a test fills, with a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.model = StatusModel(self.clock)
        self.health = Health(self.clock)
        self.page = StatusPage(self.model, self.health, self.clock, HEARTBEAT_TIMEOUT_S)

    def text(self, query: str = "") -> str:
        return self.page.render(query)[1].decode()


@pytest.fixture
def rig() -> Rig:
    return Rig()


class _Elements(HTMLParser):
    """The names of all elements, and all attributes, of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs


def test_the_page_renders_before_anything_is_known(rig: Rig) -> None:
    assert "No partitions in the log directories yet" in rig.text()


def test_nothing_that_is_reported_becomes_markup(rig: Rig) -> None:
    rig.model.about(NASTY, NASTY)
    fill(rig.model, [a_look(f"{NASTY}-0", error="CorruptFile", pending_segments=1, error_text=NASTY)])
    rig.model.failed(NASTY, NASTY, NASTY)
    rig.health.unmet("store", NASTY)
    stalled = {"topic": NASTY, "partition": 0, "stalled_s": 1, "dirty_bytes": 1}
    rig.health.publish(broker_cleaner={"stalled": [stalled], "line": NASTY, "partitions": 1, "dirty_bytes": 1})
    failed = {"error": NASTY, "reason": NASTY, "failures": 1, "failed_at_ms": 0}
    row = {"topic": NASTY, "partition": 0, "running": False, "quarantined": failed}
    rig.health.publish(compaction={"reported_ms": 0, "partitions": [row]})
    text = rig.text("q=%22%3E%3Cscript%3E")
    found = _Elements(text)
    assert text.count("&lt;script&gt;") > 10
    assert found.names.count("script") == 1
    names = {name for name, _ in found.attributes}
    assert not {name for name in names if name.startswith("on")} | (
        {"style"} & names
    )  # The content policy forbids them, too.


def test_viewers_of_one_moment_share_one_rendering_and_its_tag(rig: Rig) -> None:
    fill(rig.model, thousand())
    tag, body = rig.page.render("sort=name")
    rig.model.tick()
    rig.clock.advance_ms(round(FRESH_S * 1000) - 1)
    assert rig.page.render("sort=name&state=")[1] is body
    assert rig.page.render("sort=name")[0] == tag
    assert rig.page.render("sort=waiting")[0] != tag
    rig.clock.advance_ms(1)
    assert rig.page.render("sort=name")[0] != tag


def test_while_nothing_changes_the_tag_stays_until_ages_have_moved(rig: Rig) -> None:
    tag = rig.page.render("")[0]
    rig.clock.advance_ms(round(FRESH_S_MAX * 1000) - 1)
    assert rig.page.render("")[0] == tag
    rig.clock.advance_ms(1)
    assert rig.page.render("")[0] != tag


def test_another_process_has_other_tags(rig: Rig) -> None:
    tag = rig.page.render("")[0]
    rig.clock.advance_ms(1)
    assert StatusPage(rig.model, rig.health, rig.clock, 60.0).render("")[0] != tag


def test_many_queries_are_not_all_kept(rig: Rig) -> None:
    first = rig.page.render("q=0")[1]
    for number in range(RENDERED_MAX + 1):
        rig.page.render(f"q={number}")
    assert rig.page.render("q=0")[1] is not first


def test_a_loop_that_stands_still_is_said(rig: Rig) -> None:
    rig.clock.advance_ms(61_000)
    assert "the loop has made no progress for 61" in rig.text()


def test_a_thousand_partitions_are_rendered_in_no_time(rig: Rig) -> None:
    fill(rig.model, thousand())
    rig.page.render("")  # Loads the templates.
    took_s = []
    for _ in range(5):
        rig.clock.advance_ms(60_000)
        began_s = time.thread_time()
        rig.page.render("page=2")
        took_s.append(time.thread_time() - began_s)
    print("seconds of processor time:", [round(seconds, 4) for seconds in took_s])
    assert min(took_s) < 0.15


def test_who_asks_while_the_pipeline_works_holds_nobody_up(rig: Rig) -> None:
    looks = thousand()
    fill(rig.model, looks)
    failures: list[BaseException] = []

    def view() -> None:
        try:
            for number in range(6):
                rig.clock.advance_ms(3_000)
                assert "topic-" in rig.text(f"page={number % 5 + 1}")
        except BaseException as error:  # noqa: BLE001 - reported to the test's own thread
            failures.append(error)

    viewers = [Thread(target=view) for _ in range(3)]
    for viewer in viewers:
        viewer.start()
    while any(viewer.is_alive() for viewer in viewers):
        rig.model.handle(PartitionChecked(waiting("topic-00-0")))
        rig.model.failed("topic-00-0", "StoreDenied", "no")
        rig.model.handle(PartitionsChecked(tuple(looks), frozenset()))
    assert failures == []
