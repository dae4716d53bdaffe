"""What is kept of a kernel is for the files that it is made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.producer_state import forked

Result = Callable[[str], list[str]]

DECLARES = (
    "from pathlib import Path\nfrom producer_state.compiling import compilers\n"
    "native, native_inline = compilers(Path(__file__).parent)\n"
)
CALLED = "from kernels_at_hand import native\nSUMMAND = 1\n@native\ndef called(x):\n    return x + 1\n"
CALLER = "from kernels_at_hand import native\nfrom kernels_at_hand.called import SUMMAND, called\n"
CALLER += "@native\ndef caller(x):\n    return called(x) * 10 + SUMMAND\n"
PRINTS = "from kernels_at_hand.caller import caller\nprint(caller(1), sum(caller.stats.cache_hits.values()))"

FILES_ARE_SMALL = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
HAS_NO_ROOM = """
import errno
from numba.core.caching import IndexDataCacheFile as File
def save(*_each):
    raise OSError(errno.ENOSPC, "no room")
File._save_data = save
"""

SUMS = "from kernels_at_hand import native\n@native\ndef total(rows):\n    return rows[0] + rows[1]\n"
KEEPS_TWO = """
import numpy as np
from numba.core.caching import IndexDataCacheFile as File
from kernels_at_hand.sums import total
kept = []
File.save = lambda *each: kept.append(each)
total(np.ones(2, np.int64)), total(np.ones(2, np.float64))
(file, first, code), (_, second, _) = kept
for types in (first, second):
    file._save_index({types: file._data_name(1)})
file._save_data(file._data_name(1), code)
"""
SUMS_UP = """
import numpy as np
from kernels_at_hand.sums import total
print(total(np.ones(2, np.float64)), sum(total.stats.cache_hits.values()))
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Each call has a new one."""
    context = get_context("forkserver")
    context.set_forkserver_preload([forked.__name__])
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        yield pool


@pytest.fixture(autouse=True, name="folder")
def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels_at_hand"
    folder.mkdir()
    for name, content in (("__init__", DECLARES), ("called", CALLED), ("caller", CALLER), ("sums", SUMS)):
        (folder / f"{name}.py").write_text(content)
    return folder


@pytest.fixture
def result(processes: ProcessPoolExecutor, tmp_path: Path) -> Result:
    return lambda program: processes.submit(forked.printed, tmp_path, program).result()


def test_a_change_in_what_a_kernel_calls_counts_though_the_file_keeps_its_time_and_size(
    result: Result, folder: Path
) -> None:
    assert [result(PRINTS), result(PRINTS)] == [["21", "0"], ["21", "1"]]
    called = folder / "called.py"
    before = called.stat()
    for changed, expected in ((CALLED.replace("x + 1", "x + 2"), "31"), (CALLED.replace("= 1", "= 5"), "25")):
        called.write_text(changed)
        os.utime(called, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert called.stat().st_size == before.st_size
        assert result(PRINTS) == [expected, "0"]


def test_code_of_other_sources_is_not_called_where_a_disk_was_full_or_a_process_ended_between_index_and_code(
    result: Result, folder: Path
) -> None:
    assert result(PRINTS) == ["21", "0"]
    (folder / "called.py").write_text(CALLED.replace("x + 1", "x + 2"))
    assert [result(HAS_NO_ROOM + PRINTS), result(PRINTS)] == [["31", "0"], ["31", "0"]]
    assert result(PRINTS) == ["31", "1"]


def test_code_of_another_version_of_numba_is_not_called_where_a_disk_was_full(result: Result) -> None:
    assert result(PRINTS) == ["21", "0"]
    upgraded = "import numba\nnumba.__version__ = 'the next'\n"
    assert result(upgraded + HAS_NO_ROOM + PRINTS) == ["21", "0"]
    assert result(upgraded + PRINTS) == ["21", "0"]


def test_code_that_another_process_kept_for_other_types_at_the_same_time_is_not_called(result: Result) -> None:
    """Both processes find an empty cache: the second one's index stays, and the first one's code."""
    assert result(KEEPS_TWO) == []
    assert result(SUMS_UP)[0] == "2.0"
    assert result(SUMS_UP) == ["2.0", "1"], "the right code is kept now"


@pytest.mark.parametrize("content", [b"", bytes(100)], ids=["empty", "zeros"])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_what_was_kept_and_lost_its_content_in_a_crash_is_compiled_again(
    result: Result, tmp_path: Path, suffix: str, content: bytes
) -> None:
    assert result(SUMS_UP) == ["2.0", "0"]
    (kept,) = tmp_path.rglob(f"*.{suffix}")
    kept.write_bytes(content)
    assert [result(SUMS_UP), result(SUMS_UP)] == [["2.0", "0"], ["2.0", "1"]]


def test_a_kernel_that_cannot_be_kept_is_compiled_again(result: Result, folder: Path) -> None:
    """Where there is a folder, but no room. Without any folder: tests/logformat/test_kernels.py."""
    assert [result(FILES_ARE_SMALL + PRINTS), result(PRINTS)] == [["21", "0"], ["21", "0"]]
