"""Pages for operators speak of commands, options, settings, metrics and files that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.config import Settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COMMANDS, METRICS = ((DOCS / "reference" / name).read_text(encoding="utf-8") for name in ("cli.md", "metrics.md"))
GENERATED = {
    DOCS / "reference" / name
    for name in ("alerts.md", "cli.md", "events.md", "exit-codes.md", "metrics.md", "settings.md")
}
# The release page is for maintainers, with options of the tools that publish.
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in {ROOT / "README.md", *DOCS.rglob("*.md")} - GENERATED - {DOCS / "contributing" / "release.md"}
    if path.parent.name != "decisions"
)
WITH_OTHER_NAMES = {"docs/explanation/architecture.md", "docs/how-to/run-on-spark.md"}
"""Pages with modules or properties of Spark whose names have the form of settings."""
SECTIONS = "|".join(Settings.model_fields)
KAFKAS_OPTIONS = {
    "--add",
    "--add-config",
    "--all-groups",
    "--all-topics",
    "--allow-principal",
    "--alter",
    "--broker-id",
    "--config",
    "--create",
    "--entity-name",
    "--entity-type",
    "--execute",
    "--from-beginning",
    "--isolation-level",
    "--max-transaction-timeout",
    "--operation",
    "--partitions",
    "--replication-factor",
    "--reset-offsets",
    "--shift-by",
    "--timeout-ms",
}
OTHERS_OPTIONS = {
    "--bucket",
    "--build-arg",
    "--lifecycle-configuration",
    "--local",
    "--logs",
    "--mebibytes",
    "--feature-gates",
    "--namespace",
    "--no-deps",
    "--now",
    "--patch-file",
    "--podoverlay-enabled",
    "--require-hashes",
    "--runtime-config",
    "--rounds",
}
KAFKAS_SETTINGS = {
    "compaction.strategy.header",
    "log.cleaner.compaction.strategy",
    "log.cleaner.compaction.strategy.header",
    "log.dirs",
    "log.retention.ms",
}


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_options_exist(name: str) -> None:
    text = page(name)
    commands = set(
        re.findall(r"(?:^ *|`|bin/)tiered-sidecar ((?:snapshots |config |k8s )?[a-z]+)(?= |`|$)", text, re.MULTILINE)
    )
    assert {command for command in commands if f"tiered-sidecar {command}" not in COMMANDS} == set()
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - KAFKAS_OPTIONS - OTHERS_OPTIONS
    assert {option for option in options if option not in COMMANDS} == set()


@pytest.mark.parametrize("name", sorted({*PAGES} - WITH_OTHER_NAMES))
def test_settings_exist(name: str) -> None:
    unknown = set()
    for path in re.findall(rf"`(?:settings\.)?((?:{SECTIONS})\.[a-z0-9_.]+)", page(name)):
        model = Settings.model_json_schema()
        definitions = model["$defs"]
        for part in path.split("."):
            reference = model.get("$ref") or next(
                (one["$ref"] for one in model.get("anyOf", ()) if "$ref" in one), None
            )
            model = definitions[reference.rpartition("/")[2]] if reference else model
            if part not in model.get("properties", {}):
                unknown.add(path)
                break
            model = model["properties"][part]
    assert unknown - KAFKAS_SETTINGS == set()


@pytest.mark.parametrize("name", PAGES)
def test_metrics_exist(name: str) -> None:
    text = page(name)
    assert {metric for metric in re.findall(r"`(tiered_sidecar_\w+)", text) if f"`{metric}`" not in METRICS} == set()
