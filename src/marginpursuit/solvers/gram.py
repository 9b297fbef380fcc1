r"""The solver for data with a moderate number of columns, or of rows.

The loss has curvature in [0, 1], so the weighted Gram matrix of the rows plus the penalty bounds
the Hessian from above for every margin, scale and overconfidence, everywhere. It is computed and
factorised once and preconditions a quasi-Newton method that then needs few reads of the data.

With fewer rows than columns the same is done in the space of the rows: an optimal coefficient
vector is a combination of rows, so that with the n × n matrix of inner products K = R Rᵀ the
problem is that of a design with rows R, and no d × d matrix is ever made.

Without overconfidence only rows short of the level but near it have curvature. Where those are few,
the Gram matrix says little: a sample of the rows is fitted first, and Newton steps, whose Hessian
is a sum over few rows, begin there.

Where rows are plenty, the Gram matrix is that of a sample of them, and bounds the Hessian but for
some per cent, which the line search sees to.

Parts of the rows, as the folds of a cross-validation have them, share the Gram matrix of all rows:
the rows of a part weigh at most so many times what they weigh in the mean of all parts, and the
mean times that number bounds the Gram matrix of every part.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, block_diag, cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpstrf

from marginpursuit._namespaces import to_numpy
from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Linear, MemoryDesign, design_for, take_rows
from marginpursuit.losses import TRUNCATION
from marginpursuit.solvers._finish import finished
from marginpursuit.solvers._penalty import design_unit, shared_weights
from marginpursuit.solvers._problem import Prepared, Problem, Solution, Status
from marginpursuit.solvers._quasi_newton import evaluate, join, minimise
from marginpursuit.solvers._single import SingleProblem, part_of

__all__ = ["prepare_gram", "solve_gram"]

# A Gram matrix takes as long as reads of a twentieth as many as there are columns; what follows is
# in proportion, and at least so many steps. After the first number of quasi-Newton steps, the data
# have shown directions in which the Hessian is far below its bound, and the estimate of the gap is
# checked by the Hessian itself. The second is where the quasi-Newton method is given up.
_UNCHECKED_STEPS, _UNCHECKED_SHARE = 20, 0.1
_MOST_STEPS, _MOST_SHARE = 50, 0.05

# Fewer steps are also checked where rows above the level have no curvature to speak of: what the
# penalty alone decides is easily missed there.
_LITTLE_OVERCONFIDENCE = 0.1

# With so many rows for each column the rows that are short of the level decide everything, and the
# estimate of the quasi-Newton method is enough, once it knows the rate of its steps, which takes
# some even after a start nearby. A Newton step takes as long as many reads of cov, so the
# quasi-Newton method may also go on for longer.
_PLENTY, _FEWEST_STEPS, _MOST_STEPS_OF_PLENTY = 100, 12, 150

# Rows for each column that are sampled for the Gram matrix, which is then some per cent off: as a
# preconditioner it is as good. How many times as many rows there are to be to do so.
_ROWS_PER_COLUMN, _WORTH_SAMPLING = 1000, 4

# What is to be checked task by task goes on by shared steps first, to this share of the tolerance:
# on news20_minilm one of them, for all twenty classes, takes a third of a Newton step of one class.
_SHARED_TOL = 1e-2

# The sample that a first fit is made to: one row of so many, at least and at most so many rows for
# each column. It need not be fitted closely, as the minimiser for all rows is some per cent off.
_START_SHARE, _FEWEST_START_ROWS, _MOST_START_ROWS = 4, 15, 200
_START_TOL = 1e-2

# The share of rows with curvature up to which Newton steps are taken from there. Such a step takes
# as long as a read of all rows and several of these, copied, for the Hessian: with a fiftieth, as
# on digit5 and protein, it saves the quasi-Newton method ten steps or more; with a fifth, as on
# cov, the quasi-Newton method is as fast.
_FEW_CURVED = 0.08

# With plenty of rows the decrement of a Newton step is what is left, and the bound, which may be a
# hundred times as much, is counted so many times.
_TRUST = 0.01

# The share of the bound that is added to a Hessian: rows may gain curvature on the way.
_LEAST_CURVATURE = 0.03

# Columns for each point up to which the matrix of the preconditioner is inverted.
_WORTH_INVERTING = 8

# Pivots below this many times the rounding of the inner products are rounding.
_RANK = 64.0


def solve_gram(problem: Problem) -> Solution:
    """Minimise by the quasi-Newton method, and finish by others where that is slow.

    Without overconfidence and with plenty of dense rows it is slow from the beginning: few rows
    have curvature, and which ones changes with every step. The quasi-Newton method then fits a
    sample of the rows, and Newton steps take over from there.

    Parameters
    ----------
    problem : Problem
        What to minimise, with a prepared from `prepare_gram`.

    Returns
    -------
    Solution
        The minimiser.
    """
    n_columns = problem.prepared.design.n_columns
    plenty = problem.prepared.design.n_rows >= _PLENTY * n_columns
    nearby = _from_sample(problem) if _has_corner(problem) else None
    if nearby is not None:
        none = np.zeros(1)
        start = Solution(nearby.start, none, none, Status.MAX_ITER, 0, ())
        with single_threaded_blas():  # what is worth it is shared by threads of its own
            return finished(nearby, start, _TRUST if plenty else 1.0, near=plenty)
    most = _MOST_STEPS_OF_PLENTY if plenty else _MOST_STEPS
    patience = max(most, min(int(_MOST_SHARE * n_columns), problem.max_iter - most))
    curved = all(loss.overconfidence >= _LITTLE_OVERCONFIDENCE for loss in problem.tasks.losses)
    shares_steps = len(problem.tasks) > 1 and not (plenty or curved)
    first = minimise(
        replace(problem, max_iter=min(problem.max_iter, patience)),
        fewest=_FEWEST_STEPS if plenty and not curved else 0,
        tols=_SHARED_TOL * problem.tol if shares_steps else None,
    )
    few = first.n_iter < max(_UNCHECKED_STEPS, _UNCHECKED_SHARE * n_columns)
    harmless = (few and curved) or (plenty and first.status is Status.CONVERGED)
    if harmless or first.n_iter == problem.max_iter:
        return first
    return finished(problem, first, 1.0)


def _has_corner(problem: Problem) -> bool:
    """Whether few rows may have curvature, and a sample of them tells which.

    Newton steps are for one task each; many tasks are better served by reads that they share.
    """
    without = all(loss.overconfidence == 0.0 for loss in problem.tasks.losses)
    return len(problem.tasks) == 1 and without and _has_enough_rows(problem.prepared.design)


def _has_enough_rows(design: Design) -> bool:
    """Whether a sample of the rows, dense and in memory, tells something of the others."""
    enough = design.n_rows >= _START_SHARE * _FEWEST_START_ROWS * design.n_columns
    return isinstance(design, MemoryDesign) and not design.is_sparse and enough


def _from_sample(problem: Problem) -> Problem | None:
    """Fit a sample of the rows first, for one task; None where too many of them have curvature.

    Returns the problem with the preconditioner of the sample, and the start of the sample if that
    is lower than its own.
    """
    prepared, design = problem.prepared, problem.prepared.design
    assert isinstance(design, MemoryDesign)
    size = min(design.n_rows // _START_SHARE, _MOST_START_ROWS * design.n_columns)
    sampled = part_of(problem, _spread_out(design.n_rows, size), n_threads=design.n_threads)
    total = float(sampled.tasks.weights.sum())
    if not total > 0:
        return None
    with sampled.prepared.design as sample:
        tasks = replace(sampled.tasks, weights=sampled.tasks.weights / total)
        own = partial(sample.gram, tasks.weights[0])
        sampled = replace(
            sampled,
            prepared=_column_space(sample, own, prepared.unit, 1.0, prepared.fit_intercept),
            tasks=tasks,
            max_iter=_MOST_STEPS,
            tol=_START_TOL,
            report=lambda _: None,
            keep=lambda *_: None,
        )
        found = minimise(sampled).linear
        single = SingleProblem(sampled, 0)
        residual = single.residual(single.score(join(sampled, *found)[0]))
    curved = (residual > 0) & (residual < TRUNCATION * single.loss.scale)
    if np.mean(curved) > _FEW_CURVED:
        return None
    before, after = (
        evaluate(problem, join(problem, *linear), np.zeros(1, dtype=np.intp))[0]
        for linear in (problem.start, found)
    )
    return replace(
        problem,
        prepared=replace(prepared, precondition=sampled.prepared.precondition),
        start=found if after < before else problem.start,
    )


def _spread_out(n_rows: int, size: int) -> NDArray[np.intp]:
    """Return one row of each of as many stretches as the sample is to have rows."""
    edges = np.linspace(0, n_rows, size + 1)
    places = edges[:-1] + np.diff(edges) * np.random.default_rng(0).random(size)
    return places.astype(np.intp)


def prepare_gram(
    design: Design,
    weights: FloatArray,
    unit: str,
    *,
    fit_intercept: bool,
    waits: bool = False,
    order: NDArray[np.intp] | None = None,
) -> Prepared:
    """Standardise the columns and factorise their Gram matrix.

    Parameters
    ----------
    design : Design
        The data; its coordinates are changed.
    weights : ndarray of shape (n_parts, n_rows)
        Sample weights of each part, sum one. Fewer rows than columns permit one part only.
    unit : str
        What a penalty of one means: a name in `UNITS`.
    fit_intercept : bool
        Whether there is an intercept; without one, columns are not centred.
    waits : bool, default=False
        Whether the Gram matrix of all rows waits until it is needed, for losses without
        overconfidence, where a fit to a sample may do without.
    order : ndarray of shape (n_rows,), optional
        Where few digits are wanted, an order in which the rows may be copied for that.

    Returns
    -------
    Prepared
        Coordinates for `solve_gram`.
    """
    if design.n_rows < design.n_columns:
        return _row_space(design, weights, unit, fit_intercept)
    everywhere, bound = shared_weights(weights)
    gram = _sampled_gram(design, everywhere, fit_intercept)
    if gram is None and (order is not None or (waits and _has_enough_rows(design))):
        design.standardise_diagonal(everywhere, centred=fit_intercept)
    elif gram is None:
        gram = design.standardise(everywhere, centred=fit_intercept)
    units = design_unit(design, weights, unit, centred=fit_intercept)
    reader = design if order is None else design.condensed(order)
    if gram is None and order is not None:
        gram = reader.gram(everywhere if reader is design else everywhere[order])

    def at_last() -> FloatArray:
        return design.gram(everywhere) if gram is None else gram

    prepared = _column_space(reader, at_last, units, bound, fit_intercept)
    if reader is design:
        return prepared
    return replace(prepared, to_data=design.to_data, from_data=design.from_data, order=order)


def _sampled_gram(design: Design, weights: FloatArray, centred: bool) -> FloatArray | None:
    """Standardise the columns; return the Gram matrix of a sample, if that is enough and cheap."""
    n_rows, size = design.n_rows, _ROWS_PER_COLUMN * design.n_columns
    if n_rows < _WORTH_SAMPLING * size:
        return None
    rows = _spread_out(n_rows, size)
    share = np.asarray(to_numpy(take_rows(weights, rows)), dtype=np.float64)
    sample = design.sample(rows)
    if sample is None or not share.sum() > 0:
        return None
    design.standardise_diagonal(weights, centred=centred)
    sample.centre, sample.inverse_spread = design.centre, design.inverse_spread
    gram = sample.gram(share / share.sum())
    # What the sample lacks of the variance of a column, as where few rows have all of it.
    lacking = np.maximum((design.inverse_spread > 0) - gram.diagonal(), 0.0)
    return np.asarray(gram + np.diag(lacking))


def _column_space(
    design: Design,
    gram: Callable[[], FloatArray],
    unit: FloatArray,
    bound: float,
    fit_intercept: bool,
) -> Prepared:
    """Make coordinates where `bound` times the Gram matrix bounds that of every part.

    `gram` is asked for the matrix once it is needed.
    """
    n_columns = design.n_columns
    # What is added is about the rounding of the sums, which grows where sparse rows are centred
    # after they are squared.
    offset = (design.centre * design.inverse_spread) ** 2 if design.is_sparse else np.zeros(1)
    rounding = design.rounding * n_columns * (1.0 + float(np.max(offset, initial=0.0)))
    # Columns that take no part have a zero on the diagonal; a coefficient of zero suits any
    # positive number there.
    still = np.where(design.inverse_spread > 0, 0.0, 1.0)
    mean_unit = np.mean(np.where(np.isfinite(unit), unit, 0.0), axis=0)

    size = n_columns + fit_intercept

    def with_matrix(matrix: Callable[[], FloatArray]) -> Prepared:
        """Precondition by a matrix of this size, with the penalty added."""

        @cache
        def factor(alpha: float) -> Any:
            diagonal, added = np.zeros(size), rounding
            diagonal[:n_columns] = alpha * mean_unit + still
            with single_threaded_blas():
                while True:
                    whole = matrix().copy()
                    whole.flat[:: size + 1] += diagonal + added
                    try:
                        return cho_factor(whole, lower=True, overwrite_a=True)
                    except LinAlgError:  # sums in float32 may be further off than they usually are
                        added *= 10.0

        @cache
        def inverse(alpha: float) -> FloatArray:
            return np.asarray(cho_solve(factor(alpha), np.identity(size)))

        def precondition(points: FloatArray, alpha: float) -> FloatArray:
            # Products are made by several threads at a time; SciPy's solves wait for each other.
            if _WORTH_INVERTING * len(points) >= size:
                return points @ inverse(alpha)
            return np.asarray(cho_solve(factor(alpha), points.T, check_finite=False).T)

        return Prepared(
            design, fit_intercept, unit, precondition, design.to_data, design.from_data, bent
        )

    def bent(curvature: FloatArray) -> Prepared:
        slope = design.adjoint(curvature)[:, np.newaxis]
        hessian = np.block([[design.gram(curvature), slope], [slope.T, curvature.sum()]])
        metric = hessian[:size, :size] + _LEAST_CURVATURE * bounding()
        return with_matrix(lambda: metric)

    @cache
    def bounding() -> FloatArray:
        # Centred columns have no product with the intercept, whose own curvature is at most one.
        return np.asarray(bound * block_diag(gram(), np.ones((1, 1)))[:size, :size])

    return with_matrix(bounding)


def _row_space(design: Design, weights: FloatArray, unit: str, fit_intercept: bool) -> Prepared:
    """Make coordinates from a factorisation L Lᵀ of the inner products of the rows.

    A point c has the scores L c and the norm of the penalty. It stands for the combination of the
    pivot rows P with factors a such that L c = K a, that is (L_P)ᵀ a = c.
    """
    if weights.shape[0] > 1:
        raise ValueError("fewer rows than columns permit one part only")
    design.standardise_diagonal(weights[0, :], centred=fit_intercept)
    units = design_unit(design, weights, unit, centred=fit_intercept)[0]
    metric = np.divide(1.0, units, out=np.zeros_like(units), where=units > 0)
    products = design.row_products(metric)
    tol = _RANK * design.n_rows * float(np.finfo(np.float64).eps * products.diagonal().max())
    with single_threaded_blas():
        factor, order, rank, _ = dpstrf(products, tol=tol, lower=1, overwrite_a=1)
    rank, order = max(int(rank), 1), order - 1  # a column of zeros where no column takes part
    lower = np.zeros((design.n_rows, rank))
    lower[order] = np.tril(factor)[:, :rank]
    pivots = order[:rank]
    reduced = design_for(lower, near=design)

    def to_data(linear: Linear) -> Linear:
        combinations = np.zeros((design.n_rows, linear[0].shape[1]))
        combinations[pivots] = _solve_lower(lower[pivots].T, linear[0], lower=False)
        coef = np.column_stack([metric * design.adjoint(c) for c in combinations.T])
        return design.to_data((coef, linear[1]))

    def from_data(linear: Linear) -> Linear:
        coef, intercept = design.from_data(linear)
        scores = to_numpy(design.scores(coef, np.zeros(coef.shape[1])))
        return _solve_lower(lower[pivots], scores[pivots], lower=True), intercept

    own = partial(reduced.gram, weights[0, :])
    column = _column_space(reduced, own, np.ones((1, rank)), 1.0, fit_intercept)
    return replace(column, to_data=to_data, from_data=from_data, with_hessian=None)


def _solve_lower(triangle: FloatArray, right: FloatArray, *, lower: bool) -> FloatArray:
    """Solve a triangular system; where all is zero, so is the solution."""
    if not triangle.any():
        return np.zeros_like(right)
    return np.asarray(solve_triangular(triangle, right, lower=lower))
