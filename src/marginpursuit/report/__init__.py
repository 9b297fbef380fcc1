"""A run as one self-contained HTML page, without network access or other files (extra `report`)."""

import base64
import gzip
import re
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from marginpursuit.experiments.method_results import MethodResult, SetResult
from marginpursuit.experiments.paired_differences import Recommendation, recommend
from marginpursuit.experiments.runs import Run
from marginpursuit.experiments.scoring import SCORINGS
from marginpursuit.report import charts

__all__ = ["render"]


def render(run: Run) -> str:
    """Return the report of a run.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    str
        An HTML page. All text is escaped, and a content security policy forbids all requests.

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
        scorings=_further_scorings(run),
        units=sorted({SCORINGS[result.scoring].unit for result in run.sets}),
        # Compressed SVG; the browser decompresses it and shows it as an image without scripts.
        figures=[
            (figure, base64.b64encode(gzip.compress(figure.svg.encode(), mtime=0)).decode())
            for figure in run.figures
        ],
        style=(page / "report.css").read_text(encoding="utf-8"),
        script=(page / "report.js").read_text(encoding="utf-8"),
        courses=_courses(run),
    )


def _describe(result: SetResult) -> dict[str, Any]:
    """Return the template variables of a data set: methods, best first, and charts."""
    recommendation = recommend(result)
    done = recommendation.ranking
    ordered = sorted(result.methods, key=_course_order)
    courses = {method.name: method.course for method in ordered if method.course}
    return {
        "result": result,
        "recommendation": recommendation,
        "confusions": _confusions(result, recommendation),
        "done": done,
        "marks": {method.name: _mark(result, recommendation, method) for method in done},
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


def _course_order(method: MethodResult) -> tuple[bool, bool]:
    """Order methods: the search, then others with a margin level, then all others."""
    return method.name != "MarginPursuitClassifierCV", "margin" not in method.settings


def _confusions(result: SetResult, recommendation: Recommendation) -> list[MethodResult]:
    """Return the recommended method, and that of this library, if they have a confusion matrix."""
    flagship = [m for m in recommendation.ranking if m.name == "MarginPursuitClassifierCV"]
    best = [] if recommendation.method is None else [recommendation.method]
    shown = {method.name: method for method in [*best, *flagship] if method.confusion}
    return list(shown.values()) if len(result.classes) <= 10 else []


def _mark(result: SetResult, recommendation: Recommendation, method: MethodResult) -> str:
    """Return the verdict on a method; the baseline and the recommended method are named."""
    difference = recommendation.differences.get(method.name)
    words = [
        "take" if method is recommendation.method else "",
        "baseline" if method.name == result.baseline else "",
        "" if difference is None else difference.verdict,
    ]
    return ", ".join(word for word in words if word)


def _further_scorings(run: Run) -> list[Any]:
    """Return the scores that have a column of their own: AUC, and those that rank the methods."""
    names = dict.fromkeys(["roc_auc", *(result.scoring for result in run.sets)])
    return [SCORINGS[name] for name in names if name not in ("accuracy", "neg_log_loss")]


def _breakable(name: str) -> Markup:
    """Escape a name; allow line breaks before capitals, brackets and underscores."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z])(?=[A-Z(_])", name))


def _courses(run: Run) -> list[dict[str, Any]]:
    """Return the frames of the slider of each data set, by method."""
    return [
        {
            method.name: charts.course_frames(method.course)
            for method in result.methods
            if method.course
        }
        for result in run.sets
    ]
