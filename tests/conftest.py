"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from sidecar.storage import race
from tests.fakes import memory_store
from tests.left_archives import LeftArchives
from tests.memory_files import root_in_memory
from tests.oracle import Oracle
from tests.real.short_race import SHORT_RACE_TURNS
from tests.scheduling import UnitScheduling, rank_of
from tests.servers import class_archives

# Workers of pytest-xdist get the width of a terminal, which is not that of the pipes that programs under test write to.
os.environ.pop("COLUMNS", None)

# A kernel is compiled within whichever example calls it first, so single examples have no deadline; whole tests have one.
# The gate asks the same questions each time; new examples are found where people work.
settings.register_profile("default", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("default")

IN_MEMORY = root_in_memory(os.environ)
if IN_MEMORY is not None:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(IN_MEMORY)

# Most servers live for some seconds, half of which a JVM spends on loading classes.
class_archives.use()

# The models of S3's API are the same for each of a thousand clients. To read them is four fifths of what a client costs.
botocore.session.create_loader = cache(botocore.session.create_loader)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Modules and tests live to the end: visits cost the garbage collector a quarter of this, and a tenth of long tests.

    Of what tests make hardly anything is a cycle: looking for one seldom saves them another thirtieth.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest units first; all else stays as it is."""
    items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Of `--dist loadfile`."""
    return UnitScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """On a disk files stay for three runs. In memory they stay only where something failed."""
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    made = factory._basetemp
    if exitstatus == 0 and IN_MEMORY is not None and made is not None and made.is_relative_to(IN_MEMORY):
        shutil.rmtree(made, ignore_errors=True)


_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that has failed has said what is wrong."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(autouse=True)
def expect_damage(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Every archive that the test leaves is sound, or damaged in the ways that the test declares. See `tests.left_archives`."""
    left, declared = LeftArchives(), {kind for mark in request.node.iter_markers("leaves_damage") for kind in mark.args}
    memory_store.watchers.append(left.made)
    yield declared.add
    memory_store.watchers.remove(left.made)
    if request.node.stash.get(_PASSED, False):
        directory = request.node.funcargs.get("tmp_path")
        left.require(declared, () if directory is None else [directory])


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """One JVM for all tests that ask Kafka's classes: `tests/scheduling.py` keeps their files together."""
    with Oracle() as running:
        yield running


RACES_ARE_THE_QUESTION = (
    "tests/storage/test_directory_store.py",
    "tests/storage/test_fsspec_store.py",
    "tests/storage/test_probe_errors.py",
    "tests/storage/test_probe_race.py",
    "tests/storage/test_s3_faults.py",
    "tests/storage/test_store_contract.py",
    "tests/stores/test_kinds.py",
)


@pytest.fixture(autouse=True, scope="module")
def _short_races(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every start of an archiving command races its store 132 times, for half a second of CPU. Elsewhere a few races do."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.relative_to(request.config.rootpath).as_posix() not in RACES_ARE_THE_QUESTION:
            patch.setattr(race, "TURNS", SHORT_RACE_TURNS)
        yield


@pytest.fixture(autouse=True, scope="module")
def _sound_archives_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test may damage what the tests of a module share."""
    base = tmp_path_factory.getbasetemp()
    before = {*base.iterdir()}
    yield
    LeftArchives().require(
        set(), sorted(path for path in base.iterdir() if path not in before and not _is_of_a_test(path))
    )


def _is_of_a_test(directory: Path) -> bool:
    """`tmp_path` has the name of its test; see `expect_damage`."""
    return directory.name.startswith("test_") or directory.is_symlink()
