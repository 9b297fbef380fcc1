"""No fit ends more than 10 tol above the minimum without a ConvergenceWarning.

The problems are random (`convergence_problems`): overconfidence, scale, penalty and its unit,
weights, types, orders, sparse rows, shapes, and columns that are collinear, shifted or scaled. The
minima are those of a minimiser that uses no code of the library. The environment variable
`MARGINPURSUIT_PROBLEMS` sets their number; `make fuzz` takes 10,000.
"""

import os
import warnings

import numpy as np
import pytest
from convergence_problems import Objective, draw, draw_many
from sklearn.exceptions import ConvergenceWarning

from marginpursuit import MarginPursuitClassifier, _kernels

N_PROBLEMS = int(os.environ.get("MARGINPURSUIT_PROBLEMS", "1000"))
N_GROUPS = 20

SOLVERS = ["gram", "lbfgs", "steepest", "auto"]
if _kernels.joint_losses is not None:
    SOLVERS += ["newton", "dual"]


def relative_gap(case):
    """Fit; return the largest relative gap of a binary problem, and whether the fit has warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = MarginPursuitClassifier(**case.parameters).fit(case.X, case.y, case.weights)
    objective = Objective(case, model.alpha_)
    values = objective.values(model.coef_, model.intercept_)
    minima = objective.minima(model.coef_, model.intercept_)
    unit = np.maximum(values, 1e-2 * objective.at_zero())
    assert abs(values.sum() - model.objective_) <= 1e-6 * unit.sum(), case
    return float(np.max((values - minima) / unit)), bool(caught)


@pytest.mark.parametrize("group", range(N_GROUPS))
def test_a_fit_reaches_its_tolerance_or_warns(group):
    for seed in range(group, N_PROBLEMS, N_GROUPS):
        case = draw(seed, SOLVERS[seed % len(SOLVERS)])
        gap, has_warned = relative_gap(case)
        assert gap <= 10 * case.parameters["tol"] or has_warned, f"gap {gap:.1e}: {case}"


@pytest.mark.parametrize(
    ("seed", "solver"),
    [
        (10280, "dual"),  # the inner products of nearly collinear rows hide a part of them
        (2549, "dual"),  # passes end where the loss is linear for most rows, far from the minimum
        (6786, "gram"),  # inner products of sparse rows with an offset lose digits
        (1188, "gram"),  # two rows share the half of the weights
        (6371, "dual"),  # the only row that is not zero has no weight
        (14780, "steepest"),  # a column whose mean is 50,000 times its deviation
        (7602, "gram"),  # steps of the interior-point method with a nearly singular matrix
        (12948, "gram"),  # the minimiser is far: scores of 280 where the level is one
        (17674, "newton"),  # a row of large weight at the level, beyond which it has no curvature
        (8511, "auto"),  # two columns are constant in the rows with weight, and only there
        (73555, "lbfgs"),  # the first steps take the intercept 100 levels away
        (52744, "newton"),  # each step is cut short where the curvature of a row ends
        (203315, "newton"),  # no row has curvature, and the intercept is far from its minimiser
        (89359, "lbfgs"),  # two steps of the solver that takes over
    ],
)
def test_problems_that_were_wrong(seed, solver):
    if solver in SOLVERS:
        case = draw(seed, solver)
        gap, has_warned = relative_gap(case)
        assert gap <= 10 * case.parameters["tol"] or has_warned


@pytest.mark.parametrize(
    ("seed", "solver", "parameters"),
    [
        (200233, "gram", {"tol": 1e-3, "alpha": 1e-6}),  # the dual residual is rounding
        (203710, "gram", {"tol": 1e-3, "alpha": 1e-8}),
        (200980, "gram", {"tol": 1e-4, "alpha": 1e-6}),  # rank 17 of 20 rows
    ],
)
def test_problems_of_hard_penalties_that_were_wrong(seed, solver, parameters):
    case = draw(seed, solver)
    case.parameters.update(parameters, overconfidence=0.0)
    gap, has_warned = relative_gap(case)
    assert gap <= 10 * case.parameters["tol"] or has_warned


@pytest.mark.parametrize(
    ("seed", "max_iter"),
    [
        *[(402943, 5), (403368, 2), (401935, 15), (408930, 2), (409062, 1), (400134, 5)],
        *[(407179, 15), (409639, 2)],
    ],
)
def test_few_iterations_warn(seed, max_iter):
    """An estimate of the gap that later iterations would verify is none."""
    case = draw(seed, SOLVERS[seed % len(SOLVERS)])
    case.parameters["max_iter"] = max_iter
    gap, has_warned = relative_gap(case)
    assert gap <= 10 * case.parameters["tol"] or has_warned


@pytest.mark.parametrize("seed", [1003, 1007, 1050])
def test_many_classes_that_are_almost_separated(seed):
    """L-BFGS alone ended up to 1,000 tol above the minimum, and did not warn."""
    case = draw_many(seed)
    gap, has_warned = relative_gap(case)
    assert gap <= 10 * case.parameters["tol"]
    assert not has_warned
