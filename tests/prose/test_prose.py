"""What counts as prose and as a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prose.rules import docstring_findings, findings, mean_words
from tests.prose.text import Kind, blocks, words

PAGE = """\
# A heading

Two sentences, e.g. these: of `tells me`, one
{told[held]}. And [four words of it](a-page-that-tells.md).

* An item
  that goes on. It ends here

      code that tells

| Cell | `told` |
|---|---|
| A cell. Two | x |

<!-- told
told -->
```
told. told. told.
```
    indented code, told
"""


def test_code_comments_and_addresses_are_no_prose() -> None:
    assert list(findings("page", PAGE)) == []


def test_sentences_end_at_full_stops_and_at_the_end_of_their_block() -> None:
    found = list(blocks(PAGE))
    running = [sentence for block in found if block.kind is Kind.RUNNING for sentence in block.sentences]
    assert running == [
        "Two sentences, e.g. these: of `code`, one `code`.",
        "And four words of it.",
        "An item that goes on.",
        "It ends here",
    ]
    assert mean_words(found) == pytest.approx((8 + 5 + 5 + 3) / 4)
    assert words("a - 1 `code` (b)") == 4
    assert [block.line for block in found[:3]] == [1, 3, 6]


@pytest.mark.parametrize(
    "text",
    [
        "The operator is told.",
        "It looks at it.",
        "| It is held | x |",
        "## Made anew",
        "Short. One. Two. " + " ".join(["word"] * 36),
        "It waits for its turn.",
        ". ".join(" ".join(["Word"] * 19) for _ in range(3)),
    ],
)
def test_what_breaks_a_rule_is_found(text: str) -> None:
    assert len(list(findings("page", text))) == 1


@pytest.mark.parametrize("text", ["Look it up.", "Turn it on.", "a look-out", "One round trip."])
def test_plain_words_are_allowed(text: str) -> None:
    assert list(findings("page", text)) == []


MODULE = '''"""What a module does."""


def _own(text: str) -> str:
    """A turn that nobody sees."""


class Public:
    """Short.

    Args:
        one: it is held.
    """

    def method(self) -> None:
        """LONG"""
'''


def test_public_docstrings_keep_the_rules_and_findings_name_their_line(tmp_path: Path) -> None:
    (tmp_path / "sidecar").mkdir()
    (tmp_path / "sidecar" / "module.py").write_text(MODULE.replace("LONG", " ".join(["word"] * 36)))
    found = [(finding.page, finding.line, finding.problem[:8]) for finding in docstring_findings(tmp_path)]
    assert found == [("sidecar/module.py", 11, '"held": '), ("sidecar/module.py", 16, "36 words")]
