"""Fold fits: the solver that is chosen, the dual, the Hessian, memory."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from searches import GRID, fold_plan, grid_search, sparse_wide, with_policy
from sklearn.base import clone

from marginpursuit import MarginPursuitClassifierCV, _kernels
from marginpursuit.selection.fold_data import merged_columns
from marginpursuit.selection.fold_fits import FoldFits
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.solvers import FOLD_SOLVERS, Policy, minimise

SPARSE_SOLVER = "lbfgs" if _kernels._compiled is None else "dual"


@pytest.mark.parametrize(
    ("unit", "solver"),
    [("standardised", "lbfgs"), ("common", SPARSE_SOLVER), ("absolute", SPARSE_SOLVER)],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_wide_rows_equal_grid_search(unit, solver, n_classes):
    """Without a factorisation, and with columns merged that have their non-zero in the same row."""
    X, y = sparse_wide(n_classes, density=0.03 if unit == "standardised" else 0.02)
    data, plan = fold_plan(X, y, unit=unit, min_lbfgs_rows=51)
    assert plan.solver.name == solver
    merge = merged_columns(X, data.labels, plan.options, plan.policy)
    assert (merge is not None) == (unit != "standardised")
    model = MarginPursuitClassifierCV(
        **GRID,
        alpha_unit=unit,
        cv=4,
        scoring="neg_log_loss",
        tol=1e-9,
        multi_class="ovr",
        link="exact",
    )
    with_policy(model, solvers={"min_lbfgs_rows": 51}).fit(X, y)
    reference = grid_search(X, y, unit=unit, cv=4, scoring="neg_log_loss", multi_class="ovr")
    scores = [results.cv_results_["mean_test_score"] for results in (model, reference)]
    assert_allclose(*scores, rtol=1e-4)
    assert np.ptp(scores[0]) > 0.05


@pytest.mark.parametrize("are_penalised", [True, False])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_dual_is_chosen_where_it_exists(are_penalised, is_compiled, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr(_kernels, "rows", _kernels._arrays.rows)
    _, plan = fold_plan(*sparse_wide(3), are_penalised=are_penalised, min_lbfgs_rows=51)
    assert plan.solver.name == (SPARSE_SOLVER if is_compiled and are_penalised else "lbfgs")


@pytest.mark.parametrize("alphas", [[1e-3], [0.0, 1e-3]])
def test_penalties_of_zero_are_fitted_to_sparse_wide_rows(alphas):
    X, y = sparse_wide(3)
    model = MarginPursuitClassifierCV(alphas=alphas, scales=[1.0], cv=3, refit=False)
    with_policy(model, solvers={"min_lbfgs_rows": 51}).fit(X, y)
    assert np.all(np.isfinite(model.cv_results_["mean_test_score"]))


def test_solver_table():
    """The solver of a single fit, except for sparse wide data in memory."""
    sparse_X, y = sparse_wide(2)
    dense_X = sparse_X.toarray()
    few = {"min_lbfgs_rows": 51}
    assert fold_plan(dense_X, y, **few)[1].solver.name == "gram"
    assert fold_plan(sparse_X, y)[1].solver.name == (
        "gram" if _kernels._compiled is None else "dual"  # the Gram matrix of few rows is cheap
    )
    assert fold_plan(sparse_X, y, solver="gram", **few)[1].solver.name == "gram"
    assert fold_plan(sparse_X, y, unit="standardised", **few)[1].solver.name == "lbfgs"
    few_problems = {"min_row_space_problems": 1, **few}
    assert fold_plan(sparse_X, y, unit="standardised", **few_problems)[1].solver.name == "gram"


@pytest.mark.skipif(_kernels._compiled is None, reason="installed without the compiled kernels")
def test_folds_of_many_elements_share_the_passes_of_gram():
    """From fewer elements on than a single fit: the tasks of "newton" share no pass."""
    limit = SelectionPolicy().solvers.max_newton_elements
    assert limit < Policy().max_newton_elements
    X = np.random.default_rng(0).normal(size=(1 + limit // 4, 3))  # and a column of ones
    y = np.arange(len(X)) % 2
    for n_rows, expected in ((limit // 4, "newton"), (len(X), "gram")):
        _, plan = fold_plan(X[:n_rows], y[:n_rows], max_newton_elements=limit)
        assert plan.solver.name == expected


@pytest.mark.skipif(_kernels._compiled is None, reason="installed without the compiled kernels")
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_fits_that_dual_ascent_leaves_unfinished_are_minimisers(fit_intercept, monkeypatch):
    """Unfinished fits with small penalties have better held-out scores than their minimisers."""
    X = sparse.random(300, 400, 0.01, format="csr", random_state=1)
    score = X[:, :200].sum(axis=1).A1 + 0.5 * np.random.default_rng(0).normal(size=300)
    ends, gaps, solve_dual = [], [], FoldFits._solve_dual

    def checked(self, problem, tols):
        found = solve_dual(self, problem, tols)
        long = replace(problem, max_iter=5000, tol=1e-9)
        best = minimise(long, n_confirmations=5, min_iter=100).value
        points = problem.join(*found.linear)
        value, _ = problem.value_and_gradient(points, np.arange(len(tols)))
        ends.append(found.gap > 10.0 * tols)  # after the last pass
        gaps.append((value - best) / problem.relative_to(best))
        return found

    monkeypatch.setattr(FoldFits, "_solve_dual", checked)
    model = MarginPursuitClassifierCV(
        scales=[1.0, 0.1], alphas=[1e-6], cv=4, refit=False, fit_intercept=fit_intercept
    )
    policy = {"dual_passes": 0.02, "dual_gap_ratio": 10.0}
    with_policy(model, **policy).fit(X, score > np.median(score))
    slow, gap = np.concatenate(ends), np.concatenate(gaps)
    assert np.any(slow)
    assert np.all(gap[slow] <= 3e-3)
    assert np.all(gap <= 1.5 * 10.0 * 1e-3)  # sums over a pass in which they change


def test_the_hessian_saves_sweeps_and_changes_no_score():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 40))
    score = X @ rng.normal(size=40) + rng.normal(size=3000)
    y = score > np.quantile(score, 0.95)  # nearly separable: few rows have curvature
    model = MarginPursuitClassifierCV(
        alphas=[1e-5, 1e-6],
        overconfidences=[0.0],
        solver="gram",
        refit=False,
        successive_halving=False,
        tol=1e-6,
    )
    with_hessian = clone(model).fit(X, y)
    without = with_policy(clone(model), slow_iterations=10**9).fit(X, y)
    assert with_hessian.n_passes_ < 0.7 * without.n_passes_
    scores = [each.cv_results_["mean_test_score"] for each in (with_hessian, without)]
    assert_allclose(*scores, atol=5e-4)


@pytest.mark.skipif(_kernels._compiled is None, reason="installed without the compiled kernels")
@pytest.mark.parametrize(("n_classes", "is_dense"), [(3, False), (2, True)])
def test_the_dual_may_be_requested(n_classes, is_dense):
    """The folds of dense rows are standardised one by one, those of CSR rows share the matrix."""
    X, y = sparse_wide(n_classes)
    X = X.toarray() if is_dense else X
    options = {"alphas": [1e-3], "scales": [1.0, 0.3], "cv": 3, "solver": "dual"}
    model = MarginPursuitClassifierCV(**options).fit(X, y)
    automatic = MarginPursuitClassifierCV(**options | {"solver": "auto"})
    automatic.fit(X, y)
    scores = [each.cv_results_["mean_test_score"] for each in (model, automatic)]
    assert_array_equal(*scores)
    assert model.best_estimator_.solver == "dual"


@pytest.mark.skipif(_kernels._compiled is None, reason="installed without the compiled kernels")
def test_dual_passes_over_dense_folds_have_the_scores_of_single_fits():
    X, y = sparse_wide(2)
    X = X.toarray()
    model = MarginPursuitClassifierCV(
        **GRID, alpha_unit="standardised", cv=3, scoring="neg_log_loss", tol=1e-9, link="exact"
    )
    ours = model.set_params(solver="dual").fit(X, y)
    reference = grid_search(X, y, unit="standardised", cv=3, scoring="neg_log_loss", solver="gram")
    scores = [each.cv_results_["mean_test_score"] for each in (ours, reference)]
    assert_allclose(*scores, rtol=1e-4)


@pytest.mark.parametrize("solver", FOLD_SOLVERS)
def test_every_fold_solver_has_the_scores_of_single_fits(solver):
    """The contract of solvers that a search may use."""
    X, y = sparse_wide(2)
    if solver in ("dual", "newton") and _kernels._compiled is None:
        pytest.skip("installed without the compiled kernels")
    if solver == "newton":
        X = X.toarray()
    model = MarginPursuitClassifierCV(
        **GRID, alpha_unit="common", cv=3, scoring="neg_log_loss", tol=1e-9, link="exact"
    )
    ours = clone(model).set_params(solver=solver).fit(X, y)
    reference = grid_search(X, y, unit="common", cv=3, scoring="neg_log_loss", solver="lbfgs")
    scores = [each.cv_results_["mean_test_score"] for each in (ours, reference)]
    assert_allclose(*scores, rtol=1e-4)
