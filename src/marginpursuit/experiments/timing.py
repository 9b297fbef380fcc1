"""Times of fits relative to one pass over the data: ratios that transfer to other machines."""

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


class Timing(NamedTuple):
    """The shortest of several fits of a method."""

    name: str
    seconds: float
    reads: float  # seconds divided by the time to read the data once
    passes: int | None  # passes over the data that the fit made; None if it does not count them
    error: float  # training error


def time_fits(
    methods: Mapping[str, Any],
    n_rows: int,
    n_columns: int,
    *,
    repeats: int = 3,
    progress: Callable[[str], None] | None = None,
) -> list[Timing]:
    """Time the fits of methods to synthetic data.

    Parameters
    ----------
    methods : dict
        From name to estimator.
    n_rows, n_columns : int
        Size of the data.
    repeats : int, default=3
        Fits per method; the shortest counts.
    progress : callable, optional
        Called with the name of each finished method.

    Returns
    -------
    list of Timing
        The shortest time of each method.

    Examples
    --------
    >>> from marginpursuit.experiments.compare import methods
    >>> from marginpursuit.experiments.timing import time_fits
    >>> timings = time_fits(methods(["MarginPursuitClassifier"]), 500, 5)
    >>> timings[0].reads > 1, timings[0].passes > 1
    (True, True)
    """
    X, y = make_classification(
        n_rows,
        n_columns,
        n_informative=(n_columns + 1) // 2,
        n_redundant=0,
        n_clusters_per_class=1,
        random_state=0,
    )
    one_pass = _shortest_time(lambda: np.max(X), repeats)
    timings = []
    for name, method in methods.items():
        model = clone(method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            seconds = _shortest_time(partial(model.fit, X, y), repeats)
        passes = getattr(model, "n_passes_", None)
        timings.append(
            Timing(
                name,
                seconds,
                seconds / one_pass,
                None if passes is None else int(np.max(passes)),
                float(1 - model.score(X, y)),
            )
        )
        if progress is not None:
            progress(name)
    return timings


def _shortest_time(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
