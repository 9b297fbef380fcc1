"""The API reference: the public names of each module, and an example of each that runs."""

import doctest
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PACKAGE = Path(importlib.import_module("marginpursuit").__file__).parent


def generator_of_pages():
    """Return the module that writes the pages of the API reference."""
    path = DOCS / "_extensions" / "generated_pages.py"
    spec = importlib.util.spec_from_file_location("generated_pages", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = generator_of_pages()


def text_of(module_name, name):
    """Return what the page of a public name shows: a docstring, or the comment of a constant."""
    value = getattr(importlib.import_module(module_name), name)
    if inspect.isclass(value):
        return vars(value).get("__doc__") or ""  # not that of a base class
    if callable(value):
        return value.__doc__ or ""
    comment = re.compile(rf"((?:^#:.*\n)+)^{name}\b.*=", re.MULTILINE)
    found = [comment.search(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    comments = [match.group(1) for match in found if match]
    return re.sub(r"^#: ?", "", "".join(comments), flags=re.MULTILINE)


@pytest.mark.parametrize("module_name", pages.MODULES)
def test_every_public_name_has_an_example(module_name):
    if not pages.is_installed(module_name):
        pytest.skip(f"{module_name} needs an optional package")
    names = pages.public_names(module_name)
    without = [name for name in names if ">>> " not in text_of(module_name, name)]
    assert without == []


def constants():
    """Return the public constants: doctest finds examples in docstrings alone."""
    return [
        (module_name, name)
        for module_name in pages.MODULES
        if pages.is_installed(module_name)
        for name in pages.public_names(module_name)
        if not callable(getattr(importlib.import_module(module_name), name))
    ]


@pytest.mark.parametrize(("module_name", "name"), constants())
def test_examples_of_constants(module_name, name):
    examples = doctest.DocTestParser().get_doctest(
        text_of(module_name, name), {}, name, str(PACKAGE), 0
    )
    assert len(examples.examples) > 1
    assert doctest.DocTestRunner().run(examples).failed == 0
