"""Problems at which a solver once ended far above the minimum without a word."""

import numpy as np
import pytest
from convergence_problems import Case, Objective, draw
from sklearn.exceptions import ConvergenceWarning

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.classifiers._parameters import convergence_message
from marginpursuit.design import design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import Policy, Request, Solution, Status, steps_before_gram

OPTIONS = {
    **{"solver": "auto", "margin": 1.0, "scale": 1.0, "overconfidence": 0.0, "rho": "catoni"},
    **{"alpha": "auto", "alpha_unit": "auto", "fit_intercept": True, "tol": 1e-6},
    **{"multi_class": "ovr", "leverage_bound": None, "probability": None},
}


def relative_gap(X, y, **options):
    """Return the relative gap of a fit, against a minimiser that is not the library's."""
    parameters = {**OPTIONS, **options}
    model = MarginPursuitClassifier(**parameters).fit(X, y)
    objective = Objective(Case(X, y, None, parameters, ""), model.alpha_)
    (value,), (minimum,) = (
        getattr(objective, name)(model.coef_, model.intercept_) for name in ("values", "minima")
    )
    return float((value - minimum) / max(value, 1e-2 * objective.at_zero()[0]))


def rows(n, d, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + noise * rng.normal(size=n) > 0).astype(int)


def collinear(n, d, size):
    """Columns that differ by `size`; the classes depend on the differences."""
    rng = np.random.default_rng(0)
    common, own = rng.normal(size=(n, 1)), rng.normal(size=(n, d))
    score = own @ rng.normal(size=d) / np.sqrt(d) + 0.5 * common[:, 0]
    return common + size * own, (score > 0).astype(int)


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("size", [1e-2, 1e-5])
def test_lbfgs_with_nearly_collinear_columns(size, tau):
    X, y = collinear(150, 70, size)
    assert relative_gap(X, y, solver="lbfgs", alpha=1e-8, overconfidence=tau) <= 1e-5


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("shift", [1e2, 1e5])
def test_lbfgs_far_from_the_origin_without_intercept(shift, tau):
    X, y = rows(200, 5)
    options = {"solver": "lbfgs", "fit_intercept": False, "overconfidence": tau}
    assert relative_gap(X + shift, y, **options) <= 1e-5


@pytest.mark.parametrize("solver", ["lbfgs", "gram"])
def test_wide_rows_with_a_negligible_penalty(solver):
    assert relative_gap(*rows(20, 60), solver=solver, alpha="negligible") <= 1e-5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_gram_at_a_loose_tolerance(tau, seed):
    X, y = rows(40, 200, seed)
    options = {"solver": "gram", "scale": 0.01, "tol": 1e-3, "overconfidence": tau}
    assert relative_gap(X, y, **options) <= 1e-2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("alpha", ["auto", "negligible"])
def test_steepest_descent_warns_above_its_tolerance(alpha):
    X, y = rows(60, 20)
    model = MarginPursuitClassifier(solver="steepest", probability=None, alpha=alpha, max_iter=50)
    with pytest.raises(ConvergenceWarning, match=r"took all steps.*tol=0.0001.*max_iter above 50"):
        model.fit(X, y)
    model.set_params(tol=0.5, max_iter=1000).fit(X, y)


def test_steepest_descent_with_a_constant_column():
    X, y = rows(60, 3)
    X[:, 1] = 7.0
    model = MarginPursuitClassifier(solver="steepest", probability=None, tol=0.5).fit(X, y)
    assert model.coef_[0, 1] == 0
    assert model.score(X, y) > 0.8


def test_a_stop_by_rounding_above_the_tolerance_is_a_message():
    linear = np.zeros((2, 1)), np.zeros(1)
    found = Solution(linear, np.ones(1), np.array([1e-9]), Status.ROUNDING, 5, ())
    given = {"shape": (10, 2), "larger_penalty": None}
    message = convergence_message(found, 1e-12, 100, **given)
    assert message is not None
    assert "the estimated relative suboptimality is 1.0e-09, above tol=1e-12." in message
    assert "Set tol above 1e-09" in message
    assert convergence_message(found, 1e-8, 100, **given) is None


def test_the_hessian_takes_over_where_its_matrix_is_small():
    def request(n, d):
        weights, losses = np.full((1, n), 1.0 / n), (MarginLoss(),)
        return Request(design_for(np.ones((n, d)), None), weights, losses, "column", 1e-6, True)

    policy = Policy()
    assert steps_before_gram(request(300, 50), "lbfgs") == policy.max_first_steps
    assert steps_before_gram(request(3000, 2000), "lbfgs") == 200
    assert steps_before_gram(request(300, 50), "gram") is None
    large = policy.max_hessian_size + 1
    assert steps_before_gram(request(large, large), "lbfgs") is None


@pytest.mark.parametrize(("rho", "limit"), [("log_cosh", np.log(2.0)), ("pseudo_huber", 1.0)])
def test_the_conjugate_at_the_bound_of_the_influence_is_its_limit(rho, limit):
    """It was NaN, and the duality gap of a fit then zero."""
    loss = MarginLoss(1.0, 0.3, 0.0, rho)
    found = loss.conjugate(np.array([loss.influence_bound]))
    np.testing.assert_allclose(found, 0.3**2 * limit, rtol=1e-6)


def test_a_loss_whose_dual_variables_reach_their_bound():
    case = draw(10038, "gram")
    model = MarginPursuitClassifier(**case.parameters).fit(case.X, case.y, case.weights)
    objective = Objective(case, model.alpha_)
    (value,), (minimum,) = (
        getattr(objective, name)(model.coef_, model.intercept_) for name in ("values", "minima")
    )
    assert value - minimum <= 10 * case.parameters["tol"] * value


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_search_is_named_with_its_own_parameter(kernel):
    X = np.random.default_rng(0).normal(size=(100, 100))
    y = (X[:, 0] + np.random.default_rng(1).normal(size=100) > 0).astype(int)
    search = MarginPursuitClassifierCV(alphas=[1e-12], max_iter=2, kernel=kernel)
    with pytest.warns(ConvergenceWarning, match=r"^MarginPursuitClassifierCV.*larger alphas\."):
        search.fit(X, y)
    assert "_search" not in vars(search.best_estimator_)


def test_a_search_is_named_where_its_single_fit_of_few_rows_does_not_converge():
    X = np.random.default_rng(0).normal(size=(300, 8))
    y = (X[:, 0] + np.random.default_rng(1).normal(size=300) > 0).astype(int)
    with pytest.warns(ConvergenceWarning) as caught:
        MarginPursuitClassifierCV(max_iter=1).fit(X, y)
    assert all("MarginPursuitClassifierCV" in str(found.message) for found in caught)
