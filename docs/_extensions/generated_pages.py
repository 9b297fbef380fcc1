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

# Public modules in the order of the API page, with the sentence that introduces each.
MODULES = {
    "marginpursuit": "Estimators and model files.",
    "marginpursuit.inspection": "Displays, in the style of scikit-learn.",
    "marginpursuit.losses": "Loss functions.",
    "marginpursuit.location": "Catoni's location estimate and the rules for the scale.",
    "marginpursuit.calibration": "From scores to probabilities, and from risk to error.",
    "marginpursuit.bounds": "Risk bounds.",
    "marginpursuit.blocks": "Data larger than memory, and Dask.",
    "marginpursuit.solvers": "Solvers, and the plan that chooses among them.",
    "marginpursuit.datasets": "Named data sets, splits and contamination.",
    "marginpursuit.tables": "Tables from files.",
    "marginpursuit.experiments": "The experiments of the paper.",
    "marginpursuit.interop": "The loss for other learners.",
    "marginpursuit.export": "Fitted linear models as JSON, SQL and C.",
}


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


def api_page() -> str:
    """Return the page that lists every public name."""
    lines = ["# API reference", "", "Every public name, with its parameters and an example.", ""]
    for name, sentence in MODULES.items():
        names = public_names(name)
        lines += [f"## {name}", "", sentence, "", "```{eval-rst}", f".. module:: {name}", ""]
        lines += [".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
        lines += [f"   {public}" for public in names]
        lines += ["```", ""]
    return "\n".join(lines)


def benchmark_pages() -> dict[str, str]:
    """Return the pages of the results, by name; the newest first in the index."""
    results = sorted((ROOT / "benchmarks" / "results").glob("*.md"), reverse=True)
    pages = {}
    for path in results:
        text = path.read_text()
        date, _, subject = path.stem[:10], path.stem[10:11], path.stem[11:].replace("-", ", ")
        body = re.sub(r"\A# .*\n", "", text)
        pages[path.stem] = f"# {subject.capitalize()}\n\nMeasured on {date}.\n\n{body.lstrip()}"
    readme = re.sub(r"\A# .*\n", "", (ROOT / "benchmarks" / "README.md").read_text())
    index = [
        "# Benchmarks",
        "",
        readme.strip(),
        "",
        "## Results",
        "",
        "```{toctree}",
        ":maxdepth: 1",
        "",
    ]
    pages["index"] = "\n".join([*index, *(path.stem for path in results), "```", ""])
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


def layer_drawing() -> str:
    """Return an SVG drawing of the layers; a line is an import of a lower layer by a higher one."""
    rows = layers()
    height, width, box = 54, 760, 150
    centre: dict[str, tuple[float, float]] = {}
    for i, row in enumerate(rows):
        for j, name in enumerate(row):
            centre[name] = (width * (j + 1) / (len(row) + 1), 30 + i * height)
    lines = []
    for importer, imported in sorted(imports()):
        if importer in centre and imported in centre:
            (x1, y1), (x2, y2) = centre[importer], centre[imported]
            bend = (x1 + x2) / 2 + (60 + 8 * (y2 - y1) / height) * (-1 if hash_of(importer) else 1)
            curve = (
                f"M{x1:.0f} {y1 + 14:.0f} Q{bend:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {y2 - 14:.0f}"
            )
            lines.append(f'<path d="{curve}" fill="none" stroke="#8894a8" stroke-opacity="0.45"/>')
    boxes = [
        f'<rect x="{x - box / 2:.0f}" y="{y - 14:.0f}" width="{box}" height="28" rx="5"'
        ' fill="#eef3fb" stroke="#4a6fa5"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" fill="#1c2733">{name}</text>'
        for name, (x, y) in centre.items()
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height * len(rows) + 20}"'
        ' font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#ffffff"/>'
        + "".join([*lines, *boxes])
        + "</svg>\n"
    )


def hash_of(name: str) -> int:
    """Return 0 or 1, the same in every run: the side to which the lines of a part bend."""
    return sum(name.encode()) % 2


def copy_page(source: Path, links: dict[str, str]) -> str:
    """Return a page of the repository with its links rewritten for the site."""
    text = source.read_text()
    for old, new in links.items():
        text = text.replace(f"]({old})", f"]({new})")
    return text


def site_links(app: Any, docname: str, source: list[str]) -> None:
    """Rewrite links from pages of the repository to files that the site has under another name."""
    depth = "../" * docname.count("/")
    text = re.sub(
        r"\]\((?:\.\./)*benchmarks/(?:results/?|README\.md)\)",
        f"]({depth}benchmark_results/index.md)",
        source[0],
    )
    text = re.sub(
        r"\]\((?:\.\./)*benchmarks/results/([^)]+)\)", rf"]({depth}benchmark_results/\1)", text
    )
    source[0] = text.replace("](../README.md)", f"]({depth}index.md)")


def generate(app: Any, config: Any) -> None:
    """Write all generated pages."""
    write_if_changed(DOCS / "api" / "index.md", api_page())
    for name, text in benchmark_pages().items():
        write_if_changed(DOCS / "benchmark_results" / f"{name}.md", text)
    write_if_changed(DOCS / "contributing" / "layers.svg", layer_drawing())
    contributing = copy_page(ROOT / "CONTRIBUTING.md", {"docs/glossary.md": "../glossary.md"})
    drawing = "\n![The parts of the package and their imports](layers.svg)\n"
    contributing = contributing.replace("\n## Additions", f"{drawing}\n## Additions", 1)
    write_if_changed(DOCS / "contributing" / "index.md", contributing)
    paths = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    pages = {f"docs/{path}": path for path in paths}
    changelog = copy_page(ROOT / "CHANGELOG.md", pages)
    write_if_changed(DOCS / "changelog.md", changelog)


def setup(app: Any) -> dict[str, Any]:
    """Register the extension: the pages are written before Sphinx lists its sources."""
    app.connect("config-inited", generate)
    app.connect("source-read", site_links)
    return {"parallel_read_safe": True}
