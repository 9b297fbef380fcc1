"""Robust estimates of the gradient, of the risk, and margin pursuit, on inputs with heavy tails.

    python benchmarks/robust_gradients.py [--seeds 10] [--rows 500]

Inputs have independent coordinates of Student's t distribution, whose moments exist up to its
degrees of freedom; the rule is y = sign⟨w, x⟩ with w = (1, …, 1)/√d, and 10 % of the training
labels are flipped at random. The error of w itself is 0. Every method has its defaults, except
those that its name states.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from common import table, write_results
from sklearn.linear_model import LogisticRegression

from marginpursuit import (
    CatoniRiskClassifier,
    MarginPursuitClassifier,
    MedianOfMeansClassifier,
    RobustGradientClassifier,
)
from marginpursuit._validation import FloatArray

MOMENTS = (np.inf, 3.0, 2.0, 1.5)
DIMENSIONS = (5, 20, 80)
METHODS: dict[str, Any] = {
    "robust gradient, Catoni": RobustGradientClassifier,
    "robust gradient, geometric median": partial(
        RobustGradientClassifier, estimate="geometric_median", random_state=0
    ),
    "robust gradient, Catoni, logistic": partial(RobustGradientClassifier, loss="logistic"),
    "margin pursuit, as published, s = 1": partial(
        MarginPursuitClassifier.as_published, scale=1.0, probability=None
    ),
    "margin pursuit, default": partial(MarginPursuitClassifier, probability=None),
    "Catoni risk": CatoniRiskClassifier,
    "median of means, K = 25": partial(MedianOfMeansClassifier, n_blocks=25, random_state=0),
    "logistic regression": LogisticRegression,
}


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Yield a table for each number of moments, with a column for each dimension."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=500)
    chosen = parser.parse_args(arguments)
    for moments in MOMENTS:
        rows = []
        for name, method in METHODS.items():
            errors = [_errors(method, moments, d, chosen) for d in DIMENSIONS]
            rows.append((name, *(_cell(each) for each in errors), _exponent(errors)))
        tails = "normal" if moments == np.inf else f"t with {moments:g} degrees of freedom"
        yield table(
            f"Test error in %, inputs {tails}, {chosen.rows} rows",
            ("method", *(f"d = {d}" for d in DIMENSIONS), "exponent of d"),
            rows,
            f"Means over {chosen.seeds} seeds ± standard error, on 20,000 test rows. The last "
            "column is the slope of log error over log d, by least squares.",
        )


def _errors(method: Any, moments: float, dimension: int, chosen: Any) -> FloatArray:
    found = []
    for seed in range(chosen.seeds):
        random = np.random.default_rng([seed, dimension])
        X = _inputs(random, moments, chosen.rows + 20_000, dimension)
        y = np.where(X.sum(axis=1) > 0, 1, -1)
        train, rest = slice(chosen.rows), slice(chosen.rows, None)
        labels = np.where(random.random(chosen.rows) < 0.1, -y[train], y[train])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that did not converge
            model = method().fit(X[train], labels)
        found.append(100.0 * np.mean(model.predict(X[rest]) != y[rest]))
    return np.array(found)


def _inputs(random: np.random.Generator, moments: float, n: int, dimension: int) -> FloatArray:
    if moments == np.inf:
        return random.normal(size=(n, dimension))
    return random.standard_t(moments, size=(n, dimension))


def _cell(errors: FloatArray) -> str:
    return f"{errors.mean():.2f} ± {errors.std(ddof=1) / np.sqrt(len(errors)):.2f}"


def _exponent(errors: list[FloatArray]) -> str:
    means = [max(each.mean(), 1e-3) for each in errors]
    return f"{np.polyfit(np.log(DIMENSIONS), np.log(means), 1)[0]:.2f}"


if __name__ == "__main__":
    import sys

    write_results("robust-gradients", run(sys.argv[1:]))
