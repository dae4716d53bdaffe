"""Every link between the pages leads somewhere, here and on the site, which has every page. Nothing is fetched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("helm/*/*.md")])
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")


def slug(heading: str) -> str:
    """The anchor of a heading, as forges make it."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-")


def without_code(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^ *(```+).*?^ *\1", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)


def test_the_site_has_every_page_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert sorted(re.findall(r"(\S+\.md)$", nav, re.MULTILINE)) == sorted(
        page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")
    )


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_anchors_are_the_same_on_a_forge_and_on_the_site(page: Path) -> None:
    assert [heading for heading in headings(page) if "--" in slug(heading)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(re.sub(r"`[^`\n]*`", "", without_code(page))):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert path.is_relative_to(DOCS) or not page.is_relative_to(DOCS), f"{target} is not on the site"
        if anchor:
            assert anchor in set(map(slug, headings(path))), f"{target}#{anchor}"
