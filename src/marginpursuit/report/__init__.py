"""A run as one HTML page that needs nothing else: no network, no other file (extra `report`)."""

import base64
import gzip
import re
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from marginpursuit.experiments.compare import SetResult
from marginpursuit.experiments.runs import Run
from marginpursuit.report import charts

__all__ = ["render"]


def render(run: Run) -> str:
    """Write the report of a run.

    Parameters
    ----------
    run : Run
        What to show.

    Returns
    -------
    str
        An HTML page. Names are escaped, and a content policy in the page forbids all requests.

    Examples
    --------
    >>> from marginpursuit.experiments.runs import Run
    >>> from marginpursuit.report import render
    >>> render(Run.now("a < b")).count("a &lt; b")
    2
    """
    environment = Environment(
        loader=PackageLoader("marginpursuit.report", package_path="page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["breakable"] = _breakable
    page = resources.files("marginpursuit.report") / "page"
    return environment.get_template("report.html").render(
        run=run,
        sets=[_describe(result) for result in run.sets],
        # Compressed, as there may be many; the browser unpacks them, as images that run no code.
        figures=[
            (figure, base64.b64encode(gzip.compress(figure.svg.encode(), mtime=0)).decode())
            for figure in run.figures
        ],
        style=(page / "report.css").read_text(encoding="utf-8"),
        script=(page / "report.js").read_text(encoding="utf-8"),
        courses=_courses(run),
    )


def _describe(result: SetResult) -> dict[str, Any]:
    """Return what the page says of a data set: methods that worked, best first, and charts."""
    done = sorted((m for m in result.methods if not m.failure), key=lambda method: method.error)
    # Those with a margin level are shown first.
    ordered = sorted(result.methods, key=lambda method: "margin" not in method.settings)
    courses = {method.name: method.course for method in ordered if method.course}
    return {
        "result": result,
        "done": done,
        "failed": [method for method in result.methods if method.failure],
        "error_chart": charts.error_chart(done) if done else "",
        "cost_chart": charts.cost_chart(done) if done else "",
        "courses": courses,
        "panels": charts.margin_panels(next(iter(courses.values()))) if courses else "",
        "calibrations": [
            (method.name, charts.calibration_chart(method.calibration))
            for method in done
            if method.calibration
        ],
    }


def _breakable(name: str) -> Markup:
    """Escape a name; a narrow screen may break it before capitals, brackets and underscores."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z])(?=[A-Z(_])", name))


def _courses(run: Run) -> list[dict[str, Any]]:
    """Return what the slider of each data set shows, by method."""
    return [
        {
            method.name: charts.course_frames(method.course)
            for method in result.methods
            if method.course
        }
        for result in run.sets
    ]
