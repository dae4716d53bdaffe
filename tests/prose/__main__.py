"""`python -m tests.prose [--table] [FILE ...]`: findings in pages and public docstrings, or in these files.

`--table`: mean sentence lengths of pages.

The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.prose.rules import ROOT, docstring_findings, findings, mean_words, pages
from tests.prose.text import blocks


def main(arguments: list[str]) -> int:
    """Print, and return the exit code."""
    is_table = "--table" in arguments
    named = [Path(argument).resolve() for argument in arguments if argument != "--table"]
    texts = {
        path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path): path.read_text(encoding="utf-8")
        for path in named or pages()
    }
    if is_table:
        for name, text in texts.items():
            count = len(list(findings(name, text)))
            print(f"{mean_words(list(blocks(text))):5.1f} words  {count:4} findings  {name}")
        return 0
    found = [finding for name, text in texts.items() for finding in findings(name, text)]
    if not named:
        found += docstring_findings()
    print(
        "\n".join(map(str, found)) or f"{len(texts)} pages{'' if named else ' and all public docstrings'}: no findings"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
