"""Subsamples of the rows, and the problems that they pose."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear, MemoryDesign, Standardisation
from marginpursuit.solvers._problem import Problem, Request

__all__ = [
    "better_start",
    "has_uncorrelated_columns",
    "random_generator",
    "stratified_rows",
    "subsample",
    "systematic_rows",
    "with_variances",
]


def random_generator(random_state: Any) -> Any:
    """Return the given generator of NumPy, or a new one with the given seed."""
    return random_state if hasattr(random_state, "random") else np.random.default_rng(random_state)


def stratified_rows(n_rows: int, size: int) -> NDArray[np.intp]:
    """Draw one row at random from each of `size` ranges of equal length, with a fixed seed."""
    edges = np.linspace(0, n_rows, size + 1)
    places = edges[:-1] + np.diff(edges) * np.random.default_rng(0).random(size)
    return places.astype(np.intp)


def systematic_rows(probabilities: FloatArray, seed: int = 0) -> NDArray[np.intp]:
    """Draw each row with its probability, at equal steps of the cumulative probability."""
    cumulative = np.cumsum(probabilities) + np.random.default_rng(seed).random()
    return np.flatnonzero(np.diff(np.floor(cumulative), prepend=0.0) > 0)


def has_uncorrelated_columns(request: Request) -> bool:
    """Whether the columns of dense rows in memory have correlations close to zero.

    The eigenvalues of the correlation matrix of m rows and d independent columns are about within
    (1 ± √(d/m))² (Marchenko and Pastur, 1967). Those of a subsample may be `eigenvalue_margin`
    times beyond. The largest, of few rows, comes first: it excludes most data in fewer operations.
    """
    design, policy = request.design, request.policy.uncorrelated
    assert isinstance(design, MemoryDesign)
    few = _sampled_rows(design, policy.n_first_rows, request.fit_intercept)
    vector = np.ones(design.n_columns)
    norm = 1.0
    for _ in range(policy.n_power_steps):
        vector = few.T @ (few @ vector) / len(few)
        norm = float(np.linalg.norm(vector))
        vector /= norm if norm > 0 else 1.0
    if not norm <= policy.eigenvalue_margin * (1.0 + np.sqrt(design.n_columns / len(few))) ** 2:
        return False
    size = policy.rows_per_column * design.n_columns
    rows = _sampled_rows(design, size, request.fit_intercept)
    low, high = np.linalg.eigvalsh(rows.T @ rows / len(rows))[[0, -1]]
    ratio = np.sqrt(design.n_columns / len(rows))
    is_low = low < (1.0 - ratio) ** 2 / policy.eigenvalue_margin
    return not is_low and bool(high <= policy.eigenvalue_margin * (1.0 + ratio) ** 2)


def _sampled_rows(design: MemoryDesign, size: int, centred: bool) -> FloatArray:
    """Return some rows, standardised by their own mean and deviation."""
    rows = stratified_rows(design.n_rows, min(size, design.n_rows))
    weights = np.full(len(rows), 1.0 / len(rows))
    with np.errstate(all="ignore"):
        own = design.subset(rows).standardisation(weights, centred=centred)
    return np.asarray(design.scaled_rows(own.mean, own.inverse_deviation, rows))


def subsample(problem: Problem, size: int) -> Problem | None:
    """Return the problem of `size` rows with its own Gram matrix; None where these have no weight.

    It is prepared by the solver "gram" and has one task, which is neither reported nor kept.
    """
    prepared, design = problem.prepared, problem.prepared.design
    sample = problem.with_rows(stratified_rows(design.n_rows, size), threads=design.threads)
    weights = sample.tasks.weights
    total = float(weights.sum())
    if not total > 0:
        return None
    weights = weights / total
    sample_design, gram = sample.prepared.design, prepared.preconditioner
    preconditioner: Any = replace(  # type: ignore[type-var]
        gram,
        design=sample_design,
        weights=weights[0],
        gram=with_variances(
            sample_design.gram(weights[0], prepared.standardisation), prepared.standardisation
        ),
        matrix=None,
    )
    return replace(
        sample,
        prepared=replace(sample.prepared, preconditioner=preconditioner),
        tasks=replace(sample.tasks, weights=weights),
        report=None,
        on_iterate=None,
    )


def with_variances(gram: FloatArray, standardisation: Standardisation) -> FloatArray:
    """Return the Gram matrix of a subsample with the variances of all rows, where these are larger.

    A column whose variance is that of a few rows may have less in the subsample.
    """
    lacking = np.maximum(standardisation.varies - gram.diagonal(), 0.0)
    return np.asarray(gram + np.diag(lacking))


def better_start(problem: Problem, found: Linear) -> Linear:
    """Return a point, or a start that is not zero if its objective is lower; for one task."""
    if not any(map(np.any, problem.start)):
        return found
    both, only = (found, problem.start), np.zeros(1, dtype=np.intp)
    values = [problem.value_and_gradient(problem.join(*x), only)[0][0] for x in both]
    return both[int(np.argmin(values))]
