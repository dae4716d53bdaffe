"""The sentences of a text: what is prose in a Markdown file, and where a sentence ends.

Not prose: fenced and indented code, HTML comments, pictures, addresses, and the content of a code span or of `{braces}`, where the
program puts in a value. Each of these counts as one word.
Prose comes in blocks: a paragraph, an item of a list, a heading, or a cell of a table.
A sentence ends at the end of its block, and at `.`, `!` or `?` before white space. A colon, a semicolon and the full stop of
`e.g.` and `i.e.` end none. Its words are what white space separates and has a letter or a digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

CODE = "`code`"
"""Stands for a code span in the text of a block."""
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_ITEM = re.compile(r"^(\s*)([-*+]|\d+\.)(\s+)")
_ADMONITION = re.compile(r'^\s*(?:!!!|\?\?\?\+?) \w+(?: "(.*)")?$')
_END = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.!?])[)\"”*_]*\s+")


class Kind(StrEnum):
    """What a block is."""

    RUNNING = "running text"
    HEADING = "heading"
    CELL = "cell"


@dataclass(frozen=True)
class Block:
    """Prose with its line of the file, from 1."""

    line: int
    kind: Kind
    text: str

    @property
    def sentences(self) -> list[str]:
        """In their order, none of them empty."""
        return [part for part in _END.split(self.text) if words(part)]


def words(text: str) -> int:
    """How many words it has."""
    return sum(1 for word in text.split() if any(character.isalnum() for character in word))


def blocks(markdown: str) -> Iterator[Block]:
    """All prose of a Markdown file, or of plain text."""
    begun = 0
    paragraph: list[str] = []
    for number, line in [*_outside_code(markdown), (0, "")]:
        is_item, is_heading, is_row = _ITEM.match(line), line.startswith("#"), line.lstrip().startswith("|")
        title = _ADMONITION.match(line)
        if paragraph and (not line.strip() or is_item or is_heading or is_row or title):
            yield Block(begun, Kind.RUNNING, _plain(" ".join(paragraph)))
            paragraph = []
        if is_heading:
            yield Block(number, Kind.HEADING, _plain(line.lstrip("# ")))
        elif title:
            yield Block(number, Kind.HEADING, _plain(title[1] or ""))
        elif is_row:
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            yield from (Block(number, Kind.CELL, _plain(cell)) for cell in cells)
        elif line.strip():
            begun = begun if paragraph else number
            paragraph.append(_ITEM.sub("", line).strip())


def _outside_code(markdown: str) -> Iterator[tuple[int, str]]:
    """Lines that are no code and no comment, with their numbers. Lines of these come as empty ones."""
    fence, indent, is_code = "", 0, False
    before = ""
    uncommented = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), markdown, flags=re.DOTALL)
    for number, line in enumerate(uncommented.splitlines(), start=1):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
            line = ""
        elif mark:
            fence, line = mark[1], ""
        else:
            depth = len(line) - len(line.lstrip())
            if item := _ITEM.match(line):
                indent = len(item[0])
            elif line.strip() and depth == 0:
                indent = 0
            is_code = bool(line.strip()) and depth >= indent + 4 and (is_code or not before.strip()) and not item
            if is_code:
                before = ""
                yield number, ""
                continue
        before = line
        yield number, line


def _plain(text: str) -> str:
    """A block without marks: a link is its text, a code span one word."""
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", CODE, text)
    text = re.sub(r"\{[^{}]*\}", CODE, re.sub(r"\{[^{}]*\}", CODE, text))
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<(?:br|https?:)[^>]*>", " ", text)
    return " ".join(text.replace("**", "").split())
