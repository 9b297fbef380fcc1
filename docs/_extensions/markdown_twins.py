"""A Markdown twin of each page (`page.md` next to `page.html`), and `llms.txt`, their index."""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.writers.text import TextTranslator


class PlainText(TextTranslator):
    """Plain text of a page; nodes that have no text, such as cards and buttons, are transparent."""

    def visit_raw(self, node: nodes.Node) -> None:
        """Leave out HTML."""
        raise nodes.SkipNode

    def unknown_visit(self, node: nodes.Node) -> None:
        """Go on to the children of the node."""

    def unknown_departure(self, node: nodes.Node) -> None:
        """Nothing to end."""


def twin(app: Any, docname: str) -> str:
    """Return the source of a Markdown page, and plain text of any other."""
    source = Path(app.env.doc2path(docname))
    if source.suffix == ".md" and not docname.startswith("api/marginpursuit"):
        return source.read_text()
    document = app.env.get_and_resolve_doctree(docname, app.builder)
    text = PlainText(document, app.builder)
    document.walkabout(text)
    return str(text.body)


SECTIONS = {
    "start": "Start",
    "tutorials": "Tutorials",
    "guide": "User guide",
    "": "Reference",
    "gallery": "Gallery",
    "benchmark_results": "Benchmarks",
    "contributing": "Contributing",
    "paper": "The paper",
    "api": "API",
}


def write_twins(app: Any, exception: Exception | None) -> None:
    """Write the twins and the index after a successful build of the HTML pages."""
    if exception is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    pages: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for docname in sorted(app.env.found_docs):
        path = out / f"{docname}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(twin(app, docname))
        section = docname.split("/")[0] if "/" in docname else ""
        pages[section].append(f"- [{app.env.titles[docname].astext()}]({docname}.md)")
    lines = [f"# {app.config.project} {app.config.release}", ""]
    lines += ["> Robust linear classifiers for Python with scikit-learn's interface."]
    for section, title in SECTIONS.items():
        lines += ["", f"## {title}", "", *pages[section]]
    (out / "llms.txt").write_text("\n".join(lines) + "\n")


def setup(app: Any) -> dict[str, Any]:
    """Register the extension."""
    app.connect("build-finished", write_twins)
    return {"parallel_read_safe": True}
