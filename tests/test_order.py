"""The order in which the tests run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LONGEST_FILES, pytest_collection_modifyitems


def test_the_longest_files_are_there_and_begin(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    assert [file for file in LONGEST_FILES if not (root / file).is_file()] == []

    def item(path: Path, name: str) -> pytest.Item:
        module = pytest.Module.from_parent(request.session, path=path)
        return pytest.Function.from_parent(module, name=name, callobj=lambda: None)

    last, first = root / LONGEST_FILES[1], root / LONGEST_FILES[0]
    items = [item(Path(__file__), "b"), item(last, "c"), item(Path(__file__), "a"), item(first, "d"), item(last, "e")]
    pytest_collection_modifyitems(request.config, items)
    assert [one.name for one in items] == ["d", "c", "e", "b", "a"]
