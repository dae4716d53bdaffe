"""A library of kernels that was built beforehand does what numba does, without numba; and without it, numba does it."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producer_state import kernel_build, kernel_library
from producer_state.kernel_library import Block, KernelLibrary, Prepared
from sidecar.compaction import library as compaction
from sidecar.logformat import library as logformat
from tests.producer_state import kernels_of_test

KERNELS = kernels_of_test.__name__
LINKED = pytest.mark.skipif(
    not any(map(shutil.which, kernel_build.LINKERS)), reason="no linker: install Debian's binutils"
)


class Declared:
    """A library of its own in a cache of its own, and what numba was asked for."""

    def __init__(self, calls_max: float = math.inf) -> None:
        self.library = KernelLibrary("test", [Path(kernels_of_test.__file__).parent], [], calls_max=calls_max)
        self.add_up = self.library.kernel(KERNELS, "add_up", [Block.of(np.int32, 2), None], 2)
        self.negate = self.library.kernel(KERNELS, "negate", [Block.of(np.int16)], 0)
        self.last = self.library.kernel(KERNELS, "last", [Block.of(np.uint32)], 1)

    def compiled(self) -> set[str]:
        kernels = {"add_up": self.add_up, "negate": self.negate, "last": self.last}
        return {name for name, kernel in kernels.items() if "compiled" in vars(kernel)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tiered-sidecar"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        path = kernel_build.build(Declared().library)
    assert path is not None
    return path


def results(declared: Declared) -> list[Any]:
    values = np.array([1, -2, 3], np.int16)
    rows = np.arange(6, dtype=np.int32).reshape(2, 3)
    return [
        declared.negate(values),
        values.tolist(),
        declared.add_up(rows, -10),
        declared.add_up(rows[:0], 1),
        declared.last(np.array([1, 2**32 - 1], np.uint32)),
    ]


EXPECTED = [None, [-1, 2, -3], (-150, 6), (0, 0), 2**32 - 1]


def test_without_a_library_numba_compiles_and_the_log_says_so_once(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    declared = Declared()
    assert results(declared) == EXPECTED
    assert declared.compiled() == {"add_up", "negate", "last"}
    (logged,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert logged.startswith(f"no kernel library for {declared.library.name}: [Errno 2] No such file")
    assert "takes 110 MB more; `tiered-sidecar prepare` builds" in logged


@LINKED
def test_the_library_does_the_same_without_numba(built: Path, cache: Path) -> None:
    cache.mkdir()
    shutil.copy(built, cache)
    declared = Declared()
    assert results(declared) == EXPECTED
    assert declared.compiled() == set()
    assert kernel_build.build(declared.library) == cache / built.name
    assert [path.name for path in cache.iterdir()] == [built.name]


@LINKED
@pytest.mark.parametrize("calls_max", [math.inf, 0])
def test_a_prepared_array_is_the_array_itself(built: Path, cache: Path, calls_max: float) -> None:
    cache.mkdir()
    shutil.copy(built, cache)
    declared, values = Declared(calls_max), np.array([1, -2, 3], np.int16)
    prepared = Prepared.of(values)
    declared.negate(prepared)
    values += 1
    declared.negate(prepared)
    assert values.tolist() == [0, -3, 2]
    assert declared.add_up(Prepared.of(np.arange(6, dtype=np.int32).reshape(2, 3)), -10) == (-150, 6)
    assert declared.compiled() == (set() if calls_max else {"negate", "add_up"})


@LINKED
def test_numba_has_a_kernel_that_is_called_often(built: Path, cache: Path) -> None:
    cache.mkdir()
    shutil.copy(built, cache)
    declared = Declared(calls_max=2)
    assert results(declared) == EXPECTED
    assert declared.compiled() == set()
    assert results(declared) == EXPECTED
    assert declared.compiled() == {"add_up"}


@LINKED
def test_what_others_may_have_written_is_not_loaded_and_logged(
    built: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.mkdir()
    copied = Path(shutil.copy(built, cache))
    for mode, loaded in ((0o775, False), (0o757, False), (0o755, True)):
        copied.chmod(mode)
        caplog.clear()
        assert (Declared().library.loaded is not None) is loaded
        logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert [f"{copied} can be written by users other than" in text for text in logged] == [True] * (not loaded)


@LINKED
def test_the_library_that_was_checked_is_the_one_that_is_loaded(
    built: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    copied = Path(shutil.copy(built, cache))

    def exchanged() -> int:
        other = cache / "other"
        other.write_bytes(b"of somebody else")
        other.replace(copied)
        return os.getuid()

    declared = Declared()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", exchanged)
        assert declared.library.loaded is not None
    assert results(declared) == EXPECTED
    assert declared.compiled() == set()


@LINKED
def test_each_library_is_its_own(built: Path, cache: Path) -> None:
    """Though the dynamic linker knows both by the numbers of their descriptors."""
    cache.mkdir()
    first, second = Declared().library, KernelLibrary("other", [Path(kernels_of_test.__file__).parent], [])
    for library in (first, second):
        shutil.copy(built, library.path())
    assert first.loaded is not None
    assert second.loaded is not None
    assert first.loaded._handle != second.loaded._handle


@LINKED
def test_arrays_that_were_not_declared_are_for_numba(built: Path, cache: Path) -> None:
    cache.mkdir()
    shutil.copy(built, cache)
    for rows in (np.ones((4, 6), np.int32)[:, ::2], np.ones((4, 3), np.int64), np.ones((3, 4), np.int32).T):
        declared = Declared()
        assert declared.add_up(rows, 2) == declared.add_up(Prepared.of(rows), 2) == (24, 12)
        assert declared.compiled() == {"add_up"}


def test_what_is_not_a_library_is_not_taken_for_one(cache: Path) -> None:
    declared = Declared()
    cache.mkdir()
    declared.library.path().write_bytes(b"damaged")
    assert results(declared) == EXPECTED


@LINKED
def test_what_cannot_be_loaded_is_built_again(cache: Path) -> None:
    path = Declared().library.path()
    cache.mkdir()
    path.write_bytes(b"damaged")
    assert kernel_build.build(Declared().library) == path
    assert Declared().library.loaded is not None


@LINKED
def test_a_library_is_on_disk_before_it_has_its_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, synced = Declared().library, list[tuple[int, bool]]()

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, library.path().exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    path = kernel_build.build(library)
    assert path is not None
    assert synced == [(path.stat().st_ino, False)]


def test_a_pipe_of_that_name_keeps_no_process_waiting(cache: Path) -> None:
    library = Declared().library
    cache.mkdir()
    os.mkfifo(library.path(), 0o644)
    assert library.loaded is None


def test_other_sources_and_other_processors_have_another_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, environment = tmp_path / "source.py", {"XDG_CACHE_HOME": "/cache"}
    library = KernelLibrary("test", [tmp_path], [])
    source.write_text("A = 1\n")
    paths = [library.path(environment), library.path({**environment, "NUMBA_CPU_NAME": "x86-64-v2"})]
    source.write_text("A = 2\n")
    paths.append(library.path(environment))
    facts = tmp_path / "cpuinfo"
    facts.write_text("processor\t: 0\nflags\t\t: sse sse2\n")
    monkeypatch.setattr(kernel_library, "_CPU_FACTS", facts)
    paths.append(library.path(environment))
    facts.write_text("processor\t: 0\nflags\t\t: sse\n")
    paths.append(library.path(environment))
    assert len({path.name for path in paths}) == len(paths)
    assert {path.parent for path in paths} == {Path("/cache/tiered-sidecar")}


@pytest.mark.parametrize(
    ("named", "is_whole"),
    [
        ({"NUMBA_CPU_NAME": "x86-64-v2"}, False),
        ({"NUMBA_CPU_FEATURES": "+sse2"}, False),
        ({"NUMBA_CPU_NAME": "x86-64-v2", "NUMBA_CPU_FEATURES": ""}, True),
        ({"NUMBA_CPU_NAME": "generic"}, True),
    ],
)
def test_a_processor_that_is_named_by_half_is_this_one_for_the_rest(
    named: dict[str, str], is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba takes what is not named from the processor, whose instructions another one may not have."""
    library, facts = Declared().library, tmp_path / "cpuinfo"
    monkeypatch.setattr(kernel_library, "_CPU_FACTS", facts)
    names = set()
    for flags in ("sse sse2 avx", "sse sse2"):
        facts.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
        names.add(library.path({"XDG_CACHE_HOME": "/cache", **named}).name)
    assert (len(names) == 1) is is_whole


def test_without_sources_there_is_no_library(cache: Path, tmp_path: Path) -> None:
    """As in a zip file: one that was built of another release would have the same name."""
    library = KernelLibrary("test", [tmp_path / "package.zip" / "producer_state"], [])
    with pytest.raises(FileNotFoundError, match="no sources in"):
        library.path()
    assert library.loaded is None


def test_without_a_linker_there_is_no_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    declared = Declared()
    assert kernel_build.build(declared.library) is None
    assert not cache.exists()


@LINKED
@pytest.mark.parametrize(
    ("function", "parameters", "declared"),
    [("add_up", [Block.of(np.int32, 2), None], 1), ("last", [Block.of(np.int16)], 1)],
)
def test_a_wrong_declaration_is_found_when_it_is_built(
    cache: Path, function: str, parameters: list[Any], declared: int
) -> None:
    library = KernelLibrary("test", [Path(kernels_of_test.__file__).parent], [])
    library.kernel(KERNELS, function, parameters, declared)
    with pytest.raises(TypeError, match=f"kernel {function} returns"):
        kernel_build.build(library)
    assert list(cache.iterdir()) == []


@pytest.mark.apart
def test_who_does_not_see_the_library_finds_what_numba_kept(tmp_path: Path) -> None:
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    counts = []
    for program in (_BUILD, _REPLAYS):
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, env={**os.environ, **variables}
        )
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        counts.append(len(list((tmp_path / "kept").rglob("*.nbc"))))
    assert counts[0] == counts[1] > 0


_BUILD = """
from producer_state import kernel_build, kernel_library
kernel_build.build(kernel_library.LIBRARY)
"""

_REPLAYS = """
from producer_state.replay import replay
from producer_state.digest import apply, merge
from producer_state.table import ProducerTable
from tests.producer_state.random_logs import digest_batches, random_log

log = random_log(11)
start, end = log.boundaries[0], log.boundaries[-1]
segments = [digest_batches(log.between(*one), *one) for one in log.segments()]
whole = segments[0]
for one in segments[1:]:
    whole = merge(whole, one)
print(whole.coverage, whole.rows.tolist(), apply(ProducerTable.blank(start), whole).entries())
print(replay(ProducerTable.blank(start), log.facts))
"""

_COMPACTS = """
from hashlib import sha256
from itertools import product
from sidecar.compaction.rules import CompactionRules, LegacyFormat
from sidecar.compaction_strategy import Strategy
from tests.compaction.engine import compact
from tests.compaction.partitions import partition_in
from tests.golden import VERSIONS, partitions, wall_clock_ms

for version in VERSIONS:
    choices = list(product(Strategy, (False, True), LegacyFormat))
    for number, path in enumerate(partitions(version)):
        strategy, exact_keys, legacy_format = choices[number % len(choices)]
        now_ms, partition = wall_clock_ms(version), partition_in(path)
        rules = CompactionRules(now_ms, strategy=strategy, header="h1", exact_keys=exact_keys, legacy_format=legacy_format)
        _, logs = compact(partition.decided, rules, partition, last_batches=partition.last_batches(now_ms), split_bytes=4096)
        print(path.name, [sha256(log).hexdigest() for log in logs])
"""

_SCANS = """
import sys
from sidecar.logformat.batches import scan_bytes, scan_file
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from pathlib import Path

data = b"".join(build_batch([Record(3 * at + i, 0, b"k" * at, b"v" * 40000) for i in range(3)]) for at in range(20))
path = Path(sys.argv[1])
path.write_bytes(data)
for scanner in (scan_bytes(data), scan_file(path), scan_bytes(data, window_bytes=64, largest_window_bytes=64)):
    print([chunk.crc.tolist() for chunk in scanner], scanner.end, scanner.batch_count)
print("numba" in sys.modules, file=sys.stderr)
"""


def test_the_products_libraries_say_what_numba_says_and_do_not_load_it(tmp_path: Path) -> None:
    for library in (kernel_library.LIBRARY, logformat.LIBRARY, compaction.LIBRARY):
        assert kernel_build.build(library) is not None  # in the user's cache, where `make kernels` has put it before
    outcomes = []
    for variables in ({}, {"XDG_CACHE_HOME": str(tmp_path / "empty")}):
        command = [sys.executable, "-c", _REPLAYS + _COMPACTS + _SCANS, str(tmp_path / "0.log")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **variables})
        outcomes.append((done.stderr.splitlines()[-1], done.stdout))
    assert [loaded for loaded, _ in outcomes] == ["False", "True"]
    assert outcomes[0][1] == outcomes[1][1]
    assert len(outcomes[0][1]) > 1000
