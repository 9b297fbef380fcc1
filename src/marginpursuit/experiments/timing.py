"""Times of fits as multiples of one read of the data, which hold on other machines too."""

import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

__all__ = ["Timing", "time_fits"]

_REPEATS = 3


class Timing(NamedTuple):
    """The least time of some fits of a method."""

    name: str
    seconds: float
    passes: float  # the same in reads of the data
    error: float  # of the training data


def time_fits(
    methods: Mapping[str, Any],
    n_rows: int,
    n_columns: int,
    *,
    reached: Callable[[str], None] | None = None,
) -> list[Timing]:
    """Time the fits of some methods to artificial data.

    Parameters
    ----------
    methods : dict
        From name to estimator.
    n_rows, n_columns : int
        The size of the data.
    reached : callable, optional
        Called with the name of each method that is done.

    Returns
    -------
    list of Timing
        The least time of each method.

    Examples
    --------
    >>> from marginpursuit.experiments.compare import methods
    >>> from marginpursuit.experiments.timing import time_fits
    >>> timings = time_fits(methods(["MarginPursuitClassifier"]), 500, 5)
    >>> timings[0].passes > 1
    True
    """
    X, y = make_classification(
        n_rows,
        n_columns,
        n_informative=(n_columns + 1) // 2,
        n_redundant=0,
        n_clusters_per_class=1,
        random_state=0,
    )
    read = _least_time(lambda: np.max(X))
    timings = []
    for name, method in methods.items():
        model = clone(method)
        fit = partial(model.fit, X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            seconds = _least_time(fit)
        timings.append(Timing(name, seconds, seconds / read, float(1 - model.score(X, y))))
        if reached is not None:
            reached(name)
    return timings


def _least_time(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
