"""The solver for data with many rows and many columns, sparse as a rule.

No matrix of the size of the Gram matrix is made: its diagonal, which standardised columns have
equal to one, preconditions the same quasi-Newton method. Columns that one row alone has are merged
first, where the penalty permits.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, MemoryDesign, merged
from marginpursuit.solvers._penalty import ROTATABLE, design_unit, shared_weights
from marginpursuit.solvers._problem import Prepared, Problem, Solution
from marginpursuit.solvers._quasi_newton import minimise

__all__ = ["prepare_lbfgs", "solve_lbfgs"]


def prepare_lbfgs(
    design: Design,
    weights: FloatArray,
    unit: str,
    *,
    fit_intercept: bool,
    order: NDArray[np.intp] | None = None,
) -> Prepared:
    """Standardise the columns. Parameters and result are those of `prepare_gram`."""
    if unit in ROTATABLE and isinstance(design, MemoryDesign) and design.is_sparse:
        fewer = merged(design)
        if fewer is not None:
            return replace(
                _standardised(fewer, weights, unit, fit_intercept),
                to_data=lambda linear: fewer.expanded(fewer.to_data(linear)),
                from_data=lambda linear: fewer.from_data(fewer.contracted(linear)),
            )
    prepared = _standardised(design, weights, unit, fit_intercept)
    reader = design if order is None else design.condensed(order)
    return prepared if reader is design else replace(prepared, design=reader, order=order)


def _standardised(design: Design, weights: FloatArray, unit: str, fit_intercept: bool) -> Prepared:
    everywhere, bound = shared_weights(weights)
    design.standardise_diagonal(everywhere, centred=fit_intercept)
    units = design_unit(design, weights, unit, centred=fit_intercept)
    mean_unit = np.mean(np.where(np.isfinite(units), units, 0.0), axis=0)

    def precondition(points: FloatArray, alpha: float) -> FloatArray:
        diagonal = np.append(bound + alpha * mean_unit, [bound] * int(fit_intercept))
        return np.asarray(points / diagonal)

    return Prepared(design, fit_intercept, units, precondition, design.to_data, design.from_data)


def solve_lbfgs(problem: Problem) -> Solution:
    """Minimise by the quasi-Newton method.

    Parameters
    ----------
    problem : Problem
        What to minimise, with a prepared from `prepare_lbfgs`.

    Returns
    -------
    Solution
        The minimiser.
    """
    # The diagonal is far from the Hessian, and the first estimates that are small may not know it.
    return minimise(problem, times=5)
