"""Numbers at the ends of what floats hold: a result, or an error or warning that says why not."""

from contextlib import nullcontext

import numpy as np
import pytest
from convergence_problems import Case, Objective
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from test_convergence import OPTIONS, rows

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, classifiers
from marginpursuit.design import design_for

ESTIMATORS = [
    getattr(classifiers, name) for name in classifiers.__all__ if name.endswith("Classifier")
]


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(float).max, reason="is a double")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_extended_precision_beyond_the_largest_double(estimator):
    X, y = rows(60, 4)
    X = X.astype(np.longdouble)
    X[0, 0] = np.longdouble("1e4000")
    with pytest.raises(OverflowError, match="largest double; got extended precision"):
        estimator().fit(X, y)


def test_extended_precision_is_converted():
    X, y = rows(60, 4)
    wide, plain = (MarginPursuitClassifier().fit(Z, y) for Z in (X.astype(np.longdouble), X))
    np.testing.assert_array_equal(wide.coef_, plain.coef_)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weights_of_all_magnitudes(estimator):
    X, y = rows(60, 4)
    weights = np.logspace(-322, 300, 60)
    weights[0] = 5e-324
    if estimator is classifiers.MDOClassifier:
        with pytest.raises(OverflowError, match="Set a smaller beta"):
            estimator().fit(X, y, sample_weight=weights)
        return
    model = estimator().fit(X, y, sample_weight=weights)
    assert np.all(np.isfinite(model.decision_function(X)))


@pytest.mark.parametrize("total", [1.0, 1e-10, 1e-310])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_weights_of_any_sum_are_no_weights(estimator, total):
    if estimator is classifiers.PegasosClassifier:
        pytest.skip("its weights are probabilities by which rows are drawn")
    X, y = rows(60, 4)
    weighted = estimator().fit(X, y, sample_weight=np.full(60, total / 60))
    expected = estimator().fit(X, y).decision_function(X)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(weighted.decision_function(X), expected, atol=1e-3 * scale)


@pytest.mark.parametrize("unit", [1e-60, 1e-150, 1e150])
def test_a_search_with_rbf_in_any_unit(unit):
    X, y = rows(60, 4)
    options = {"kernel": "rbf", "alphas": [1e-2], "scales": [1.0], "cv": 3}
    expected = MarginPursuitClassifierCV(**options).fit(X, y)
    model = MarginPursuitClassifierCV(**options).fit(X * unit, y)
    np.testing.assert_array_equal(model.predict(X * unit), expected.predict(X))
    with pytest.raises(OverflowError, match="distances between rows are zero"):
        MarginPursuitClassifierCV(**options).fit(X * 1e-200, y)


@pytest.mark.parametrize("unit", [1e-150, 1e150])
def test_a_search_on_sparse_rows_in_any_unit(unit):
    X, y = rows(60, 4)
    X = sparse.csr_array(X)
    options = {"alphas": [1e-2], "scales": [1.0], "cv": 3}
    expected = MarginPursuitClassifierCV(**options).fit(X, y)
    model = MarginPursuitClassifierCV(**options).fit(X * unit, y)
    np.testing.assert_array_equal(model.predict(X * unit), expected.predict(X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_offset_that_hides_the_columns_is_reported(estimator):
    X, y = rows(60, 4)
    also = nullcontext()
    if estimator is classifiers.LDMClassifier:
        also = pytest.raises(OverflowError, match="lost in rounding")
    elif estimator is classifiers.ODMClassifier:
        also = pytest.warns(ConvergenceWarning, match="Standardise the columns")
    message = r"columns 0, 1, 2, 3 of X vary by less than.*Subtract"
    with pytest.warns(UserWarning, match=message), also:
        estimator().fit(X + 1e15, y)


@pytest.mark.parametrize("solver", ["newton", "dual"])
def test_a_machine_above_its_tolerance_warns(solver):
    """At an offset of 1e8 squares of the rows leave no digit of their differences."""
    X, y = rows(60, 4)
    model = classifiers.ODMClassifier(solver=solver, max_iter=200)
    with pytest.warns(ConvergenceWarning, match="above tol=1e-06"):
        model.fit(X + 1e8, y)
    assert model.duality_gap_[0] > 1e-6


@pytest.mark.parametrize("shift", [1e3, 1e6, 1e7])
def test_objective_of_sparse_rows_with_an_offset(shift):
    X, y = rows(200, 5)
    stored, parameters = sparse.csr_matrix(X + shift), OPTIONS | {"alpha_unit": "standardised"}
    model = MarginPursuitClassifier(**parameters).fit(stored, y)
    objective = Objective(Case(stored, y, None, parameters, ""), model.alpha_)
    (value,) = objective.values(model.coef_, model.intercept_)
    assert model.objective_ == pytest.approx(float(value), rel=1e-6)
    assert model.score(stored, y) > 0.9


def test_squares_of_sparse_columns_with_zeros_and_weights():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * (rng.random((300, 6)) < [0.05, 0.3, 0.9, 1.0, 1.0, 0.0])
    X[:, 4] += 1e6
    weights = rng.random(300)
    mean = rng.normal(size=6) + 1e6 * (np.arange(6) == 4)
    found = design_for(sparse.csr_matrix(X), None)._squares(weights, mean)
    np.testing.assert_allclose(found, weights @ (X - mean) ** 2, rtol=1e-12)


@pytest.mark.parametrize("solver", ["auto", "newton", "gram", "lbfgs", "steepest", "dual"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_of_zeros_have_zero_coefficients(solver, fit_intercept):
    model = MarginPursuitClassifier(solver=solver, fit_intercept=fit_intercept)
    assert not model.fit(np.zeros((10, 3)), np.arange(10) % 2).coef_.any()


WIDE = [(estimator, {}) for estimator in ESTIMATORS] + [
    (estimator, {"kernel": kernel})
    for estimator in (MarginPursuitClassifier, MarginPursuitClassifierCV)
    for kernel in ("rbf", "poly")
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("estimator", "options"), WIDE)
def test_wide_rows_beyond_the_range_of_squares(estimator, options, convert, n_classes):
    """A finite fit, or an OverflowError that says what to do."""
    X = np.random.default_rng(0).normal(size=(24, 40))
    X[:, 0] *= 1e190
    y = np.arange(24) % n_classes
    advice = "Divide"
    try:
        model = estimator(**options).fit(convert(X), y)
        assert np.all(np.isfinite(model.decision_function(convert(X))))
    except OverflowError as error:
        advice = str(error)
    assert any(word in advice for word in ("Divide", "Rescale", "Pass samples", "Set a"))
