"""Tasks and stages in this process, on one thread or several. What waits between stages waits in a file if it is much."""

from __future__ import annotations

import tempfile
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from sidecar.engine_ports import TO_DRIVER, Answer, Row, StagedRun, StageEngine, Stages, Task, ThirdStage
from sidecar.logformat.files import cannot_be_written
from sidecar.rewriting.work_files import WorkFile, nameless_file

_AHEAD: Final = 4
"""Tasks per thread that are given out before the first answer is taken: bounds memory, and no thread waits."""
_IN_MEMORY_BYTES: Final = 64 * 1024 * 1024
"""Of the rows of one exchange."""


@dataclass(eq=False)
class LocalEngine:
    """A `StageEngine` in this process, one stage after the other. Kernels release the interpreter, so that threads use all cores.

    Memory: a window or a key table or a bucket for each of `cores` threads, and a bound for what waits between the stages. `place`:
    where rows wait that are more than `in_memory_bytes`, made if need be; None: where temporary files go.
    """

    cores: int = 1
    place: Path | None = None
    in_memory_bytes: int = field(default=_IN_MEMORY_BYTES, kw_only=True)

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[StagedRun]:
        answers: list[Any] = []
        place = self.place or Path(tempfile.gettempdir())
        with ExitStack() as files:
            items = _Rows(answers, files, place, self.in_memory_bytes)
            with ExitStack() as bucket_files:
                buckets = _Rows(answers, bucket_files, place, self.in_memory_bytes)
                self._each(lambda task: buckets.add_all(stages.first(task)), tasks)
                self._each(
                    lambda bucket: items.add_all(stages.second(bucket, buckets.pop(bucket))), sorted(buckets.numbers())
                )

            def third(function: ThirdStage, plans: Sequence[Any], _uploads: bool) -> list[Any]:
                found: list[list[Any]] = [[] for _ in plans]
                self._each(
                    lambda task: found[task].extend(function(_rows_of(task, stages, items), plans[task])),
                    range(len(plans)),
                )
                return [answer for answers in found for answer in answers]

            yield StagedRun(answers, third, items.file_bytes)

    def run(
        self, function: Callable[[Task], Answer], tasks: Sequence[Task], *, uploads: bool = False
    ) -> Generator[Answer]:
        """See `TaskEngine`. One thread: in this very one, each task when its answer is asked for."""
        if self.cores == 1:
            yield from map(function, tasks)
            return
        pool = ThreadPoolExecutor(self.cores, thread_name_prefix="engine")
        try:
            waiting: deque[Future[Answer]] = deque()
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) == self.cores * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _each(self, function: Callable[[Task], None], tasks: Sequence[Task]) -> None:
        for _ in self.run(function, tasks):
            continue


def _rows_of(task: int, stages: Stages, items: _Rows) -> Iterator[Row]:
    for item in items.numbers():
        if stages.third_task_of(item) == task:
            yield from ((item, value) for value in items.values(item))


class _Rows:
    """Rows by number, those to the driver in its list. The others are bytes; beyond a bound they wait in a file without a name.
    Thread-safe.
    """

    def __init__(self, answers: list[Any], files: ExitStack, place: Path, in_memory_bytes: int) -> None:
        self._answers, self._files, self._place = answers, files, place
        self._left_bytes = in_memory_bytes
        self._rows: defaultdict[int, list[bytes | Callable[[], bytes]]] = defaultdict(list)
        self._file: WorkFile | None = None
        self._lock = threading.Lock()

    def add_all(self, rows: Iterable[Row]) -> None:
        """Raises StagingFull."""
        for number, value in rows:
            if number == TO_DRIVER:
                with self._lock:
                    self._answers.append(value)
                continue
            with self._lock:
                if len(value) > self._left_bytes:
                    self._rows[number].append(self._written(value))
                else:
                    self._left_bytes -= len(value)
                    self._rows[number].append(value)

    def _written(self, content: bytes) -> Callable[[], bytes]:
        if self._file is None:
            with cannot_be_written(self._place):
                self._place.mkdir(parents=True, exist_ok=True)
            self._file = self._files.enter_context(nameless_file(self._place))
        written = partial(self._file.read_at, self._file.size_bytes, len(content))
        self._file.write(content)
        return written

    @property
    def file_bytes(self) -> int:
        return 0 if self._file is None else self._file.size_bytes

    def numbers(self) -> list[int]:
        return list(self._rows)

    def values(self, number: int) -> Iterator[bytes]:
        """Raises StagingFull for a disk that does not give back what was written."""
        for value in self._rows[number]:
            yield value() if callable(value) else value

    def pop(self, number: int) -> list[bytes]:
        """The values of a number, which are needed once."""
        values = list(self.values(number))
        with self._lock:
            del self._rows[number]
        return values


class LocalEngines:
    """A `CompactionEngines`."""

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        return LocalEngine()

    def stop(self) -> None:
        """It holds no resources. Work of this process cannot be ended from outside: it must be small."""
