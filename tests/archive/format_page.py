"""Keeps the examples of docs/reference/archive-format.md those of `tests.archive.example`.

Rewrite them after a change of the format: `python -m tests.archive.format_page`.
"""

from __future__ import annotations

import re
from pathlib import Path

from sidecar.archive.keys import below, checkpoint_key, commit_key
from tests.archive.example import FIRST, LINEAGE, write_example
from tests.fakes.memory_store import MemoryStore

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "archive-format.md"
HEX_BYTES_PER_LINE = 40

_BLOCK = re.compile(r"(<!-- example: (?P<name>[a-z0-9 ]+) -->\n```[a-z]*\n)(?P<text>.*?)(```\n)", re.DOTALL)


def page_blocks() -> dict[str, str]:
    """The example blocks as they stand on the page."""
    return {match["name"]: match["text"] for match in _BLOCK.finditer(PAGE.read_text(encoding="utf-8"))}


def true_blocks() -> dict[str, str]:
    """The example blocks as the code makes them."""
    store = MemoryStore()
    write_example(store)
    keys = {f"commit {number}": commit_key(number) for number in range(3)} | {"checkpoint 2": checkpoint_key(2)}
    return {
        "objects": "".join(f"{len(store.objects[key]):5} {key}\n" for key in sorted(store.objects)),
        "log": hex_lines(FIRST.log),
        "indexes": hex_lines(FIRST.indexes),
        **{name: store.objects[below(LINEAGE.root, key)].decode() + "\n" for name, key in keys.items()},
    }


def hex_lines(data: bytes) -> str:
    """Hexadecimal digits, 40 bytes to a line."""
    chunks = [data[position : position + HEX_BYTES_PER_LINE] for position in range(0, len(data), HEX_BYTES_PER_LINE)]
    return "".join(f"{chunk.hex()}\n" for chunk in chunks)


def main() -> None:
    """Rewrite the page's examples."""
    blocks = true_blocks()
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_BLOCK.sub(lambda match: match[1] + blocks[match["name"]] + match[4], page), encoding="utf-8")


if __name__ == "__main__":
    main()
