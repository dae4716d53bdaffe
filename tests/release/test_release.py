"""What is published is complete and agrees with itself. What needs a forge, Docker or cosign is not tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.release import dist, versions
from tests.release.notice import NOTICE, notice
from tests.servers.dist import python_program

ROOT = Path(__file__).parents[2]
FORGE = ROOT / ".github"
SCHEMAS = {
    "vendor.github-workflows": sorted((FORGE / "workflows").glob("*.yml")),
    "vendor.github-issue-forms": sorted(FORGE.glob("ISSUE_TEMPLATE/[!c]*.yml")),
    "vendor.github-issue-config": [FORGE / "ISSUE_TEMPLATE" / "config.yml"],
}


def test_notice_is_what_the_lock_and_the_installed_packages_say() -> None:
    assert NOTICE.read_text(encoding="utf-8") == notice(), "run: make notice"


def test_one_version_everywhere() -> None:
    found = versions.versions()
    assert {name for name, _ in found} == set(versions.PLACES)
    assert len({version for _, version in found}) == 1, found


def test_a_tag_of_another_version_and_without_address_is_refused() -> None:
    found = "\n".join(versions.problems("v99.0.0"))
    assert "the tag is v99.0.0" in found
    assert 'no section "## 99.0.0"' in found


def test_the_version_is_written_to_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in versions.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    before = versions.versions()
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    versions.set_version("98.7.6")
    assert versions.versions() == [(name, "98.7.6") for name, _ in before]


def test_the_chart_says_to_artifact_hub_what_it_needs() -> None:
    chart = yaml.safe_load((ROOT / "helm" / "tiered-sidecar" / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["sources"] == [chart["home"]]
    notes = {name: yaml.safe_load(text) for name, text in chart["annotations"].items()}
    assert [image["image"].rpartition(":")[2] for image in notes["artifacthub.io/images"]] == [chart["appVersion"]]
    assert all(change.keys() == {"kind", "description"} for change in notes["artifacthub.io/changes"])
    assert (ROOT / "docs" / "images" / chart["icon"].rpartition("/")[2]).is_file()


@pytest.mark.apart
@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_the_forge_are_valid(schema: str) -> None:
    check = [str(python_program("check-jsonschema")), "--builtin-schema", schema, *map(str, SCHEMAS[schema])]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_run_what_the_makefile_has_and_get_only_the_rights_that_they_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in SCHEMAS["vendor.github-workflows"]:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}
        # A tag of an action can be moved to other code, a commit cannot.
        actions = re.findall(r"^ *-? *uses: (?!\./)(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert [action for action in actions if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\S+", action)] == []
        for job in workflow["jobs"].values():
            commands = [step["run"] for step in job.get("steps", []) if "run" in step]
            called = {
                word
                for run in commands
                for words in re.findall(r"^make (.+)$", run, re.MULTILINE)
                for word in words.split()
            }
            assert {word for word in called if "=" not in word} <= targets
            # What comes from outside reaches a shell as a variable, never as text of the script.
            assert not [run for run in commands if "${{" in run]


def test_links_of_the_page_on_pypi_are_addresses() -> None:
    page = dist.with_addresses("![a](docs/images/a.png) [b](docs/b.md#c) [d](https://example.org) [e](#f)")
    places = re.findall(r"\]\((.*?)\)", page)
    assert [place.rpartition("/tiered-sidecar/")[2] for place in places[:2]] == [
        f"{kind}/v{versions.versions()[0][1]}/docs/{rest}"
        for kind, rest in (("raw", "images/a.png"), ("blob", "b.md#c"))
    ]
    assert places[2:] == ["https://example.org", "#f"]


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_program_and_runs(tmp_path: Path) -> None:
    source, wheel = dist.build(tmp_path / "dist")
    packages = [path for name in ("producer_state", "sidecar") for path in (ROOT / name).rglob("*") if path.is_file()]
    program = {str(path.relative_to(ROOT)) for path in packages if path.suffix not in {".pyc", ".nbi", ".nbc"}}
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert shipped == program
    assert re.findall(r"\]\((?!https?:|#)", metadata) == []
    with tarfile.open(source) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert program | {"LICENSE", "NOTICE", "README.md", "pyproject.toml"} <= names
    place = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place)]
    subprocess.run([*pip, str(wheel)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [str(place / "bin" / "tiered-sidecar"), "version"]
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"tiered-sidecar {versions.versions()[0][1]}"


@pytest.mark.apart
def test_pypi_would_take_what_is_built(tmp_path: Path) -> None:
    dist.check(*dist.build(tmp_path / "dist"))
