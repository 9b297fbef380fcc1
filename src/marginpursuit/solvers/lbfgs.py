"""The solver for data with many rows and many columns, sparse as a rule.

No matrix of the size of the Gram matrix is made: its diagonal, which standardised columns have
equal to one, preconditions the same quasi-Newton method.
"""

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design
from marginpursuit.solvers._problem import Geometry, Problem, Solution
from marginpursuit.solvers._quasi_newton import minimise

__all__ = ["diagonal_geometry", "solve_lbfgs"]


def diagonal_geometry(
    design: Design, weights: FloatArray, alpha: float, *, scale_free: bool, fit_intercept: bool
) -> Geometry:
    """Standardise the columns. Parameters and result are those of `gram_geometry`."""
    design.standardise_diagonal(weights, centred=fit_intercept)
    penalty = alpha * (np.ones(design.n_columns) if scale_free else design.inverse_spread**2)
    bound = np.append(1.0 + penalty, np.ones(int(fit_intercept)))

    def precondition(vector: FloatArray) -> FloatArray:
        return vector / bound

    return Geometry(design, fit_intercept, penalty, precondition, design.to_data, design.from_data)


def solve_lbfgs(problem: Problem) -> Solution:
    """Minimise by the quasi-Newton method.

    Parameters
    ----------
    problem : Problem
        What to minimise, with a geometry from `diagonal_geometry`.

    Returns
    -------
    Solution
        The minimiser.
    """
    # The diagonal is far from the Hessian, and the first estimates that are small may not know it.
    return minimise(problem, times=5)
