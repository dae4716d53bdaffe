"""Rows between the stages of a run, and answers to the driver, each with a CRC-32C that is checked where it is read.

On their way they wait in files, and on a cluster they cross the network: neither a local file nor Spark checks bytes that are not
compressed. Engines carry bytes only.
"""

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from crc32c import crc32c

from sidecar.engine_ports import TO_DRIVER, Row, StagedRun, StageEngine, Stages, ThirdStage
from sidecar.errors import RowsLost

_KIND: Final = struct.Struct("<?q")
_TRAILER: Final = struct.Struct("<?I")
"""Whether the value went through pickle, and the checksum. Behind the value, whose numbers stay aligned."""


def packed(number: int, value: Any) -> bytes:
    """The row's value as bytes, which `unpacked` checks. The checksum covers the row's number, too."""
    is_plain = number != TO_DRIVER and isinstance(value, bytes | memoryview)
    content = value if is_plain else pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return b"".join((content, _TRAILER.pack(not is_plain, _checksum(number, content, is_pickled=not is_plain))))


def unpacked(number: int, row: bytes) -> Any:
    """The value; for a stage a memoryview where it was bytes. Raises RowsLost if anything has changed since it was packed."""
    content = memoryview(row)[: -_TRAILER.size]
    is_pickled, checksum = _TRAILER.unpack_from(row, len(content)) if len(row) >= _TRAILER.size else (False, None)
    if checksum != _checksum(number, content, is_pickled=is_pickled):
        raise RowsLost("rows were damaged between the stages. Nothing was replaced: compact again")
    return pickle.loads(content) if is_pickled else content  # noqa: S301 - of a task of this run, and whole


def _checksum(number: int, content: bytes | memoryview, *, is_pickled: bool) -> int:
    return crc32c(_KIND.pack(is_pickled, number), crc32c(content, gil_release_mode=1))


@contextmanager
def staged(engine: StageEngine, stages: Stages, tasks: Sequence[Any]) -> Iterator[StagedRun]:
    """`engine.staged`, whose rows and answers are checked. Raises RowsLost, and what the engine raises; so does the third stage."""
    checked = replace(stages, first=partial(_first, stages.first), second=partial(_second, stages.second))
    with engine.staged(checked, tasks) as run:

        def third(function: ThirdStage, plans: Sequence[Any], uploads: bool) -> list[Any]:
            return _opened(run.third(partial(_third, function), plans, uploads))

        yield StagedRun(_opened(run.answers), third, run.waiting_bytes)


def _opened(answers: Sequence[bytes]) -> list[Any]:
    return [unpacked(TO_DRIVER, answer) for answer in answers]


def _first(stage: Callable[[Any], Iterator[Row]], task: Any) -> Iterator[Row]:
    return _packed_rows(stage(task))


def _second(
    stage: Callable[[int, Sequence[Any]], Iterator[Row]], bucket: int, values: Sequence[bytes]
) -> Iterator[Row]:
    return _packed_rows(stage(bucket, [unpacked(bucket, value) for value in values]))


def _third(function: ThirdStage, rows: Iterable[Row], plan: Any) -> Iterator[bytes]:
    received = ((number, unpacked(number, value)) for number, value in rows)
    return (packed(TO_DRIVER, answer) for answer in function(received, plan))


def _packed_rows(rows: Iterable[Row]) -> Iterator[Row]:
    return ((number, packed(number, value)) for number, value in rows)
