"""The penalty of `MarginPursuitClassifier`, and the warning of a fit that has not converged.

The penalty "auto" is 0.3/n for n rows, in a unit that does not depend on the unit of X. It was
chosen on 16 data sets of 100, 400 and 4,000 rows, with two seeds that are used for nothing else
(`docs/choosing.md`): the error is 0.08 points below that of logistic regression in the mean. With
0.1/n and 1/n it is 0.03 below and 0.30 above, with penalties in proportion to 1/(n d) 0.5 or more
above. `benchmarks/defaults.py` repeats the comparison on other seeds.
"""

from marginpursuit.solvers import Solution, Status


def penalty(alpha: float | str, n_samples: float) -> float:
    """Return the penalty α that a value of the parameter means for a number of rows.

    "negligible" is far below the curvature of data and far above rounding: it determines only what
    the data leave undetermined.
    """
    if alpha == "negligible":
        return 1e-6
    return 0.3 / n_samples if isinstance(alpha, str) else float(alpha)


def penalty_unit(alpha: float | str, alpha_unit: str, solver: str, *, is_sparse: bool) -> str:
    """Return the unit of the penalty: a name in `solvers.UNITS`.

    The stochastic solver needs one penalty for all coefficients of the rows as they came. For
    sparse rows the unit is their median squared norm. The mean, as in "common", is that of the
    longest texts: on the word counts of news20 (14,134 rows, one class against the rest) the test
    error is 4.2 % with it, the rate of the class, and 1.3 % with the median.
    """
    if alpha == "negligible":
        return "column"
    if alpha_unit != "auto":
        return alpha_unit
    if solver == "stochastic":
        return "common"
    return "row" if is_sparse else "standardised"


def convergence_message(
    solution: Solution, tol: float, max_iter: int, *, shape: tuple[int, int], is_negligible: bool
) -> str | None:
    """Return what to warn of after a solve, and what to do; None where it has converged."""
    gap = float(solution.gap.max())
    if solution.status is Status.ALL_STEPS and gap > max(tol, 1e-2):
        wanted = "steps end far from it"
    elif solution.status is Status.MAX_ITER:
        wanted = f"tol={tol:g} was asked for"
    else:
        return None
    n_rows, n_columns = shape
    advice = f"Set max_iter above {max_iter}."
    if is_negligible and 2 * n_columns >= n_rows:
        advice = (
            f"With {n_rows} rows, {n_columns} columns and a negligible penalty the minimum is "
            "nearly undetermined: set alpha='auto' or to a larger number."
        )
    return (
        f"{solution.status.value}: the objective is estimated to be {gap:.1e} of its value above "
        f"the minimum, where {wanted}. {advice}"
    )
