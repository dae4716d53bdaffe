"""The places that carry the version: `python -m tests.release.versions set 0.2.0`, or `check v0.2.0` before a tag is published."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACEHOLDER = "your_organisation"
"""Where the address of the public repository belongs. No account of a forge can have an underscore."""
ADDRESSES = ("pyproject.toml", "helm/tiered-sidecar/Chart.yaml", "helm/tiered-sidecar-lib/Chart.yaml")
PLACES = {
    "pyproject.toml": r'^version = "(.+)"$',
    "sidecar/__init__.py": r'^__version__ = "(.+)"$',
    "Dockerfile": r"^ARG VERSION=(.+)$",
    "docs/contributing/release.md": r"^ *VERSION=(.+)$",
    "docs/how-to/install-on-kubernetes.md": r"name: tiered-sidecar-lib, version: (.+?),",
    "docs/how-to/upgrade-from-before-2.8.md": r"image: tiered-sidecar:(.+)$",
    "helm/tiered-sidecar-lib/Chart.yaml": r"^version: (.+)$|^appVersion: (.+)$",
    "helm/tiered-sidecar/Chart.yaml": r"^version: (.+)$|^appVersion: (.+)$|^    version: (.+)$|/tiered-sidecar:(.+)$",
}
"""Patterns by file; the groups are the version."""


def versions() -> list[tuple[str, str]]:
    """Each place, as a file and the version that it has."""
    found = []
    for name, pattern in PLACES.items():
        matches = re.finditer(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        found += [(name, match[match.lastindex or 0]) for match in matches]
    return found


def set_version(version: str) -> None:
    """Write it to all places."""

    def replaced(match: re.Match[str]) -> str:
        start, end = (place - match.start() for place in match.span(match.lastindex or 0))
        return match[0][:start] + version + match[0][end:]

    for name, pattern in PLACES.items():
        path = ROOT / name
        path.write_text(
            re.sub(pattern, replaced, path.read_text(encoding="utf-8"), flags=re.MULTILINE), encoding="utf-8"
        )


def problems(tag: str) -> list[str]:
    """What prevents the publication of a tag such as `v0.2.0`."""
    version = tag.removeprefix("v")
    found = [f"{name} has version {other}, the tag is {tag}" for name, other in versions() if other != version]
    if not re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE):
        found.append(f'CHANGELOG.md has no section "## {version}"')
    unset = [name for name in ADDRESSES if PLACEHOLDER in (ROOT / name).read_text(encoding="utf-8")]
    return found + [f"{name} has no address of the public repository: replace {PLACEHOLDER}" for name in unset]


def main() -> None:
    """Set or check. A problem ends it with status 1."""
    action, value = sys.argv[1:]
    if action == "set":
        set_version(value)
    elif found := problems(value):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
