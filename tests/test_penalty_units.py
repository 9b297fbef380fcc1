"""The unit "inflated" of the penalty, against sums written out, and where it is used."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.datasets import load_breast_cancer

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.blocks import Blocks
from marginpursuit.design import MemoryDesign, design_for
from marginpursuit.design._matrix import ReadPolicy
from marginpursuit.solvers import penalty_weights

RNG = np.random.default_rng(5)
N_ROWS, N_COLUMNS = 60, 7
X = RNG.normal(size=(N_ROWS, N_COLUMNS)) ** 3
X[:, 2] = 0.0
X[3:5, 2] = 2.0  # two rows have this column
X[:, 4] = 7.0
Y = (X[:, 0] + RNG.normal(size=N_ROWS) > 0).astype(int)
SETTINGS = {"alpha": 0.02, "leverage_bound": None, "probability": None, "tol": 1e-10}


def kurtosis_by_hand(rows, weights):
    z = rows - weights @ rows
    second, fourth = weights @ z**2, weights @ z**4
    return np.where(second > 1e-12, fourth / np.where(second > 1e-12, second, 1.0) ** 2, 1.0)


def elsewhere(rows):
    strict = pytest.importorskip("array_api_strict")
    return strict.asarray(np.array(rows), device=strict.Device("device1"))


@pytest.mark.parametrize(
    "kind",
    [np.asarray, sparse.csr_matrix, elsewhere, lambda x: Blocks([lambda: x[:9], lambda: x[9:]])],
    ids=["dense", "sparse", "elsewhere", "blocks"],
)
def test_kurtosis(kind):
    weights = RNG.random(N_ROWS) * (RNG.random(N_ROWS) < 0.8)
    weights /= weights.sum()
    with design_for(kind(X)) as design:
        placed = design.to_device(weights)
        standardisation = design.standardisation(placed, centred=True)
        before = design.n_passes
        found = design.kurtosis(placed, standardisation)
        assert design.n_passes == before + 1
    assert_allclose(found, kurtosis_by_hand(X, weights), rtol=1e-9)


def test_rows_without_weight_are_not_read():
    rows, weights = X.copy(), np.full(N_ROWS, 1 / (N_ROWS - 1))
    rows[0], weights[0] = 1e200, 0.0
    with design_for(rows) as design:
        found = design.kurtosis(weights, design.standardisation(weights, centred=True))
    assert_allclose(found, kurtosis_by_hand(X[1:], weights[1:]), rtol=1e-9)


@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_without_weight(order):
    rows = np.array(np.tile(X, (8, 1)), order=order)
    weights = np.where(np.arange(len(rows)) < 200, 0.0, RNG.random(len(rows)))
    weights /= weights.sum()
    rows[:200] = 1e200
    with MemoryDesign(rows, policy=ReadPolicy(block_elements=700)) as design:
        assert len(design.blocks) > 3
        found = design.kurtosis(weights, design.standardisation(weights, centred=True))
    assert_allclose(found, kurtosis_by_hand(rows[200:], weights[200:]), rtol=1e-9)


def test_the_variance_of_a_column_of_two_rows_counts_six_times():
    kurtosis = kurtosis_by_hand(X, np.full(N_ROWS, 1 / N_ROWS))
    assert (kurtosis[2] - 1) / N_ROWS == pytest.approx(1 / 2, abs=0.05)
    inflation = 1 + 10 * (kurtosis - 1) / N_ROWS
    varies = np.arange(N_COLUMNS) != 4
    unit = penalty_weights("inflated", 1.0 * varies, 1.0 * varies[None], inflation=inflation)[0]
    assert_allclose(unit[varies], 6 * inflation[varies])


def test_the_fit_is_that_of_rescaled_columns():
    model = MarginPursuitClassifier(**SETTINGS).fit(X, Y)
    weights = np.full(N_ROWS, 1 / N_ROWS)
    inflation = 1 + 10 * (kurtosis_by_hand(X, weights) - 1) / N_ROWS
    deviation = X.std(axis=0)
    varies = deviation > 0
    factors = np.zeros(N_COLUMNS)
    factors[varies] = 1 / (deviation[varies] * np.sqrt(inflation[varies]))
    settings = SETTINGS | {"alpha": 6 * SETTINGS["alpha"], "alpha_unit": "absolute"}
    reference = MarginPursuitClassifier(**settings).fit(X * factors, Y)
    assert_allclose(model.coef_, reference.coef_ * factors, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("solver", ["newton", "gram", "lbfgs", "dual", "steepest"])
def test_solvers_agree(solver):
    settings = {"alpha_unit": "inflated", **SETTINGS, "max_iter": 20_000}
    expected = MarginPursuitClassifier(solver="gram", **settings).fit(X, Y)
    found = MarginPursuitClassifier(solver=solver, **settings).fit(X, Y)
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-6)


def test_whole_weights_are_copies():
    counts = RNG.integers(1, 4, N_ROWS)
    weighted = MarginPursuitClassifier(**SETTINGS).fit(X, Y, counts)
    copies = MarginPursuitClassifier(**SETTINGS).fit(
        np.repeat(X, counts, axis=0), np.repeat(Y, counts)
    )
    assert_allclose(weighted.coef_, copies.coef_, rtol=1e-5, atol=1e-8)


def test_auto_is_inflated_with_few_rows_per_column():
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = rows[:, :10]
    for n_rows, unit in ((319, "inflated"), (320, "standardised")):
        part = rows[:n_rows], labels[:n_rows]
        found = MarginPursuitClassifier(**SETTINGS).fit(*part)
        expected = MarginPursuitClassifier(alpha_unit=unit, **SETTINGS).fit(*part)
        assert_allclose(found.coef_, expected.coef_, rtol=1e-12)
        search = MarginPursuitClassifierCV(scales=[1.0], overconfidences=[0.0], alphas=[0.01], cv=2)
        assert search.fit(*part).alpha_unit_ == unit


def test_far_rows_leave_the_unit_finite():
    rows = X.copy()
    rows[0] *= 1e60
    model = MarginPursuitClassifier(alpha=0.02).fit(rows, Y)
    assert np.all(np.isfinite(model.coef_))
    assert np.any(model.coef_ != 0)


def test_rows_far_away_do_not_inflate_variances():
    """One row in twenty at any distance changes the fitted direction alike."""
    rows, labels = RNG.normal(size=(160, 150)), RNG.integers(0, 2, 160)
    directions = []
    for factor in (1e3, 1e6):
        far = rows.copy()
        far[::20] *= factor
        directions.append(MarginPursuitClassifier(alpha=0.02).fit(far, labels).coef_[0])
    near = MarginPursuitClassifier(alpha=0.02).fit(rows, labels).coef_[0]
    sizes = [np.linalg.norm(direction) for direction in (*directions, near)]
    assert_allclose(directions[0], directions[1], rtol=0.05, atol=0.01 * sizes[0])
    # Inflated by the factor 11 of a variance that one row determines, it would be a third of this.
    assert sizes[0] > 0.7 * sizes[2]
