"""The public docstrings of the program, as the prose check reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("sidecar", "producer_state")


def public_docstrings(root: Path) -> Iterator[tuple[Path, int, str]]:
    """File, line and text of the docstrings of modules, and of public classes, functions and methods."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in (tree, *_public(tree)):
                if (text := ast.get_docstring(node)) is not None:
                    yield path, node.body[0].lineno, text


def _public(parent: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node)
