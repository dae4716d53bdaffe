"""The order in which the tests run."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from random import Random

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.oracle import Oracle
from tests.scheduling import INDEPENDENT_FILE, LONGEST_FILES, PARTS, unit_of


def item(request: pytest.FixtureRequest, file: str, name: str) -> pytest.Item:
    module = pytest.Module.from_parent(request.session, path=request.config.rootpath / file)
    return pytest.Function.from_parent(module, name=name, callobj=lambda: None)


def test_the_longest_files_are_there_and_begin(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    assert [file for file in (*LONGEST_FILES, INDEPENDENT_FILE) if not (root / file).exists()] == []
    here, last, first = Path(__file__).relative_to(root).as_posix(), LONGEST_FILES[1], LONGEST_FILES[0]
    items = [item(request, *one) for one in ((here, "b"), (last, "c"), (here, "a"), (first, "d"), (last, "e"))]
    pytest_collection_modifyitems(items)
    assert [one.name for one in items] == ["d", "c", "e", "b", "a"]


def test_parts_of_the_independent_file_run_among_the_longest(request: pytest.FixtureRequest) -> None:
    items = [item(request, file, "one") for file in LONGEST_FILES]
    items += [item(request, INDEPENDENT_FILE, f"test[{number}]") for number in range(100)]
    Random(1).shuffle(items)
    pytest_collection_modifyitems(items)
    units = [unit for unit, _ in groupby(unit_of(one.nodeid) for one in items)]
    assert [unit for unit in units if unit in LONGEST_FILES] == list(LONGEST_FILES)
    parts = [place for place, unit in enumerate(units) if unit.startswith(INDEPENDENT_FILE)]
    assert (len(units), len(parts), parts[0]) == (len(LONGEST_FILES) + PARTS, PARTS, 0)
    assert all(units[place - 1] in LONGEST_FILES for place in parts[1:])


def test_files_of_one_server_stay_together() -> None:
    assert {unit_of(f"tests/kube/{file}.py::a") for file in ("test_releases", "test_recipes")} == {"tests/kube"}
    assert unit_of("tests/spark/local/test_engine.py::a") == "tests/spark/local"
    assert unit_of("tests/kube_node/test_cases.py::a") == "tests/kube_node/test_cases.py"


def test_all_files_that_ask_kafkas_classes_stay_together(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    files = [path for path in (root / "tests").rglob("test_*.py") if f"oracle: {Oracle.__name__}" in path.read_text()]
    assert {unit_of(f"{path.relative_to(root).as_posix()}::a") for path in files} == {"tests/oracle"}
