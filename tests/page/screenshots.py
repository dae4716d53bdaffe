"""`make screenshots`: pictures of the status page for the docs, from the real program over a directory that grows for an hour.

The program's clock runs fast, so that the hour takes minutes; the store is a real S3 server, the browser a real browser. Ends
within `LIMIT_S`, and with an error where the page does not show what a picture is to show.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ViewportSize, expect

from benchmarks.segments import FIRST_TIMESTAMP_MS
from tests.browser import browser
from tests.page.many_partitions import ManyPartitions
from tests.real.product import environment, s3_settings
from tests.servers.process import ServerProcess, free_port, port_answers
from tests.servers.versitygw import VersityGateway

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SPEED = 30.0
TOPICS = {"accounts": 6, "audit-log": 4, "clickstream": 16, "inventory": 4, "ledger": 2, "orders": 12, "payments": 6}
GROWING = ("accounts", "clickstream", "inventory", "orders", "payments")
SEGMENTS = 64
DESK = ViewportSize(width=1280, height=900)
PHONE = ViewportSize(width=390, height=1290)
MINUTE_MS = 60_000
LIMIT_S = 600.0
SAYS_WITHIN_MS = 10_000


class Story:
    """The directory, the program beside it, and a browser before it."""

    def __init__(self, directory: Path, pictures: Browser) -> None:
        self._pictures, self._log_path = pictures, directory / "run.log"
        self._began_s = time.monotonic()  # noqa: TID251 - a real program has no other clock
        self._began_ms = time.time_ns() // 1_000_000  # noqa: TID251
        self.port = free_port()
        self.gateway = VersityGateway(directory / "versitygw", bucket="kafka-archive", options=["--quiet"])
        self.partitions = ManyPartitions(directory, SEGMENTS)
        self._randomness = random.Random(7)
        # All records have about the same timestamp: a segment that waits after the hour has some 50 minutes left.
        ledger_retention_ms = self._began_ms - FIRST_TIMESTAMP_MS + (60 + 58) * MINUTE_MS
        self._settings = {
            **s3_settings(self.gateway),
            "store.url": f"s3://{self.gateway.bucket}/eu-central/broker-1",
            "broker.log_dirs": str(self.partitions.log_dir),
            "broker.assume_leader": "true",
            "topics.policies": json.dumps(
                [
                    {"pattern": "ledger", "retention_ms": ledger_retention_ms},
                    {"pattern": ".*", "retention_ms": ledger_retention_ms + 72 * 60 * MINUTE_MS},
                ]
            ),
            "compaction.topics": json.dumps([{"pattern": "accounts", "strategy": "offset"}]),
            "run.state_dir": str(directory / "state"),
            "run.workers": "6",
            "run.watch": "false",
            "http.bind": f"127.0.0.1:{self.port}",
            "http.request_timeout_s": "300",
            "http.heartbeat_timeout_s": "3600",
            "log.format": "json",
        }

    def __enter__(self) -> Story:
        self.gateway.__enter__()
        self.start(SPEED, {"store.bandwidth_bytes_per_s": "65536"})
        return self

    def __exit__(self, *exception: Any) -> None:
        self.program.kill()
        self.gateway.__exit__(*exception)

    def passed_s(self) -> float:
        """How long the story lasts, in seconds of the machine's clock."""
        return time.monotonic() - self._began_s  # noqa: TID251

    def start(self, speed: float, settings: Mapping[str, str]) -> None:
        """The program runs at the story's time, and has checked all partitions once."""
        begin_ms = self._began_ms + round(1000 * SPEED * self.passed_s())
        command = [sys.executable, "-m", "tests.page.quick_program", str(speed), str(begin_ms)]
        variables = environment({**self._settings, **settings})
        self.program = ServerProcess("quick_program", command, self._log_path, variables)
        self.program.launch()
        self.program.wait_until(lambda: port_answers(self.port), 120)
        self.until("the first check is over", lambda status: not status["not_ready"])

    def status(self) -> Mapping[str, Any]:
        """What /status tells."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def until(self, what: str, condition: Callable[[Mapping[str, Any]], bool]) -> None:
        """Wait for something to be true of /status, at most until the story is to end."""
        while not condition(status := self.status()):
            if self.passed_s() > LIMIT_S:
                found = {name: state for name, state in states(status).items() if state != "archived"}
                sys.exit(f"screenshots: not so within {LIMIT_S:.0f} s: {what}. {found}\n{self.program.tail()}")
            time.sleep(0.2)  # noqa: TID251

    def until_archived(self, but: str = "") -> None:
        """Everything rolled is archived, except of one partition."""
        what = "all is archived" + (f" but {but}" if but else "")
        self.until(what, lambda status: {s for name, s in states(status).items() if name != but} == {"archived"})

    def picture(
        self,
        name: str,
        *says: str | re.Pattern[str],
        size: ViewportSize = DESK,
        scheme: Literal["light", "dark"] = "light",
        scale: float = 1.0,
    ) -> None:
        """Take one, and print how large the file is. `says`: headline and problems; AssertionError if they are others."""
        context = self._pictures.new_context(
            viewport=size, color_scheme=scheme, device_scale_factor=scale, reduced_motion="reduce"
        )
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{self.port}/", wait_until="load")
        expect(page.locator("#verdict h2, #verdict li")).to_have_text(says, timeout=SAYS_WITHIN_MS)
        path = IMAGES / f"status-page-{name}.png"
        page.screenshot(path=path)
        context.close()
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)

    def an_hour(self) -> None:
        """Partitions grow; a part of the time more of them."""
        for topic, count in TOPICS.items():
            for number in range(count):
                self.partitions.grow(f"{topic}-{number}", self._randomness.randrange(4, 9))
        for minutes, at_once in ((24, 2), (9, 7), (27, 2)):
            self.time_goes_by(minutes, at_once)
        self.until_archived()

    def time_goes_by(self, minutes: int, at_once: int) -> None:
        """So many partitions roll a segment again and again."""
        ends_s = time.monotonic() + minutes * 60 / SPEED  # noqa: TID251
        while (left_s := ends_s - time.monotonic()) > 0:  # noqa: TID251
            for name in self._randomness.sample(self.growing(), at_once):
                self.partitions.grow(name)
            time.sleep(min(1.5, left_s))  # noqa: TID251

    def growing(self) -> list[str]:
        """Partitions that are written to."""
        return [name for name in self.partitions.names() if name.rpartition("-")[0] in GROWING]

    def burst(self) -> None:
        """Many partitions roll at once, and their uploads begin."""
        for name in self.growing():
            self.partitions.grow(name)
        self.until("several segments are uploaded at once", lambda status: len(status["uploads"]) > 2)

    def a_risk(self, name: str) -> None:
        """Two segments roll that do not become stable, so that they wait."""
        self.partitions.stable[name] = self.partitions.grow(name)
        self.partitions.grow(name, 2)
        self.until(
            f"two segments of {name} are at risk",
            lambda status: any(
                (f"{row['topic']}-{row['partition']}", row["state"], row["segments_waiting"]) == (name, "at_risk", 2)
                for row in status["partitions"]
            ),
        )

    def no_risk(self, name: str) -> None:
        """They do become stable."""
        del self.partitions.stable[name]
        self.partitions.checkpoint()
        self.until_archived()

    def a_gap(self, name: str) -> None:
        """While the program does not run, retention deletes segments that it has not archived."""
        self.program.stop()
        self.partitions.grow(name, 6)
        self.partitions.retain(name, 2)
        # At a high speed its first check would exceed the limit of 10 s, and show what it has not read as waiting.
        self.start(1.0, {})
        self.until(f"{name} stops at a gap", lambda status: states(status)[name] == "gap")
        self.until_archived(but=name)


def states(status: Mapping[str, Any]) -> dict[str, str]:
    """The state of each partition."""
    return {f"{row['topic']}-{row['partition']}": row["state"] for row in status["partitions"]}


def main() -> int:
    """Play the story, and take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-")))
        story = stack.enter_context(Story(directory, stack.enter_context(browser())))
        story.picture("empty", "No partitions in the log directories yet")
        story.an_hour()
        story.picture("dark", "All is well. Every rolled segment is archived", scheme="dark")
        story.burst()
        story.picture("healthy", re.compile(r"^All is well\. \d+ partitions upload segments$"))
        story.until_archived()
        story.a_risk("ledger-1")
        at_risk = "Needs attention", "1 partition at risk: the broker deletes unarchived segments within the hour"
        story.picture("at-risk", *at_risk)
        story.picture("phone", *at_risk, size=PHONE, scale=1.6)
        story.no_risk("ledger-1")
        story.a_gap("orders-7")
        story.picture("gap", "Needs attention", "1 partition stopped at a gap")
        print(f"all in {IMAGES} after {story.passed_s():.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
