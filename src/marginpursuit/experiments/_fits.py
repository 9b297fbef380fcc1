"""One fit of an experiment: its configuration, how it is run, and what is stored of it."""

import time
import warnings
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.bounds import estimate_constants
from marginpursuit.datasets import load, paper_split, scale_columns
from marginpursuit.experiments._learners import LEARNERS, CoefficientPath, Rescaling, Task
from marginpursuit.location import catoni_location

__all__ = ["CONSTANTS", "QUANTILES", "Fit", "Sample", "draw_sample", "load_cached", "run_fit"]

#: Probabilities of the stored quantiles of the margins.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

#: The name of a fit that estimates the constants of the risk bounds.
CONSTANTS = "constants"

#: Load a data set; the last two stay in memory for the fits that follow.
load_cached = lru_cache(maxsize=2)(load)


@dataclass(frozen=True)
class Fit:
    """The configuration of one fit.

    Together with the data and the code it determines the result.

    Attributes
    ----------
    data : str
        Name of the data set.
    scaling : str
        How the columns are scaled; see `marginpursuit.datasets.scale_columns`.
    trial : int
        Seed of the split, the start and the draws.
    learner : str
        A name in `LEARNERS`, or `CONSTANTS`.
    penalty : float
        Penalty λ; ignored by learners without one.
    epochs : int
        Stochastic gradients to compute, divided by the number of training rows; ignored by learners
        that stop by themselves.
    rescaling : Rescaling or None
        The one-time change of the scale; None for a constant scale.
    halved : bool
        Whether the penalty of stochastic margin pursuit is (λ/2)‖w‖² or λ‖w‖².
    margin : float
        The margin level γ of the learner "minimiser"; 1 for the others.
    overconfidence : float
        The overconfidence weight τ of the learner "minimiser"; 1 for the others.
    """

    data: str
    scaling: str
    trial: int
    learner: str
    penalty: float = 0.0
    epochs: int = 0
    rescaling: Rescaling | None = None
    halved: bool = True
    margin: float = 1.0
    overconfidence: float = 1.0

    @property
    def sample(self) -> tuple[str, str, int]:
        """The arguments of `draw_sample`; fits with equal ones use the same arrays."""
        return self.data, self.scaling, self.trial


@dataclass(frozen=True, eq=False)
class Sample:
    """Training and test rows of one trial; the classes are -1 and 1."""

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray


def draw_sample(data: str, scaling: str, trial: int) -> Sample:
    """Draw and scale the rows of a trial."""
    whole = load_cached(data)
    train, test = paper_split(whole, trial)
    X, X_test = scale_columns(whole.X[train], whole.X[test], scaling)
    return Sample(X, whole.y[train].astype(float), X_test, whole.y[test].astype(float))


def run_fit(fit: Fit, sample: Sample) -> dict[str, Any]:
    """Run a fit; return errors and margin statistics at each checkpoint, as JSON types.

    A fit of `CONSTANTS` returns the single numbers of `estimate_constants` instead.
    """
    if fit.learner == CONSTANTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # assumptions that fail; see the docs
            found = estimate_constants(sample.X, sample.y)
        values = {field.name: getattr(found, field.name) for field in fields(found)}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}
    begin = time.perf_counter()
    task = Task(
        *(sample.X, sample.y, fit.trial, fit.penalty, fit.epochs, fit.rescaling),
        *(fit.halved, fit.margin, fit.overconfidence),
    )
    path = LEARNERS[fit.learner](task)
    seconds = time.perf_counter() - begin
    margins = sample.y[:, np.newaxis] * (sample.X @ path.coef.T + path.intercept)
    if not np.isfinite(margins).all():
        raise FloatingPointError("coefficients or margins exceed the largest float")
    mean, deviation = margins.mean(axis=0), margins.std(axis=0)
    divisor = np.where(deviation > 0, deviation, 1.0)
    scale = np.broadcast_to(path.scale, mean.shape)
    n_correct = np.maximum(np.count_nonzero(margins > 0, axis=0), 1)
    return {
        "gradients": path.gradients.tolist(),
        "train_error": _rounded(_error_rates(path, sample.X, sample.y)),
        "test_error": _rounded(_error_rates(path, sample.X_test, sample.y_test)),
        "quantiles": _rounded(np.quantile(margins, QUANTILES, axis=0)),
        "mean": _rounded(mean),
        "variance": _rounded(deviation**2),
        "skewness": _rounded(np.mean(((margins - mean) / divisor) ** 3, axis=0)),
        "location": _rounded(catoni_location(margins, 1.0, axis=0)),
        "own_location": _rounded(catoni_location(margins, scale, axis=0)),
        "above_level": _rounded(np.sum(margins > fit.margin, axis=0) / n_correct),
        "scale": _rounded(path.scale),
        "seconds": round(seconds, 6),
    }


def _error_rates(
    path: CoefficientPath, X: FloatArray, y: FloatArray, chunk_rows: int = 1 << 13
) -> FloatArray:
    """Return the error rate at each checkpoint. As in the paper, a score of 0 predicts -1.

    The scores of all checkpoints are one matrix product per chunk of rows that fits in the cache.
    """
    n_errors = np.zeros(len(path.coef))
    weights = np.asfortranarray(path.coef.T)
    for first in range(0, len(y), chunk_rows):
        rows = slice(first, first + chunk_rows)
        positive = X[rows] @ weights + path.intercept > 0
        n_errors += np.count_nonzero(positive != (y[rows, np.newaxis] > 0), axis=0)
    return n_errors / len(y)


def _rounded(values: NDArray[Any]) -> Any:
    """Return numbers with six digits; differences between trials are much larger."""
    rounded = [float(f"{value:.6g}") for value in np.ravel(values)]
    return np.reshape(rounded, np.shape(values)).tolist()
