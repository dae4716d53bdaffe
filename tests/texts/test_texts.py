"""The texts stand in one file, so that a change of words is seen in a diff."""

from __future__ import annotations

from tests.texts.catalogue import FILE, catalogue, texts_of, texts_of_page


def test_the_file_has_the_texts_that_the_program_has() -> None:
    assert FILE.read_text() == catalogue(), "write it again: python -m tests.texts.catalogue"


def test_texts_are_strings_of_three_words_that_are_no_docstrings() -> None:
    source = '''"""A docstring with words."""
def f(path):
    raise ValueError(f"{path}: cannot be read {path.name}" " at all")
x = ["no", "two words", "PRAGMA journal_mode and more", "now there are {three} of them"]
'''
    assert texts_of(source) == ["{path}: cannot be read {path.name} at all", "now there are {three} of them"]


def test_texts_of_the_page_stand_between_tags_and_in_quotes() -> None:
    page = (
        '<p class="a b c">No partitions yet. {% if many %}\n<b>{{ one }} of all partitions</b>{# no text at all #}</p>'
    )
    assert texts_of_page(page, ".html") == ["No partitions yet. ", "{{ one }} of all partitions"]
    assert texts_of_page('// the data is old\nsay("the data below is " + "old")', ".js") == ["the data below is "]
