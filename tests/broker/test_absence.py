"""What the log says while the broker is away."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from sidecar.broker.absence import REASONS_MAX, Absence


def told(logs: list[Any]) -> list[tuple[str, str | None]]:
    return [(line["event"], line.get("error")) for line in logs]


def test_each_reason_is_told_once_and_numbers_make_no_new_one() -> None:
    absence = Absence("kafka:9092")
    with capture_logs() as logs:
        absence.is_over()  # never away
        for words in (
            "refused",
            "refused",
            "user us is refused",
            "answer of 10 bytes",
            "answer of 11 bytes",
            "refused",
        ):
            absence.goes_on(words)
        absence.is_over()
        absence.is_over()
        absence.goes_on("refused")
    away = [("broker_away", words) for words in ("refused", "user us is refused", "answer of 10 bytes")]
    assert told(logs) == [*away, ("broker_back", None), ("broker_away", "refused")]


def test_words_that_always_differ_do_not_fill_the_log() -> None:
    absence = Absence("kafka:9092")
    with capture_logs() as logs:
        for count in range(1, 100):
            absence.goes_on("x" * count)
    assert len(logs) == REASONS_MAX
