"""What a text for people must not have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.prose.docstrings import public_docstrings
from tests.prose.text import Block, Kind, blocks, words

ROOT = Path(__file__).parents[2]
TEXTS = ROOT / "tests" / "texts" / "texts.txt"
WORDS_MAX = 35
MEAN_WORDS_MAX = 18.0

_BANNED = {
    r"told|tells": "reports, logs, returns, says",
    r"look(?:s|ed|ing)?(?! (?:\w+ )?up\b)": "check, scan, recheck",
    r"held|let(?:s|ting)? go": "pinned, kept, released",
    r"holes?": "gap",
    r"lost answers?": "unknown outcome",
    r"stands": "exists, is",
    r"(?:an?|the|its|each|every|next|this|that|one|last) turns?": "task, cycle",
    r"(?<!compression )(?<!finalisation )rounds?(?! trip)": "cycle, scan",
    r"rests": "backs off",
    r"nobody|who leads": "no leader, the leader",
    r"anew": "again, re-created",
    r"seams?": "continuity check",
    r"beside": "next to, while",
    r"(?:take|takes|taken|took) over": "applied, reloaded, replaced",
    r"what is stable": "offsets below the last stable offset",
    r"alarms?|alarmed|rings": "fire, alert",
    r"(?:an)?other winners?": "key whose retained record differs",
}
"""Home-made words as regular expressions, and what to write."""
_WORDS = {re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE): use for pattern, use in _BANNED.items()}


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule. `line` is 0 for the page as a whole."""

    page: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.problem}"


def pages() -> list[Path]:
    """All pages that the rules are for."""
    names = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
    return [path for name in names if (path := ROOT / name).exists()] + sorted((ROOT / "docs").rglob("*.md"))


def findings(page: str, text: str) -> Iterator[Finding]:
    """All that breaks a rule in a text."""
    found = list(blocks(text))
    yield from _of_blocks(page, found)
    if mean_words(found) > MEAN_WORDS_MAX:
        yield Finding(page, 0, f"{mean_words(found):.1f} words in a sentence on average")


def docstring_findings(root: Path = ROOT) -> Iterator[Finding]:
    """All that breaks a rule in the program's public docstrings, whose sentences are short on average anyway."""
    for path, line, text in public_docstrings(root):
        yield from _of_blocks(path.relative_to(root).as_posix(), blocks(text), first_line=line)


def _of_blocks(page: str, found: Iterable[Block], first_line: int = 1) -> Iterator[Finding]:
    for block in found:
        line = first_line + block.line - 1
        for pattern, use in _WORDS.items():
            yield from (Finding(page, line, f'"{match[0]}": write {use}') for match in pattern.finditer(block.text))
        for sentence in block.sentences:
            if words(sentence) > WORDS_MAX:
                yield Finding(page, line, f"{words(sentence)} words: {sentence[:60]}…")


def mean_words(found: list[Block]) -> float:
    """Words in a sentence of running text: without headings and tables, whose fragments would make it lower. 0 without any."""
    sentences = [sentence for block in found if block.kind is Kind.RUNNING for sentence in block.sentences]
    return sum(map(words, sentences)) / len(sentences) if sentences else 0.0
