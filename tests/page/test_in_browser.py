"""The page as a person meets it: in Chromium, with mouse or keyboard, on a phone, in the dark, and alive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Page, Request, expect

from sidecar.config import HttpSettings
from sidecar.http.server import HttpServer
from sidecar.metrics import Metrics
from sidecar.partition.domain_events import PartitionChecked
from sidecar.partition.wait_reason import OpenTransaction
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel
from tests.browser import browser
from tests.fakes.manual_clock import ManualClock
from tests.golden import golden
from tests.page.made_up import NOW_MS, fill, thousand, waiting
from tests.real.daemon import Daemon, GrowingLog, eventually

pytestmark = pytest.mark.real

TOKEN = "a-token-of-twenty-b!"
LIVE_MS = 60_000
"""The page asks every five seconds, and figures are two seconds old at most; but machines are busy."""
expect.set_options(timeout=LIVE_MS)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


class Site:
    """A server over a made-up status model of 1,000 partitions, whose clock stands still."""

    def __init__(self, **settings: object) -> None:
        self.clock = ManualClock(NOW_MS)
        self.model = StatusModel(self.clock)
        health = Health(self.clock)
        fill(self.model, thousand())
        self.model.failed("store", "StoreDenied", "<b>no</b> rights on s3://bucket")
        found = HttpSettings.model_validate({"bind": "127.0.0.1:0", "request_timeout_s": 60, **settings})
        self.server = HttpServer(found, health, Metrics(), self.clock, self.model)
        self.url = f"http://127.0.0.1:{self.server.port}/"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    found = Site()
    with found.server:
        yield found


@pytest.fixture
def page(chromium: Browser, site: Site) -> Iterator[Page]:
    context = chromium.new_context(base_url=site.url)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto("/")
    yield opened
    context.close()
    assert complaints == []  # What the content policy forbids would stand here, too.


def first_row(page: Page) -> str:
    return page.locator("tbody th").first.inner_text()


def test_what_is_wrong_and_where_stands_at_the_top(page: Page) -> None:
    expect(page.get_by_role("status").get_by_role("heading")).to_have_text("Needs attention")
    expect(page).to_have_title(re.compile("Needs attention"))
    assert first_row(page) == "topic-61-7"
    page.get_by_role("link", name="1 partition stopped at a gap").click()
    assert first_row(page) == "topic-30-5"
    expect(page.locator("tbody th")).to_have_count(1)
    bar = page.get_by_role("img", name=re.compile("^topic-30-5: .*gap: offsets 80 to 89"))
    expect(bar).to_be_visible()
    expect(page.locator("#panels")).to_contain_text("<b>no</b> rights on s3://bucket")
    expect(page.locator("#panels")).to_contain_text("What to do")


def test_a_search_by_keyboard_alone(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the partitions")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("topic-42-")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("q=topic-42-"))
    expect(page.locator("tbody th")).to_have_count(10)
    expect(page.get_by_label("Search")).to_have_value("topic-42-")
    expect(page.get_by_role("link", name="Show all")).to_be_visible()


def test_headers_sort_either_way_and_say_so(page: Page) -> None:
    header = page.get_by_role("columnheader", name="Archived")
    expect(header).to_have_attribute("aria-sort", "none")
    header.get_by_role("link").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("sort=archived"))
    expect(header).to_have_attribute("aria-sort", "descending")
    assert first_row(page) == "topic-99-9"
    header.get_by_role("link").click()
    page.wait_for_url(re.compile("dir=reverse"))
    expect(header).to_have_attribute("aria-sort", "ascending")
    assert first_row(page) == "topic-00-0"


def test_pages_are_turned_by_keyboard_and_keep_the_order(page: Page) -> None:
    page.goto("/?sort=name")
    pages = page.get_by_role("navigation", name="Pages")
    pages.get_by_role("link", name="Next").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("page=2"))
    assert first_row(page) == "topic-05-0"
    expect(pages).to_contain_text("of 1,000, page 2 of 20")
    pages.get_by_role("link", name="Previous").click()
    page.wait_for_url(lambda url: "page=" not in url)
    assert first_row(page) == "topic-00-0"


@pytest.mark.parametrize(
    ("width", "scheme", "audited"),
    [
        (320, "light", True),
        (390, "dark", False),
        (768, "light", False),
        (1024, "light", False),
        (1280, "light", True),
        (1280, "dark", True),
    ],
)
def test_it_fits_every_width_and_breaks_no_rule_of_accessibility(
    chromium: Browser, site: Site, width: int, scheme: str, audited: bool
) -> None:
    """The rules know no width between the narrowest and the widest."""
    context = chromium.new_context(
        base_url=site.url,
        viewport={"width": width, "height": 800},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    page.goto("/")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("thead tr").evaluate("row => row.offsetHeight") < 50  # One line.
    rights = page.locator(".tile").evaluate_all("tiles => tiles.map(tile => tile.offsetLeft + tile.offsetWidth)")
    assert max(rights) - rights[-1] <= 1  # The last tile leaves no gap beside it.
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert brightness > 200 if scheme == "light" else brightness < 60
    if audited:
        page.goto("/?q=topic-61")  # Its rules take seconds for each thousand elements.
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    context.close()


def test_it_is_whole_without_its_script(chromium: Browser, site: Site) -> None:
    context = chromium.new_context(base_url=site.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Search").fill("topic-30-5")
    page.get_by_role("button", name="Show").click()
    assert first_row(page) == "topic-30-5"
    expect(page.get_by_role("link", name="Reload")).to_be_visible()
    context.close()


def test_it_changes_while_one_looks_and_keeps_the_focus(page: Page, site: Site) -> None:
    page.goto("/?q=topic-77")
    link = page.get_by_role("columnheader", name="Waiting").get_by_role("link")
    link.focus()
    site.model.handle(PartitionChecked(waiting("topic-77-7", reason=OpenTransaction(0, 7, 5, 9))))
    site.clock.advance_ms(3_000)
    expect(page.locator("tr.why")).to_contain_text("a transaction of producer 7", timeout=LIVE_MS)
    expect(page.get_by_label("Search")).to_have_value("topic-77")
    expect(link).to_be_focused()


def test_a_page_whose_program_ended_says_that_it_is_old_and_recovers(chromium: Browser, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    site = Site(token_file=token_file)
    context = chromium.new_context(http_credentials={"username": "anybody", "password": TOKEN})
    page = context.new_page()
    page.clock.install()
    with site.server:
        page.goto(site.url)
        verdict = page.get_by_role("status")
        expect(verdict).to_be_visible()
        token_file.write_text("another-token-of-20!")
        alert = page.get_by_role("alert")
        page.clock.run_for(6_000)
        expect(alert).to_contain_text("The token has changed")
        token_file.write_text(TOKEN)
        page.clock.run_for(6_000)
        expect(alert).to_be_hidden()
        expect(page).to_have_title(re.compile("Needs attention"))
        expect(verdict).to_be_visible()
    page.clock.run_for(6_000)
    page.wait_for_timeout(300)
    page.clock.run_for(3_000)
    expect(alert.get_by_role("heading")).to_have_text(
        re.compile(r"^No response since \d\d:\d\d:\d\d UTC: the data below is old$")
    )
    expect(verdict).to_be_hidden()
    expect(page).to_have_title(re.compile("No response"))
    assert float(page.evaluate("getComputedStyle(document.querySelector('.partitions')).opacity")) < 0.6
    assert Axe().run(page, options={"runOnly": ["wcag2a"]}).violations_count == 0
    context.close()


def test_nobody_is_asked_while_the_page_is_hidden(page: Page) -> None:
    page.clock.install(time=0)
    page.goto("/")
    page.clock.pause_at(3_600)  # From here on time goes by only where the test moves it.
    is_live = re.compile("live")
    expect(page.locator("#pulse")).to_have_class(is_live)
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    page.evaluate("document.getElementById('pulse').className = 'pulse'")
    page.clock.run_for(6_000)
    expect(page.locator("#pulse")).to_have_class(is_live)
    assert len(asked) == 1
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => !window.isSeen})")
    looks_away_or_back = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(looks_away_or_back)
    page.clock.run_for(600_000)
    with page.expect_request("**"):
        page.evaluate(f"window.isSeen = true; {looks_away_or_back}")
    assert len(asked) == 2, "only when somebody looks again"


def test_a_person_with_the_token_sees_the_page_and_its_updates(chromium: Browser, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    site = Site(token_file=token_file)
    with site.server:
        stranger = chromium.new_context()
        with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):  # Nobody is there to fill in the password.
            stranger.new_page().goto(site.url)
        stranger.close()
        context = chromium.new_context(http_credentials={"username": "anybody", "password": TOKEN})
        page = context.new_page()
        page.goto(f"{site.url}?q=topic-77")
        assert page.evaluate("getComputedStyle(document.querySelector('.tiles')).display") == "grid"
        site.model.handle(PartitionChecked(waiting("topic-77-7", reason=OpenTransaction(0, 7, 5, 9))))
        site.clock.advance_ms(3_000)
        expect(page.locator("tr.why")).to_contain_text("a transaction of producer 7", timeout=LIVE_MS)
        context.close()


def test_a_segment_that_the_program_archives_shows_by_itself_and_its_secrets_never(
    chromium: Browser, tmp_path: Path
) -> None:
    log_dir = tmp_path / "logs"
    log = GrowingLog(golden("4.3.0") / "logs", log_dir, "orders-0")
    secret = "a-password-that-nobody-sees"
    settings = {
        "store.url": (tmp_path / "archive").as_uri(),
        "store.s3.access_key_id": secret,
        "store.s3.secret_access_key": secret,
        "broker.log_dirs": str(log_dir),
    }
    with Daemon(tmp_path, settings) as daemon:
        eventually(daemon.is_ready)
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{daemon.port}/")
        expect(page.locator("tbody th")).to_have_text("orders-0")
        end = log.roll()
        expect(page.get_by_role("img", name=f"archived raw: offsets 0 to {end - 1}")).to_be_visible(timeout=60_000)
        expect(page.get_by_role("status")).to_contain_text("Every rolled segment is archived", timeout=LIVE_MS)
        context.close()
        assert all(secret not in daemon.get(path)[1] for path in ("/", "/status", "/metrics", "/readyz"))
        assert daemon.process.stop() == 0
