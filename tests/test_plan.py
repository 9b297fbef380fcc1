"""Which solver runs and how: the plans as tables, and the policies that change them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from solver_problems import make, normal

from marginpursuit import MarginPursuitClassifier, _kernels
from marginpursuit.blocks import Blocks
from marginpursuit.design import BlockDesign, MemoryDesign, design_for
from marginpursuit.losses import HingeLoss, JointLoss, LogisticLoss, MarginLoss
from marginpursuit.solvers import SOLVERS, Policy, Request, plan, plan_gram
from marginpursuit.solvers._problem import request_penalty_weights
from marginpursuit.tasks import Labels, Tasks

LOSS = MarginLoss()


def request(X, *, unit="absolute", n_folds=1, alpha=0.1, loss=LOSS, **options):
    n_rows = X.shape[0]
    weights = np.full((n_folds, n_rows), 1 / n_rows)
    return Request(design_for(X), weights, (loss,), unit, alpha, True, **options)


def zeros(n_rows, n_columns):
    return np.zeros((n_rows, n_columns), dtype=np.float32)  # memory that is never touched


SINGLE_FITS = [
    (zeros(5000, 127), "newton", "one compiled call"),
    (zeros(5000, 128), "gram", "saves more sweeps than it costs"),
    (zeros(1 << 17, 15), "newton", "one compiled call"),
    (zeros((1 << 17) + 1, 15), "gram", "saves more sweeps than it costs"),
    (zeros(5000, 2048), "gram", "saves more sweeps than it costs"),
    (zeros(5000, 2049), "lbfgs", "too large"),
    (zeros(10, 5000), "gram", "Gram matrix of the rows"),
]


@pytest.mark.parametrize(("X", "solver", "reason"), SINGLE_FITS)
def test_the_table_of_single_fits(X, solver, reason):
    chosen = plan(request(X))
    if _kernels.newton is None and solver == "newton":
        solver, reason = "gram", "saves more sweeps than it costs"
    assert chosen.solver == solver
    assert reason in chosen.reason
    assert f"{X.shape[0]} rows x {X.shape[1]} columns" in str(chosen)


def independent(n_rows=10_000, n_columns=30):
    return np.random.default_rng(7).normal(size=(n_rows, n_columns))


UNCORRELATED = {"unit": "standardised", "alpha": 1e-4, "loss": MarginLoss(overconfidence=0.0)}


def test_uncorrelated_columns_need_no_gram_matrix():
    chosen = plan(request(independent(), **UNCORRELATED))
    assert chosen.solver == "lbfgs"
    assert "uncorrelated" in chosen.reason


@pytest.mark.parametrize(
    "reason",
    [
        "factor",
        "pair",
        "few rows",
        "small",
        "penalty",
        "unit",
        "scale",
        "search",
        "classes",
        "blocks",
    ],
)
def test_columns_that_are_not_known_to_be_uncorrelated(reason):
    X, options = independent(), dict(UNCORRELATED)
    if reason == "factor":
        X = X + np.arange(len(X))[:, np.newaxis] % 5
    elif reason == "pair":  # the largest eigenvalue of the correlations is two
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    elif reason == "few rows":
        X = independent(3000, 100)
    elif reason == "small":
        X = X[:8000]
    elif reason == "penalty":
        options["alpha"] = 1e-9
    elif reason == "unit":
        options["unit"] = "absolute"
    elif reason == "scale":
        options["loss"] = MarginLoss(1.0, 0.1, overconfidence=0.0)
    elif reason == "search":
        options["is_search"] = True
    elif reason == "classes":
        options["n_problems"] = 3
    elif reason == "blocks":
        X = Blocks([lambda: independent()])
    assert "uncorrelated" not in plan(request(X, **options)).reason


def test_a_fit_to_uncorrelated_columns_is_that_by_the_gram_matrix():
    X = independent()
    y = (X[:, 0] + np.random.default_rng(1).normal(size=len(X)) > 0).astype(int)
    options = {"tol": 1e-8, "probability": None}
    models = [
        MarginPursuitClassifier(solver=solver, **options).fit(X, y) for solver in ("auto", "gram")
    ]
    assert_allclose(models[0].coef_, models[1].coef_, atol=1e-4)
    assert_allclose(models[0].objective_, models[1].objective_, rtol=2e-8)


SEARCHES = [
    # rows, columns, unit, binary problems, penalty, solver
    (49, 3000, "common", 1, 0.1, "gram"),  # the Gram matrix of so few rows is cheap
    (50, 3000, "common", 1, 0.1, "dual"),
    (1024, 3000, "standardised", 1, 0.1, "gram"),  # likewise, of each fold
    (1025, 3000, "absolute", 20, 0.1, "dual"),
    (1025, 3000, "standardised", 1, 0.1, "lbfgs"),  # columns have penalties of their own
    (1025, 3000, "common", 1, 0.0, "lbfgs"),  # no penalty, no dual
    (1025, 3000, "standardised", 8, 0.1, "gram"),  # many problems share a factor
    (9000, 3000, "common", 1, 0.1, "dual"),
    (9000, 3000, "standardised", 8, 0.1, "lbfgs"),
    (9000, 2000, "common", 1, 0.1, "gram"),
]


@pytest.mark.parametrize(("n_rows", "n_columns", "unit", "n_problems", "alpha", "solver"), SEARCHES)
def test_the_table_of_searches_over_sparse_rows(n_rows, n_columns, unit, n_problems, alpha, solver):
    options = {"unit": unit, "alpha": alpha, "n_problems": n_problems, "is_search": True}
    chosen = plan(request(sparse.csr_matrix((n_rows, n_columns)), n_folds=3, **options))
    has_dual = "dual_pass" in design_for(sparse.csr_matrix((2, 2))).capabilities
    other = "lbfgs" if n_rows >= 1025 else "gram"
    assert chosen.solver == (solver if has_dual or solver != "dual" else other)


SPARSE_FITS = [
    # rows, columns, unit, penalty times rows, solver
    (49, 3000, "row", 0.3, "gram"),
    (50, 3000, "row", 0.3, "dual"),
    (9000, 3000, "common", 0.3, "dual"),
    (9000, 3000, "common", 0.0099, "lbfgs"),  # too many passes
    (1025, 3000, "common", 0.0099, "gram"),
    (9000, 3000, "absolute", 0.3, "lbfgs"),  # the size of the rows is unknown
    (9000, 2000, "row", 0.3, "gram"),
    (1310, 100, "row", 0.3, "newton"),
    (1311, 100, "row", 0.3, "gram"),  # a dense copy has more than 2**17 elements
    (100, 128, "row", 0.3, "dual"),  # a Hessian has too many columns
]


@pytest.mark.parametrize(("n_rows", "n_columns", "unit", "penalty", "solver"), SPARSE_FITS)
def test_the_table_of_single_fits_of_sparse_rows(n_rows, n_columns, unit, penalty, solver):
    X = sparse.csr_matrix((n_rows, n_columns))
    has_dual = "dual_pass" in design_for(X).capabilities
    default = "lbfgs" if n_rows > 4096 else "gram"
    chosen = plan(request(X, unit=unit, alpha=penalty / n_rows)).solver
    assert chosen == (solver if has_dual or solver not in ("dual", "newton") else default)


WIDE_FITS = [
    # rows, columns, penalty times rows, overconfidence, binary problems, solver
    (400, 784, 0.3, 0.0, 1, "dual"),
    (3200, 200, 0.3, 0.0, 1, "dual"),
    (3201, 200, 0.3, 0.0, 1, "gram"),  # more rows than 16 per column
    (400, 784, 0.0099, 0.0, 1, "gram"),  # too many passes
    (400, 784, 0.3, 0.1, 1, "gram"),  # no row can be skipped
    (400, 784, 0.3, 0.0, 3, "gram"),  # several classes have a joint loss
    (4000, 4194, 0.3, 0.0, 1, "dual"),
    (4000, 4195, 0.3, 0.0, 1, "gram"),  # the copy is too large
]


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "penalty", "overconfidence", "n_problems", "solver"), WIDE_FITS
)
def test_the_table_of_single_fits_of_wide_dense_rows(
    n_rows, n_columns, penalty, overconfidence, n_problems, solver
):
    X, loss = zeros(n_rows, n_columns), MarginLoss(overconfidence=overconfidence)
    options = {"unit": "standardised", "loss": loss, "n_problems": n_problems}
    chosen = plan(request(X, alpha=penalty / n_rows, **options)).solver
    has_dual = "dual_pass" in design_for(X).capabilities
    assert chosen == (solver if has_dual else "gram")


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_the_unit_of_a_row_is_the_weighted_lower_quartile_of_the_squared_norms(kind):
    """Long rows and rows of zeros leave it unchanged; a weight of 2 is the row twice."""
    norms = np.array([1.0, 3.0, 4.0, 1e6, 0.0])
    X = norms[:, np.newaxis] * np.array([0.6, 0.8])
    weights = np.array([[1.0, 2.0, 1.0, 1.0, 1.0]]) / 6
    for unit, expected in (("row", 9.0), ("absolute", 1.0)):
        asked = Request(design_for(kind(X)), weights, (LOSS,), unit, 0.1, True)
        standardisation = asked.design.standardisation(weights[0], centred=True)
        found = (
            request_penalty_weights(asked, standardisation)[0]
            / standardisation.inverse_deviation**2
        )
        assert_allclose(found, expected, rtol=1e-6)
    repeated = np.repeat(X, [1, 2, 1, 1, 1], axis=0)
    asked = Request(design_for(kind(repeated)), np.full((1, 6), 1 / 6), (LOSS,), "row", 0.1, True)
    standardisation = asked.design.standardisation(asked.weights[0], centred=True)
    found = (
        request_penalty_weights(asked, standardisation)[0] / standardisation.inverse_deviation**2
    )
    assert_allclose(found, 9.0, rtol=1e-6)


@pytest.mark.parametrize(("n_rows", "solver"), [(399, "dual"), (400, "gram")])
def test_folds_of_dense_rows_share_a_gram_matrix_unless_columns_are_more(n_rows, solver):
    asked = request(
        zeros(n_rows, 400), n_folds=2, unit="standardised", alpha=0.1, is_search=True, loss=LOSS
    )
    has_dual = "dual_pass" in asked.design.capabilities
    assert plan(asked).solver == (solver if has_dual else "gram")


def test_a_policy_changes_the_plan():
    X = zeros(5000, 200)
    assert plan(request(X)).solver == "gram"
    assert plan(request(X, policy=Policy(max_gram_columns=99))).solver == "lbfgs"


@pytest.mark.skipif(_kernels.newton is None, reason="installed without the compiled kernels")
def test_a_joint_task_counts_the_coefficients_of_all_classes():
    joint = JointLoss(MarginLoss(overconfidence=0.0))
    for n_problems, solver in ((6, "newton"), (7, "gram")):
        asked = request(zeros(200, 20), loss=joint, n_problems=n_problems)
        assert plan(asked).solver == solver


REFUSALS = [
    ("newton", sparse.csr_matrix((2**17, 16)), {}, "dense copy is small"),
    ("newton", Blocks([lambda: np.zeros((9, 3))]), {}, "rows in memory"),
    ("dual", np.zeros((9, 3)), {"unit": "common"}, "got the unit 'common'"),
    (
        "dual",
        zeros(2**12, 2**13),
        {"unit": "standardised", "n_folds": 2},
        "several folds need a CSR",
    ),
    ("dual", Blocks([lambda: np.zeros((9, 3))]), {}, "rows in memory"),
    ("dual", sparse.csr_matrix((9, 3)), {"unit": "column"}, "one penalty for all coefficients"),
    ("dual", sparse.csr_matrix((9, 3)), {"alpha": 0.0}, "alpha > 0; got 0"),
    (
        "dual",
        sparse.csr_matrix((9, 3)),
        {"loss": LogisticLoss()},
        "conjugate; LogisticLoss has none",
    ),
    ("stochastic", np.zeros((9, 3)), {"unit": "standardised"}, "one positive penalty"),
    (
        "stochastic",
        np.zeros((9, 3)),
        {"unit": "absolute", "alpha": 0.0},
        "alpha > 0",
    ),
    ("stochastic", Blocks([lambda: np.zeros((9, 3))]), {"unit": "absolute"}, "rows in memory"),
    ("gram", np.zeros((3, 9)), {"n_folds": 2}, "one fold at a time"),
    ("gram", np.zeros((9, 3)), {"loss": HingeLoss()}, "curvature bound; HingeLoss has none"),
    ("lbfgs", np.zeros((9, 3)), {"loss": HingeLoss()}, "curvature bound; HingeLoss has none"),
]


@pytest.mark.parametrize(("solver", "X", "options", "words"), REFUSALS)
def test_a_solver_refuses_by_name(solver, X, options, words):
    asked = request(X, **options)
    assert words in SOLVERS[solver].supports(asked)
    with pytest.raises(ValueError, match=f"solver='{solver}' cannot be used here: .*{words}"):
        plan(asked, solver)


def test_a_named_solver_is_taken():
    assert plan(request(zeros(50, 3)), "lbfgs").solver == "lbfgs"
    assert plan(request(zeros(50, 3)), "lbfgs").reason == "as requested"


GRAM_PLANS = [
    # rows, columns, classes, overconfidence: what differs from the default plan
    (600, 10, 2, 1.0, {"trusted_steps": 20}),
    (600, 10, 2, 0.05, {}),
    (600, 10, 2, 0.0, {"fits_subsample": True}),
    (599, 10, 2, 0.0, {}),
    (600, 10, 4, 0.0, {"tol": 1e-8}),
    (600, 10, 4, 0.5, {"trusted_steps": 20}),
    (
        *(1000, 10, 2, 0.0),
        {"fits_subsample": True, "max_steps": 150, "min_steps": 12, "trusts_estimate": True}
        | {"gap_weight": 0.01},
    ),
    (
        *(1000, 10, 4, 1.0),
        {"max_steps": 150, "trusts_estimate": True, "trusted_steps": 20} | {"gap_weight": 0.01},
    ),
    (3000, 2000, 2, 1.0, {"max_steps": 100, "trusted_steps": 200}),
]


@pytest.mark.parametrize(("n_rows", "n_columns", "n_classes", "tau", "changes"), GRAM_PLANS)
def test_the_table_of_gram_plans(n_rows, n_columns, n_classes, tau, changes):
    problem = make(*normal(600, 10), MarginLoss(1.0, 1.0, tau), "gram", tol=1e-6, max_iter=1000)
    codes, weights = np.arange(n_rows) % n_classes, np.full(n_rows, 1 / n_rows)
    design = MemoryDesign(zeros(n_rows, n_columns))
    problem = replace(
        problem,
        prepared=replace(problem.prepared, design=design),
        tasks=Tasks.of(Labels(codes, n_classes), weights, problem.tasks.losses[0]),
    )
    found = plan_gram(problem)
    expected = {
        **{"fits_subsample": False, "max_steps": 50, "min_steps": 0, "tol": 1e-6},
        **{"trusted_steps": 0, "trusts_estimate": False},
        "gap_weight": 1.0,
    } | changes
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_logistic_loss_is_planned_as_one_with_curvature_everywhere():
    X, y = normal(600, 10)
    found = plan_gram(make(X, y, LogisticLoss(), "gram", tol=1e-6))
    assert (found.fits_subsample, found.trusted_steps) == (False, 20)


def test_capabilities_are_asked_for_by_name():
    dense, rows = design_for(np.eye(3)), design_for(sparse.csr_matrix(np.eye(3)))
    blocks = BlockDesign(Blocks([lambda: np.eye(3)]))
    assert {"subset", "row_access", "descend"} <= dense.capabilities
    assert not blocks.capabilities
    with pytest.raises(NotImplementedError, match="BlockDesign does not support 'subset'"):
        blocks.subset(np.array([0]))
    assert_array_equal(rows.subset(np.array([2])).matrix.toarray(), [[0, 0, 1]])
