"""The documentation: links and paths that exist, and a sorted glossary."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for part in ("start", "tutorials", "guide")
        for page in (ROOT / "docs" / part).glob("*.md")
    ),
    ROOT / "benchmarks" / "README.md",
]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith(("http:", "https:"))]
    assert [link for link in local if not (page.parent / link).exists()] == []


@each_page
def test_named_files_exist(page):
    text = page.read_text(encoding="utf-8")
    paths = re.findall(r"\b(?:tests|benchmarks)/\w+\.py\b|\bdocs/\w+\.md\b", text)
    results = re.findall(r"`(\d{4}-\d\d-\d\d-[\w-]+\.md)`", text)
    paths += [f"benchmarks/results/{name}" for name in results]
    assert sorted({path for path in paths if not (ROOT / path).exists()}) == []


@each_page
def test_named_tests_exist(page):
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*.py"))
    assert {name for name in named if f"def {name}(" not in tests} == set()


@each_page
def test_named_modules_and_objects_exist(page):
    """Names such as `marginpursuit.location.catoni_location` can be imported."""
    text = page.read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"`marginpursuit((?:\.\w+)+)(?:\([^`]*)?`", text))):
        try:
            find_object(name.strip(".").split("."))
        except ModuleNotFoundError as error:
            if error.name.startswith("marginpursuit"):
                raise  # the others are optional packages, which a module may need


def find_object(parts):
    """Return the object of the package that has this name."""
    found = importlib.import_module("marginpursuit")
    for k, part in enumerate(parts):
        if not hasattr(found, part):
            importlib.import_module(".".join(["marginpursuit", *parts[: k + 1]]))
        found = getattr(found, part)
    return found


def test_the_glossary_is_sorted():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)[1:]
    without_symbols = [re.sub(r" \S(\(\S\))?$", "", term) for term in terms]
    keys = [term.replace("Ψ", "psi").replace("ρ", "rho").lower() for term in without_symbols]
    assert len(terms) > 50
    assert keys == sorted(keys)


README_FILES = {
    "`MarginPursuitClassifierCV()`": "search",
    "`MarginPursuitClassifier()`": "single fit",
    "best tuned peer": "peers",
}
README_KINDS = {"clean": "clean", "outliers": "leverage", "flipped labels": "flips"}


def readme_table():
    """Return the names of the data sets, and the rows of the table of the README."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^\| training rows \| method .*?\n\n", readme, re.MULTILINE | re.DOTALL)
    header, _, *rows = [line.strip("| ").split(" | ") for line in table.group(0).split("\n")[:-2]]
    return header[2:], rows


@pytest.mark.parametrize(
    ("kind", "method", "shown"), [(r[0], r[1], r[2:]) for r in readme_table()[1]]
)
def test_the_table_of_the_readme_is_that_of_the_results(kind, method, shown):
    """The errors are those of the result files, and the best peer is the best of the tuned ones."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    path = re.search(rf"\[{README_FILES[method]}\]\(([^)]+)\)", readme).group(1)
    results = (ROOT / path).read_text(encoding="utf-8")
    sets = readme_table()[0]
    assert len(sets) == len(shown) == 5
    for name, cell in zip(sets, shown, strict=True):
        errors = errors_of(results, name, README_KINDS[kind])
        if method == "best tuned peer":
            expected = min(error for peer, error in errors.items() if peer.endswith(", tuned"))
        else:
            expected = errors[method.strip("`()")]
        assert float(cell.strip("*")) == pytest.approx(expected, abs=0.051)


def test_the_table_of_the_readme_has_every_method_for_all_training_rows():
    rows = {(kind, method) for kind, method, *_ in readme_table()[1]}
    assert rows == {(kind, method) for kind in README_KINDS for method in README_FILES}


def errors_of(results, name, kind):
    """Return the mean error of each method on a data set, from a file of results."""
    section = re.search(rf"## {name}, {kind}: (.*?)(?=\n## |\Z)", results, re.DOTALL).group(1)
    found = re.findall(r"^\| ([^|]+?) \| ([\d.]+) ±", section, re.MULTILINE)
    return {method: float(error) for method, error in found}
