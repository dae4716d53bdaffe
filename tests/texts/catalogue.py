"""Every text of the program that a person may read, in one file: `python -m tests.texts.catalogue` writes `tests/texts/texts.txt`.

A text is a string of the code with three words or more that is no docstring: help, table headers, messages, errors, advice.
Of the status page's template it is what stands between tags, of its script what stands in quotes.
Docstrings that people read, those of commands and settings, are in `docs/` (`tests.reference_pages`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FILE: Final = Path(__file__).with_name("texts.txt")
PACKAGES: Final = ("producer_state", "sidecar")
WORDS_MIN: Final = 3
_WORD = re.compile(r"[A-Za-z]{2,}")
_TAGS = re.compile(r"<[^<>]*>|\{[%#].*?[%#]\}", re.DOTALL)
_QUOTED = re.compile(r'"([^"\n]*)"')
_SQL = re.compile(r"\s*(PRAGMA|CREATE|INSERT|DELETE FROM|SELECT|UPDATE) ")


def texts_of(source: str) -> list[str]:
    """The texts of a module in the order of its lines. What is put in stands as `{expression}`."""
    tree = ast.parse(source)
    passed_over = {id(part) for node in ast.walk(tree) for part in _not_texts(node)}
    found = [
        (node.lineno, node.col_offset, text)
        for node in ast.walk(tree)
        if id(node) not in passed_over and (text := _text(node)) is not None and _is_prose(text)
    ]
    return [text for _, _, text in sorted(found)]


def texts_of_page(source: str, suffix: str) -> list[str]:
    """The texts of an HTML template or of its script, in their order. What is put in stands as `{{ expression }}`."""
    parts = _TAGS.sub("\n", source).splitlines() if suffix == ".html" else _QUOTED.findall(source)
    return [part for part in parts if _is_prose(part)]


def _not_texts(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield from node.values


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else f"{{{_expression(part)}}}" for part in node.values]
        return "".join(str(part) for part in parts)
    return None


def _expression(part: ast.expr) -> str:
    return ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ast.unparse(part)


def _is_prose(text: str) -> bool:
    plain = re.sub(r"\{[^{}]*\}", "", text)
    return " " in text.strip() and len(_WORD.findall(plain)) >= WORDS_MIN and not _SQL.match(text)


def catalogue() -> str:
    """The file's content: a heading for each module that has texts, and a line for each text."""
    lines = ["# Written by `python -m tests.texts.catalogue`; a test compares. Change the code, not this file."]
    for package in PACKAGES:
        for module in sorted(path for path in (ROOT / package).rglob("*") if path.suffix in {".py", ".html", ".js"}):
            source = module.read_text()
            found = texts_of(source) if module.suffix == ".py" else texts_of_page(source, module.suffix)
            if texts := [" ".join(text.split()) for text in found]:
                lines += ["", f"## `{module.relative_to(ROOT)}`", "", *(f"- {text}" for text in texts)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(catalogue())
