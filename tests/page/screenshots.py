"""`make screenshots`: pictures of the status page for the docs, from the real program over a directory that grows for an hour.

The program's clock runs fast, so that the hour takes minutes; the store is a real S3 server, the browser a real browser.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ViewportSize

from benchmarks.segments import FIRST_TIMESTAMP_MS
from tests.browser import browser
from tests.page.many_partitions import ManyPartitions
from tests.real.product import environment, s3_settings
from tests.servers.process import ServerProcess, free_port, port_answers
from tests.servers.versitygw import VersityGateway

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SPEED = 30.0
HOUR_S = 3600.0
TOPICS = {"accounts": 6, "audit-log": 4, "clickstream": 16, "inventory": 4, "ledger": 2, "orders": 12, "payments": 6}
GROWING = ("accounts", "clickstream", "inventory", "orders", "payments")
SEGMENTS = 64
DESK = ViewportSize(width=1280, height=860)
PHONE = ViewportSize(width=390, height=844)
MINUTE_MS = 60_000


class Story:
    """The directory, the program beside it, and a browser before it."""

    def __init__(self, directory: Path, pictures: Browser) -> None:
        self._pictures = pictures
        self.port = free_port()
        self.gateway = VersityGateway(directory / "versitygw", bucket="kafka-archive", options=["--quiet"])
        self.partitions = ManyPartitions(directory, SEGMENTS)
        began_ms = time.time_ns() // 1_000_000  # noqa: TID251 - the program counts from here, too
        # Everything was written at one time: what waits when the story gets there has some 38 minutes left.
        ledger_retention_ms = began_ms - FIRST_TIMESTAMP_MS + round(1000 * HOUR_S) + 48 * MINUTE_MS
        settings = {
            **s3_settings(self.gateway),
            "store.url": f"s3://{self.gateway.bucket}/eu-central/broker-1",
            "broker.log_dirs": str(self.partitions.log_dir),
            "broker.assume_leader": "true",
            "topics.policies": json.dumps(
                [
                    {"pattern": "ledger", "retention_ms": ledger_retention_ms},
                    {"pattern": ".*", "retention_ms": ledger_retention_ms + 72 * round(1000 * HOUR_S)},
                ]
            ),
            "compaction.topics": json.dumps([{"pattern": "accounts", "strategy": "offset"}]),
            "run.state_dir": str(directory / "state"),
            "store.bandwidth_bytes_per_s": "65536",
            "run.workers": "6",
            "run.watch": "false",
            "http.bind": f"127.0.0.1:{self.port}",
            "http.request_timeout_s": "300",
            "http.heartbeat_timeout_s": "3600",
            "log.format": "json",
        }
        command = [sys.executable, "-m", "tests.page.quick_program", str(SPEED)]
        self.program = ServerProcess("quick_program", command, directory / "run.log", environment(settings))

    def __enter__(self) -> Story:
        self.gateway.__enter__()
        self.program.launch()
        self.program.wait_until(lambda: port_answers(self.port), 120)
        return self

    def __exit__(self, *exception: Any) -> None:
        self.program.kill()
        self.gateway.__exit__(*exception)

    def status(self) -> Mapping[str, Any]:
        """What /status tells."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def until(self, condition: Callable[[Mapping[str, Any]], bool], timeout_s: float = 240.0) -> None:
        """Wait for something to be true of /status."""
        deadline_s = time.monotonic() + timeout_s  # noqa: TID251
        while not condition(self.status()):
            if time.monotonic() > deadline_s:  # noqa: TID251
                sys.exit(
                    f"screenshots: waited {timeout_s:.0f} s in vain; the program's log ends with\n{self.program.output()[-2000:]}"
                )
            time.sleep(0.2)  # noqa: TID251

    def picture(
        self, name: str, *, size: ViewportSize = DESK, scheme: Literal["light", "dark"] = "light", scale: float = 1.0
    ) -> None:
        """Take one, and say how large the file is."""
        context = self._pictures.new_context(
            viewport=size, color_scheme=scheme, device_scale_factor=scale, reduced_motion="reduce"
        )
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{self.port}/", wait_until="load")
        path = IMAGES / f"status-page-{name}.png"
        page.screenshot(path=path)
        context.close()
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)

    def an_hour(self) -> None:
        """Partitions grow, in bursts; what the broker rolled is archived soon after."""
        randomness, partitions = random.Random(7), self.partitions
        for topic, count in TOPICS.items():
            for number in range(count):
                partitions.grow(f"{topic}-{number}", randomness.randrange(4, 9))
        names = [name for name in partitions.names() if name.rpartition("-")[0] in GROWING]
        end_s = time.monotonic() + HOUR_S / SPEED  # noqa: TID251
        while (left_s := end_s - time.monotonic()) > 0:  # noqa: TID251
            burst = 7 if 0.45 < left_s * SPEED / HOUR_S < 0.6 else 2
            for name in randomness.sample(names, burst):
                partitions.grow(name)
            time.sleep(min(1.5, left_s))  # noqa: TID251
        self.until(lambda status: all(row["state"] != "waiting" for row in status["partitions"]))

    def burst(self) -> None:
        """Many partitions roll at once, and their uploads begin."""
        for name in self.partitions.names():
            if name.rpartition("-")[0] in GROWING:
                self.partitions.grow(name)
        self.until(lambda status: len(status["uploads"]) > 2)


def states(status: Mapping[str, Any]) -> dict[str, str]:
    """The state of each partition."""
    return {f"{row['topic']}-{row['partition']}": row["state"] for row in status["partitions"]}


def main() -> int:
    """Tell the story, and take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-")))
        story = stack.enter_context(Story(directory, stack.enter_context(browser())))
        story.until(lambda status: not status["not_ready"])
        story.picture("empty")
        story.an_hour()
        story.picture("dark", scheme="dark")
        story.burst()
        story.picture("healthy")
        ledger = story.partitions
        ledger.stable["ledger-1"] = ledger.grow("ledger-1")
        ledger.grow("ledger-1", 2)
        story.until(lambda status: states(status)["ledger-1"] == "at_risk")
        story.picture("at-risk")
        story.picture("phone", size=PHONE, scale=1.6)
        del ledger.stable["ledger-1"]
        ledger.checkpoint()
        story.until(lambda status: states(status)["ledger-1"] == "archived")
        ledger.grow("orders-7", 3, skip=3)
        story.until(lambda status: states(status)["orders-7"] == "hole")
        story.picture("hole")
    return 0


if __name__ == "__main__":
    sys.exit(main())
