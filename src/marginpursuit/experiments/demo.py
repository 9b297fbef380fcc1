"""What the library does, on data that ships with scikit-learn: a comparison and its report."""

import html
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from marginpursuit import MarginPursuitClassifier, __version__
from marginpursuit.experiments import calibration_curves, loss_shapes
from marginpursuit.inspection import MarginDistributionDisplay

DATA = {"breast cancer": load_breast_cancer, "digits": load_digits}

#: What is compared; the peers need standardised columns, ours does not.
MODELS: dict[str, Callable[[], Any]] = {
    "MarginPursuitClassifier": lambda: MarginPursuitClassifier(),
    "MarginPursuitClassifier(overconfidence=0)": lambda: MarginPursuitClassifier(overconfidence=0),
    "LogisticRegression": lambda: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000)
    ),
    "LinearSVC": lambda: make_pipeline(StandardScaler(), LinearSVC()),
}


@dataclass(frozen=True)
class Result:
    """One model on one data set."""

    data: str
    model: str
    test_error: float
    log_loss: float  # NaN where the model has no probabilities
    seconds: float


def compare(seed: int = 0) -> tuple[list[Result], Any]:
    """Fit every model to three quarters of every data set; return results and a figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 3.2 * len(DATA)), layout="constrained")
    panels = figure.subplots(len(DATA), len(MODELS), squeeze=False)
    results = []
    for row, (data, load) in enumerate(DATA.items()):
        X, y = load(return_X_y=True)
        X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed, stratify=y)
        for axes, (name, make) in zip(panels[row], MODELS.items(), strict=True):
            start = time.perf_counter()
            model = make().fit(X_train, y_train)
            seconds = time.perf_counter() - start
            chances = model.predict_proba(X_test) if hasattr(model, "predict_proba") else None
            results.append(
                Result(
                    data,
                    name,
                    float(np.mean(model.predict(X_test) != y_test)),
                    float("nan") if chances is None else float(log_loss(y_test, chances)),
                    seconds,
                )
            )
            MarginDistributionDisplay.from_estimator(model, X_test, y_test, name="", ax=axes)
            axes.set_title(f"{data}\n{name}", fontsize="small")
    return results, figure


def report(results: list[Result], figure: Any) -> str:
    """Write the comparison as one HTML page without any outside reference."""
    rows = "\n".join(
        f"<tr><td>{html.escape(r.data)}</td><td>{html.escape(r.model)}</td>"
        f"<td>{r.test_error:.4f}</td><td>{_number(r.log_loss)}</td><td>{r.seconds:.3f}</td></tr>"
        for r in results
    )
    pictures = "\n".join(
        f"<figure>{_svg(drawing)}<figcaption>{caption}</figcaption></figure>"
        for drawing, caption in (
            (figure, "Margins of the test samples. Dashed: the level; coloured: their location."),
            (loss_shapes.draw(), "The loss ρ, its influence function ψ and its curvature."),
            (
                calibration_curves.draw(),
                "Conditional risk H, calibration transform Ψ, its inverse.",
            ),
        )
    )
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>marginpursuit: a first comparison</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto }}
table {{ border-collapse: collapse }}
td, th {{ padding: .25rem .75rem; border-bottom: 1px solid #ccc; text-align: left }}
figure {{ margin: 2rem 0 }}
svg {{ width: 100%; height: auto }}
</style>
<h1>A first comparison</h1>
<p>Fitted to three quarters of each data set and tested on the rest, all with default settings.
marginpursuit {html.escape(__version__)}.</p>
<table>
<tr><th>data</th><th>model</th><th>test error</th><th>log-loss</th><th>seconds to fit</th></tr>
{rows}
</table>
{pictures}
</html>
"""


def _number(value: float) -> str:
    return "no probabilities" if np.isnan(value) else f"{value:.4f}"


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]
