"""Pages made at build time: API reference, benchmark results, drawing of the layers."""

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
PACKAGE = ROOT / "src" / "marginpursuit"

# Public modules in the order of the API page: what each contains, and the pages of the guide that
# explain it.
MODULES = {
    "marginpursuit": ("Estimators and model files", "/start/which_estimator /guide/parameters"),
    "marginpursuit.inspection": (
        "Displays in the style of scikit-learn, leverage, label issues",
        "/guide/margins /tutorials/outliers",
    ),
    "marginpursuit.tables": ("Tables from files, and mixed tables as matrices", "/tables"),
    "marginpursuit.blocks": ("Data larger than memory, and Dask", "/scaling /tutorials/large_data"),
    "marginpursuit.export": ("Fitted linear models as JSON, SQL and C", "/tutorials/production"),
    "marginpursuit.onnx": ("Fitted linear models as ONNX graphs", "/tutorials/production"),
    "marginpursuit.interop": ("The loss for other learners", "/tutorials/other_learners"),
    "marginpursuit.datasets": ("Named data sets, splits and contamination", "/reproduction"),
    "marginpursuit.losses": ("Loss functions", "/guide/margins"),
    "marginpursuit.solvers": (
        "Solvers by name, and the algorithms of the paper",
        "/guide/solvers /paper/index",
    ),
    "marginpursuit.calibration": (
        "From scores to probabilities, and from risk to error",
        "/guide/probabilities",
    ),
    "marginpursuit.location": (
        "Catoni's location estimate and the rules for the scale",
        "/guide/parameters",
    ),
    "marginpursuit.bounds": ("Risk bounds", "/bounds"),
    "marginpursuit.experiments": ("The experiments of the paper", "/reproduction"),
}

# The end of the page on contributing: pages for those who change the library.
DEVELOPER_PAGES = """
## More

| page | content |
|---|---|
| {doc}`../claims` | what the project promises, and the tests that show it |
| {doc}`../choosing` | the experiments that chose the defaults |
| {doc}`../contrib-readiness` | requirements of package indexes, and what has been run |

```{toctree}
:hidden:

../claims
../choosing
../contrib-readiness
```
"""


def write_if_changed(path: Path, text: str) -> None:
    """Write the page unless it is there already: Sphinx then reads only what changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def public_names(module_name: str) -> list[str]:
    """Return the names that a module exports, without its submodules."""
    module = importlib.import_module(module_name)
    names = [name for name in module.__all__ if not name.startswith("_")]
    return [name for name in names if type(getattr(module, name)).__name__ != "module"]


def is_installed(module_name: str) -> bool:
    """Return whether a module can be imported: the ONNX converters need an optional package."""
    try:
        importlib.import_module(module_name)
    except ModuleNotFoundError:
        return False
    return True


def api_pages() -> dict[str, str]:
    """Return the page of each module and their index, by name."""
    modules = {name: entry for name, entry in MODULES.items() if is_installed(name)}
    index = [
        "# API reference",
        "",
        "Every public name, each with an example that the tests run.",
        "",
    ]
    index += ["| module | content |", "|---|---|"]
    index += [f"| [`{name}`]({name}.md) | {text} |" for name, (text, _) in modules.items()]
    index += ["", "```{toctree}", ":hidden:", "", *modules, "```", ""]
    return {"index": "\n".join(index)} | {name: module_page(name) for name in modules}


def module_page(name: str) -> str:
    """Return the page that lists the public names of a module."""
    text, guide = MODULES[name]
    links = ", ".join(f"{{doc}}`{page}`" for page in guide.split())
    lines = [f"# {name}", "", f"{text}. User guide: {links}.", "", "```{eval-rst}"]
    names = public_names(name)
    if names:
        lines += [f".. module:: {name}", "", ".. autosummary::", "   :toctree: generated"]
        lines += ["   :nosignatures:", "", *(f"   {public}" for public in names)]
    else:
        lines += [f".. automodule:: {name}"]
    return "\n".join([*lines, "```", ""])


def titles_of(text: str) -> list[str]:
    """Return the headings of the sections of a result file."""
    fence = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    return re.findall(r"^## (.+)$", fence.sub("", text), re.MULTILINE)


def benchmark_pages() -> dict[str, str]:
    """Return the pages of the results, by name, and their index."""
    results = sorted(
        (ROOT / "benchmarks" / "results").glob("*.md"), key=lambda path: path.stem[11:]
    )
    pages, table = {}, ["| results | measured | sections |", "|---|---|---|"]
    for path in results:
        text = path.read_text()
        date, name = path.stem[:10], path.stem[11:]
        subject = name.replace("-", " ").capitalize().replace("Gpu", "GPU").replace(" gb", " GB")
        sections = titles_of(text)
        shown = "; ".join(sections[:3]) + (f" and {len(sections) - 3} more" * (len(sections) > 3))
        body = re.sub(r"\A# .*\n", "", text)
        figures = [
            f"![{figure.stem.replace('-', ' over ')}]({figure.name})"
            for figure in sorted(path.parent.glob(f"{name}-*.svg"))
        ]
        parts = [f"# {subject}", f"Measured on {date}.", *figures, body.lstrip()]
        pages[path.stem] = "\n\n".join(parts)
        unbroken = date.replace("-", "\N{NON-BREAKING HYPHEN}")
        table.append(f"| [{subject}]({path.name}) | {unbroken} | {shown} |")
    readme = re.sub(r"\A# .*\n", "", (ROOT / "benchmarks" / "README.md").read_text())
    introduction, programs = readme.strip().split("\n\n", 1)
    tree = ["```{toctree}", ":hidden:", "", *(path.stem for path in results), "```"]
    parts = ["# Benchmarks", introduction, "## Results", "\n".join(table), "## Programs", programs]
    pages["index"] = "\n\n".join([*parts, "\n".join(tree)]) + "\n"
    return pages


def layers() -> list[list[str]]:
    """Return the layers of the import contract, from top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [[name.strip() for name in layer.split(":")] for layer in contract["layers"]]


def imports() -> set[tuple[str, str]]:
    """Return the pairs (importer, imported) of parts of the package, read from the sources."""
    edges = set()
    for path in PACKAGE.rglob("*.py"):
        importer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("marginpursuit"):
                parts = (node.module or "").split(".")
                targets = parts[1:2] or [alias.name for alias in node.names]
                edges |= {(importer, target) for target in targets if target != importer}
    return edges


def reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the imports that no chain of other imports implies (the transitive reduction)."""
    below: dict[str, set[str]] = {}
    for importer, imported in edges:
        below.setdefault(importer, set()).add(imported)

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for name in below.get(waiting.pop(), set()) - found:
                found.add(name)
                waiting.append(name)
        return found

    implied = {name: set().union(*map(reached, below[name])) for name in below}
    return {(upper, lower) for upper, lower in edges if lower not in implied[upper]}


def layer_drawing() -> str:
    """Return an SVG drawing of the layers; a line is an import that no chain of others implies."""
    rows, width, height, size = layers(), 900, 58, 7.4
    box: dict[str, tuple[float, float, float]] = {}  # centre and width
    for i, row in enumerate(rows):
        widths = [size * len(name) + 18 for name in row]
        gap = (width - sum(widths)) / (len(row) + 1)
        left = gap
        for name, wide in zip(row, widths, strict=True):
            box[name] = (left + wide / 2, 26 + i * height, wide)
            left += wide + gap
    lines = []
    for importer, imported in sorted(reduced(imports())):
        if importer in box and imported in box:
            (x1, y1, _), (x2, y2, _) = box[importer], box[imported]
            skipped = (y2 - y1) / height - 1
            # A line over several layers bends to the side, past the boxes between.
            bend = (x1 + x2) / 2 + (1 if x1 + x2 >= width else -1) * 70 * min(skipped, 5)
            lines.append(
                f'<path d="M{x1:.0f} {y1 + 13:.0f} C{bend:.0f} {y1 + 40:.0f} {bend:.0f}'
                f' {y2 - 40:.0f} {x2:.0f} {y2 - 13:.0f}" fill="none" stroke="#4a6fa5"'
                ' stroke-opacity="0.55" stroke-width="1.2"/>'
            )
    boxes = [
        f'<rect x="{x - wide / 2:.0f}" y="{y - 13:.0f}" width="{wide:.0f}" height="26" rx="5"'
        f' fill="{"#f4f4f4" if name.startswith("_") else "#e3ecf9"}" stroke="#4a6fa5"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" fill="#1c2733">{name}</text>'
        for name, (x, y, wide) in box.items()
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height * len(rows)}"'
        ' font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#ffffff"/>'
        + "".join([*lines, *boxes])
        + "</svg>\n"
    )


def copy_page(source: Path, links: dict[str, str]) -> str:
    """Return a page of the repository with its links rewritten for the site."""
    text = source.read_text()
    for old, new in links.items():
        text = text.replace(f"]({old})", f"]({new})")
    return text


def site_links(app: Any, docname: str, source: list[str]) -> None:
    """Rewrite links from pages of the repository to files that the site has under another name."""
    depth = "../" * docname.count("/")
    if "<!-- README: Why -->" in source[0]:
        app.env.note_dependency(str(ROOT / "README.md"))
    readme = (ROOT / "README.md").read_text()
    why = re.search(r"^## Why.*?(?=^## )", readme, re.MULTILINE | re.DOTALL)
    text = source[0].replace("<!-- README: Why -->", why[0].replace("](docs/", "](") if why else "")
    text = re.sub(
        r"\]\((?:\.\./)*benchmarks/(?:results/?|README\.md)\)",
        f"]({depth}benchmark_results/index.md)",
        text,
    )
    text = re.sub(
        r"\]\((?:\.\./)*benchmarks/results/([^)]+)\)", rf"]({depth}benchmark_results/\1)", text
    )
    if not docname.startswith("benchmark_results/"):
        text = re.sub(
            r"(?<!\[)`(\d{4}-\d\d-\d\d-[\w-]+\.md)`",
            rf"[`\1`]({depth}benchmark_results/\1)",
            text,
        )
    # A number and its standard error stay on one line of a table.
    text = re.sub(
        r"^\|.*$",
        lambda line: line[0].replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"),
        text,
        flags=re.MULTILINE,
    )
    # A doctest ends with an empty line, which the page does not need.
    text = re.sub(r"(^```python\n(?:(?!```).*\n)*?)\n```$", r"\1```", text, flags=re.MULTILINE)
    source[0] = text.replace("](../README.md)", f"]({depth}index.md)")


def generate(app: Any, config: Any) -> None:
    """Write all generated pages."""
    for name, text in api_pages().items():
        write_if_changed(DOCS / "api" / f"{name}.md", text)
    results = benchmark_pages()
    for name, text in results.items():
        write_if_changed(DOCS / "benchmark_results" / f"{name}.md", text)
    for page in (DOCS / "benchmark_results").glob("*.md"):
        if page.stem not in results:
            page.unlink()  # of a result file that has been replaced
    for figure in (ROOT / "benchmarks" / "results").glob("*.svg"):
        write_if_changed(DOCS / "benchmark_results" / figure.name, figure.read_text())
    write_if_changed(DOCS / "contributing" / "layers.svg", layer_drawing())
    contributing = copy_page(ROOT / "CONTRIBUTING.md", {"docs/glossary.md": "../glossary.md"})
    drawing = "\n![The parts of the package and their imports](layers.svg)\n\nA line is an import"
    drawing += " that no chain of other imports implies; parts with a grey box are private.\n"
    contributing = contributing.replace("\n## Additions", f"{drawing}\n## Additions", 1)
    write_if_changed(DOCS / "contributing" / "index.md", contributing + DEVELOPER_PAGES)
    paths = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    pages = {f"docs/{path}": path for path in paths}
    changelog = copy_page(ROOT / "CHANGELOG.md", pages)
    write_if_changed(DOCS / "changelog.md", changelog)


def skip_tuple_members(
    app: Any, kind: str, name: str, member: Any, is_skipped: bool, options: Any
) -> bool | None:
    """Leave out the members of a named tuple that its docstring lists, and those of `tuple`."""
    is_field = (getattr(member, "__doc__", None) or "").startswith("Alias for field number")
    return True if is_field or member in (tuple.count, tuple.index) else None


def setup(app: Any) -> dict[str, Any]:
    """Register the extension: the pages are written before Sphinx lists its sources."""
    app.connect("config-inited", generate)
    app.connect("source-read", site_links)
    app.connect("autodoc-skip-member", skip_tuple_members)
    return {"parallel_read_safe": True}
