"""The errata page, against the tests that it names and the code that cites it."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
NUMBERS = range(1, 36)
PARTS = ["Printed", "Right", "Why", "Shown by"]

#: The heading of an entry, and its text up to the next heading.
ENTRY = re.compile(r"^### E(\d+)\. [^\n]+\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
ENTRIES = {int(number): text for number, text in ENTRY.findall(PAGE)}

#: A test as an argument of pytest: file, optional class, function.
TEST = re.compile(r"\btests/(\w+\.py)::((?:\w+::)?\w+)")

#: One or two digits, so that codes of linters (E501) and exponents (1E5) do not count.
CITATION = re.compile(r"\bE(\d{1,2})\b")

SOURCES = sorted(path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py"))


def defined_in(source):
    """Return the tests that a file defines, those in a class as Class::test."""
    module = ast.parse(source)
    found = functions_of(module)
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found |= {f"{node.name}::{name}" for name in functions_of(node)}
    return found


def functions_of(node):
    names = {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
    return {name for name in names if name.startswith("test_")}


def cited_in(source):
    """Return the numbers of the errata that comments, docstrings and names of tests cite."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    words = [ast.get_docstring(node) or "" for node in nodes]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    words += [token.string for token in tokens if token.type == tokenize.COMMENT]
    names = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
    found = CITATION.findall("\n".join(words))
    found += re.findall(r"_e(\d{1,2})(?=_|$)", "\n".join(names), re.MULTILINE)
    return {int(number) for number in found}


@pytest.mark.parametrize("number", NUMBERS)
def test_every_erratum_has_an_entry_with_all_its_parts(number):
    assert number in ENTRIES
    text = ENTRIES[number]
    assert re.findall(r"^\*\*(.+?)\.\*\*", text, re.MULTILINE) == PARTS
    shown = text.partition("**Shown by.**")[2]
    assert TEST.search(shown) or "No test:" in shown


def test_there_is_one_entry_for_each_number_and_no_more():
    headings = re.findall(r"^#+ E(\d+)", PAGE, re.MULTILINE)
    assert sorted(map(int, headings)) == list(NUMBERS)
    assert {int(number) for number in CITATION.findall(PAGE)} == set(NUMBERS)


@pytest.mark.parametrize("file", sorted({file for file, _ in TEST.findall(PAGE)}))
def test_every_named_test_exists(file):
    named = {test for other, test in TEST.findall(PAGE) if other == file}
    assert named - defined_in((ROOT / "tests" / file).read_text(encoding="utf-8")) == set()


def test_all_references_to_tests_are_checked():
    """A name with a line break or a typing error would not match the pattern of a test."""
    assert PAGE.count("::") == sum(
        f"{file}::{test}".count("::") for file, test in TEST.findall(PAGE)
    )
    for file in re.findall(r"`tests/(.*?)[`:]", PAGE):
        assert (ROOT / "tests" / file).is_file()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_citation_has_an_entry(path):
    assert cited_in(path.read_text(encoding="utf-8")) <= ENTRIES.keys()


def test_citations_are_found_in_comments_docstrings_and_names():
    source = '''
"""Of a module, E1."""
value = 1E5  # E2, noqa: E501
text = "E3"
class Thing:
    """Of a class (E4)."""
    def test_sum_e6(self):
        """Not E777 and not HE8."""
    def test_e5_and_the_rest(self):
        """Of a method: E31."""
'''
    assert cited_in(source) == {1, 2, 4, 5, 6, 31}
    assert set().union(*(cited_in(path.read_text(encoding="utf-8")) for path in SOURCES)) >= {3, 13}


def test_tests_are_found_at_top_level_and_in_classes():
    source = """
def helper(): ...
def test_one(): ...
class TestMany:
    def helper(self): ...
    def test_two(self): ...
class Other:
    def test_three(self): ...
"""
    assert defined_in(source) == {"test_one", "TestMany::test_two"}
