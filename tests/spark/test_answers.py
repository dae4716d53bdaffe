"""Answers of workers are checked when they arrive, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.io_share import be_one_of
from sidecar.spark.engine import SparkEngine
from sidecar.spark.failures import SparkFailed


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Tasks run in this process here, and make it one of several."""
    yield
    be_one_of(1)


class Rows:
    """An RDD of one partition. `fetch`: what the driver receives for an answer."""

    def __init__(self, rows: Iterable[Any], fetch: Callable[[bytes], bytes]) -> None:
        self.rows, self.fetch = list(rows), fetch

    def map(self, function: Any) -> Rows:
        return Rows(map(function, self.rows), self.fetch)

    def partitionBy(self, *_: Any) -> Rows:  # noqa: N802 - as pyspark has it
        return self

    def mapPartitions(self, function: Any, **_: Any) -> Rows:  # noqa: N802 - as pyspark has it
        return Rows(function(self.rows), self.fetch)

    def toLocalIterator(self, **_: Any) -> Iterator[bytes]:  # noqa: N802 - as pyspark has it
        return map(self.fetch, self.rows)


def engine(fetch: Callable[[bytes], bytes]) -> SparkEngine:
    context = SimpleNamespace(
        defaultParallelism=1,
        parallelize=lambda rows, _slices: Rows(rows, fetch),
        getLocalProperty=lambda _name: None,
        setLocalProperty=lambda _name, _value: None,
        cancelJobGroup=lambda _group: None,
    )

    @contextmanager
    def opened() -> Iterator[Any]:
        yield context

    return SparkEngine(SimpleNamespace(context=opened, death=lambda _s: None))  # type: ignore[arg-type]


def squares(numbers: Sequence[int]) -> list[int]:
    return [number * number for number in numbers]


def test_what_arrives_whole_is_the_answer() -> None:
    assert list(engine(lambda answer: answer).run(squares, [[3], [4, 5]])) == [[9], [16, 25]]


@pytest.mark.parametrize("damage", [lambda a: a[:-1], lambda a: a[:-3] + bytes([a[-3] ^ 1]) + a[-2:]])
def test_an_answer_that_was_damaged_on_its_way_is_none(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(SparkFailed, match="damaged on its way"):
        list(engine(damage).run(squares, [[3]]))
