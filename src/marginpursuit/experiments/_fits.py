"""One fit of an experiment: what it is, how it is run, and what is kept of it."""

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.datasets import load, paper_split, scale_columns
from marginpursuit.experiments._learners import LEARNERS, Course, Rescaling, Task
from marginpursuit.location import catoni_location

__all__ = ["QUANTILES", "Fit", "Sample", "prepare", "run_fit", "source"]

#: The quantiles of the margins that are kept.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

# Test rows whose scores are made at a time, so that they stay in the cache.
_ROWS = 1 << 13

#: A data set, kept for the fits that follow.
source = lru_cache(maxsize=2)(load)


@dataclass(frozen=True)
class Fit:
    """What determines the outcome of one fit, beside the data and the code.

    Attributes
    ----------
    data : str
        The data set.
    scaling : str
        How its columns are scaled.
    trial : int
        Which draw of rows, start and samples.
    learner : str
        A name in `LEARNERS`.
    penalty : float
        The coefficient λ, if the learner has one.
    epochs : int
        Gradients computed, in units of the number of training rows, if the learner is told.
    rescaling : Rescaling or None
        The one-time change of the scale, if there is one.
    """

    data: str
    scaling: str
    trial: int
    learner: str
    penalty: float = 0.0
    epochs: int = 0
    rescaling: Rescaling | None = None

    @property
    def sample(self) -> tuple[str, str, int]:
        """What fits must share to be run on the same arrays."""
        return self.data, self.scaling, self.trial


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows of one trial, for training and for testing; classes are -1 and 1."""

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray


def prepare(data: str, scaling: str, trial: int) -> Sample:
    """Draw and scale the rows of a trial."""
    whole = source(data)
    train, test = paper_split(whole, trial)
    X, X_test = scale_columns(whole.X[train], whole.X[test], scaling)
    return Sample(X, whole.y[train].astype(float), X_test, whole.y[test].astype(float))


def run_fit(fit: Fit, sample: Sample) -> dict[str, Any]:
    """Run a fit; return what is kept of it, as JSON can hold it."""
    begin = time.perf_counter()
    task = Task(sample.X, sample.y, fit.trial, fit.penalty, fit.epochs, fit.rescaling)
    course = LEARNERS[fit.learner](task)
    seconds = time.perf_counter() - begin
    margins = sample.y[:, np.newaxis] * (sample.X @ course.coef.T + course.intercept)
    if not np.isfinite(margins).all():
        raise FloatingPointError("coefficients or margins exceed the largest float")
    mean, deviation = margins.mean(axis=0), margins.std(axis=0)
    spread = np.where(deviation > 0, deviation, 1.0)
    return {
        "gradients": course.gradients.tolist(),
        "train_error": _short(_errors(course, sample.X, sample.y)),
        "test_error": _short(_errors(course, sample.X_test, sample.y_test)),
        "quantiles": _short(np.quantile(margins, QUANTILES, axis=0)),
        "mean": _short(mean),
        "variance": _short(deviation**2),
        "skewness": _short(np.mean(((margins - mean) / spread) ** 3, axis=0)),
        "location": _short(catoni_location(margins, 1.0, axis=0)),
        "scale": _short(course.scale),
        "seconds": round(seconds, 6),
    }


def _errors(course: Course, X: FloatArray, y: FloatArray) -> FloatArray:
    """Return the share of errors at each checkpoint; the scores are one matrix product.

    As in the paper, a score of 0 is a prediction of -1.
    """
    wrong = np.zeros(len(course.coef))
    weights = np.asfortranarray(course.coef.T)
    for first in range(0, len(y), _ROWS):
        rows = slice(first, first + _ROWS)
        positive = X[rows] @ weights + course.intercept > 0
        wrong += np.count_nonzero(positive != (y[rows, np.newaxis] > 0), axis=0)
    return wrong / len(y)


def _short(values: NDArray[Any]) -> Any:
    """Write numbers with six digits: far finer than any difference between trials."""
    rounded = [float(f"{value:.6g}") for value in np.ravel(values)]
    return np.reshape(rounded, np.shape(values)).tolist()
