"""The leverage bound: weights that limit the influence of rows with a large norm."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_classification
from sklearn.model_selection import (
    GridSearchCV,
    PredefinedSplit,
    StratifiedKFold,
    train_test_split,
)
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._leverage import (
    bounded_weights,
    median_distance,
    redescending_factors,
    robust_distances,
)
from marginpursuit.datasets import contaminate
from marginpursuit.design import design_for
from marginpursuit.inspection import row_leverage
from marginpursuit.tasks import Labels


def distances_by_hand(X, weights, *, centred=True):
    """Return the norms of the standardised rows, by the definition."""
    X = np.asarray(X, dtype=np.float64)
    mean = weights @ X if centred else np.zeros(X.shape[1])
    deviation = np.sqrt(weights @ (X - mean) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.linalg.norm(np.nan_to_num((X - mean) / deviation, posinf=0, neginf=0), axis=1)


def weights_by_hand(distances, y, weights, bound):
    """Return the bounded weights, for weights that are multiples of the smallest one."""
    counts = np.rint(weights / weights[weights > 0].min()).astype(int)
    repeated = np.repeat(distances, counts)
    median = np.median(repeated[repeated > 0])
    bounded = weights * np.minimum(1.0, bound * median / np.maximum(distances, 1e-300))
    for label in np.unique(y):
        bounded[y == label] *= weights[y == label].sum() / bounded[y == label].sum()
    return bounded


def found(X, y, weights, bound, *, centred=True):
    data = TrainingData(X, Labels(y, y.max() + 1), weights, float(len(y)))
    with design_for(X) as design:
        return bounded_weights(design, data, bound, centred=centred).weights


def heavy_tailed(seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(300, 4)) * [1.0, 1e-3, 50.0, 2.0] + 7.0
    counts = rng.integers(0, 3, 300).astype(float)
    return X, rng.integers(0, n_classes, 300), counts / counts.sum()


def unweighted_accuracy(model, X, y, sample_weight=None):
    """Return the accuracy without the weights that scikit-learn passes to scorers."""
    return np.mean(model.predict(X) == y)


def elsewhere(X):
    strict = pytest.importorskip("array_api_strict")
    return strict.asarray(np.array(X), device=strict.Device("device1"))


def blocks(X):
    return Blocks([lambda: X[:100], lambda: X[100:]])


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, blocks, elsewhere])
@pytest.mark.parametrize("bound", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("centred", [True, False])
def test_norms_of_dense_rows_are_those_of_standardised_columns(kind, bound, centred):
    X, y, weights = heavy_tailed(n_classes=3)
    distances = distances_by_hand(X, weights, centred=centred)
    expected = weights_by_hand(distances, y, weights, bound)
    assert_allclose(found(kind(X), y, weights, bound, centred=centred), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, lambda X: blocks(sparse.csr_matrix(X))])
def test_norms_of_sparse_rows_are_not_standardised(kind):
    X, y, weights = heavy_tailed()
    X = np.where(np.abs(X - 7.0) > 1.0, X, 0.0)
    expected = weights_by_hand(np.linalg.norm(X, axis=1), y, weights, 1.0)
    assert_allclose(found(kind(X), y, weights, 1.0), expected, rtol=1e-10)


def test_distances_of_sparse_rows_from_the_mean():
    X, _, weights = heavy_tailed()
    X = np.where(np.abs(X - 7.0) > 1.0, X, 0.0)
    with design_for(sparse.csr_matrix(X)) as design:
        standardisation = design.standardisation(weights, centred=True)
        assert_allclose(design.row_norms(standardisation), distances_by_hand(X, weights), rtol=1e-9)


@example(seed=987, bound=1.0, n_classes=2)
@given(seed=st.integers(0, 1000), bound=st.floats(1e-3, 1e3), n_classes=st.integers(2, 4))
def test_the_influence_of_every_row_is_bounded(seed, bound, n_classes):
    X, y, weights = heavy_tailed(seed, n_classes)
    ours = found(X, y, weights, bound)
    with design_for(X) as design:
        data = TrainingData(X, Labels(y, n_classes), weights, float(len(y)))
        is_far = robust_distances(design, data, bound, centred=True).is_far
    # Rows far away, as those of the seed 987, are measured by the means of the others.
    others = weights if is_far is None else np.where(is_far, 0.0, weights)
    distances = distances_by_hand(X, others / others.sum())
    counts = np.rint(weights / weights[weights > 0].min()).astype(int)
    limit = bound * np.median(np.repeat(distances, counts))
    for label in range(n_classes):
        own = (y == label) & (weights > 0)
        assert_allclose(ours[own].sum(), weights[own].sum(), rtol=1e-12)
        factors = ours[own] / weights[own]  # largest for the closest rows, up to the class total
        influence = factors * distances[own] / factors.max()
        assert np.all(influence <= max(limit, distances[own].min()) * (1 + 1e-9))
    assert np.all(ours[weights == 0] == 0)


def test_a_bound_above_all_norms_changes_nothing():
    X, y, weights = heavy_tailed()
    assert_array_equal(found(X, y, weights, 1e6), weights)
    with_it, without = (MarginPursuitClassifier(leverage_bound=b).fit(X, y) for b in (1e6, None))
    assert_array_equal(with_it.coef_, without.coef_)


def test_rows_of_norm_zero_keep_their_weight():
    X, y = np.ones((6, 2)), np.array([0, 1, 0, 1, 0, 1])
    equal = np.full(6, 1 / 6)
    assert_array_equal(found(X, y, equal, 1.0), equal)
    # More than half of the rows are zero: the median is that of the others.
    X = sparse.csr_matrix(np.vstack([np.zeros((4, 2)), [[3.0, 4.0], [30.0, 40.0]]]))
    weights = found(X, np.array([0, 1, 0, 1, 0, 0]), equal, 1.0)
    assert_allclose(weights[5] / weights[0], 27.5 / 50.0)
    assert_allclose(weights[4], weights[0])


def test_the_fit_uses_the_bounded_weights():
    X, y, weights = heavy_tailed(n_classes=3)
    ours = MarginPursuitClassifier(leverage_bound=1.0).fit(X, y, sample_weight=weights)
    bounded = weights_by_hand(distances_by_hand(X, weights), y, weights, 1.0)
    alpha = 0.3 / max(weights.sum(), np.count_nonzero(weights))
    plain = MarginPursuitClassifier(alpha=alpha, leverage_bound=None)
    reference = plain.fit(X, y, sample_weight=bounded)
    assert_allclose(ours.coef_, reference.coef_, rtol=2e-3, atol=1e-6 * abs(ours.coef_).max())
    assert ours.n_passes_ > reference.n_passes_  # the distances take passes


def test_the_search_equals_a_grid_search_with_these_weights():
    """The fits are weighted, the scores are not."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:200], y[:200]
    cv = StratifiedKFold(4, shuffle=True, random_state=0)
    grid = {"alpha": [1e-1, 1e-3], "overconfidence": [0.0, 1.0], "scale": [2.0, 0.5]}
    ours = MarginPursuitClassifierCV(
        **{f"{name}s": values for name, values in grid.items()},
        cv=cv,
        threshold="zero",
        alpha_unit="standardised",
        tol=1e-9,
    ).fit(X, y)
    equal = np.full(200, 1 / 200)
    weights = weights_by_hand(distances_by_hand(X, equal), y, equal, 1.0)
    model = MarginPursuitClassifier(
        alpha_unit="standardised", leverage_bound=None, probability=None, tol=1e-9
    )
    reference = GridSearchCV(model, grid, cv=cv, scoring=unweighted_accuracy).fit(
        X, y, sample_weight=weights
    )
    assert_allclose(
        ours.cv_results_["mean_test_score"], reference.cv_results_["mean_test_score"], rtol=1e-12
    )
    assert ours.best_params_ == reference.best_params_
    assert ours.best_estimator_.leverage_bound == 1.0


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_leverage_outliers_cost_little(convert):
    """Test errors in per cent; 5 % of the training rows are scaled by ten and mislabelled."""
    errors = []
    for seed in range(4):
        X, y = make_classification(6000, 10, n_informative=6, flip_y=0.05, random_state=seed)
        X, X_test, y, y_test = train_test_split(X, y, random_state=0, train_size=2000)
        corrupted = contaminate(X, y, leverage=0.05, factor=10.0, random_state=0)
        models = [
            MarginPursuitClassifierCV(cv=3, leverage_bound=bound, threshold="zero").fit(
                convert(rows), labels
            )
            for rows, labels in ((X, y), (corrupted.X, corrupted.y))
            for bound in (None, 1.0)
        ]
        errors.append([100 * (1 - model.score(convert(X_test), y_test)) for model in models])
    clean, clean_bounded, leverage, leverage_bounded = np.mean(errors, axis=0)
    assert clean_bounded < clean + 0.4
    assert leverage > clean + 1.2
    assert leverage_bounded < clean + 0.8


def test_the_largest_norms_that_the_bound_withstands():
    """5 % mislabelled rows, which set neither the weights nor the unit of the penalties."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    y = (X[:, 0] + 0.5 * rng.normal(size=2000) > 0).astype(int)

    def correct(factor, bound=1.0):
        rows, labels = X.copy(), y.copy()
        rows[:100] *= factor
        labels[:100] = 1 - y[:100]
        model = MarginPursuitClassifierCV(cv=3, leverage_bound=bound).fit(rows, labels)
        return model.score(X[1000:], y[1000:])

    assert correct(1e3) > correct(1.0) - 0.02
    assert correct(1e3, bound=None) < 0.6
    assert correct(1e4) > correct(1.0) - 0.02
    assert correct(1e6) > correct(1.0) - 0.02


def test_a_class_with_larger_variance_keeps_its_weight():
    rng = np.random.default_rng(0)
    y = (rng.random(8000) < 0.3).astype(int)
    X = rng.normal(size=(8000, 20)) * np.where(y, 3.0, 1.0)[:, np.newaxis]
    X[:, :5] += y[:, np.newaxis]
    errors = [
        1.0
        - MarginPursuitClassifierCV(cv=3, leverage_bound=bound)
        .fit(X[::2], y[::2])
        .score(X[1::2], y[1::2])
        for bound in (None, 1.0)
    ]
    assert errors[1] < errors[0] + 0.005


@pytest.mark.parametrize("factor", [1e-160, 1e160])
def test_columns_of_any_unit(factor):
    X, y, _ = heavy_tailed()
    ours, expected = (
        MarginPursuitClassifier(leverage_bound=1.0).fit(rows, y) for rows in (X * factor, X)
    )
    assert_array_equal(ours.predict(X * factor), expected.predict(X))


@pytest.mark.parametrize("factor", [1e-170, 1e170])
def test_norms_of_sparse_rows_depend_on_the_unit(factor):
    """Columns that are rescaled one by one would change the norms."""
    X, y, _ = heavy_tailed()
    scaled = sparse.csr_matrix(X * factor)
    with pytest.raises(OverflowError, match=r"leverage_bound=1\.0 depends on the unit"):
        MarginPursuitClassifier(leverage_bound=1.0, alpha_unit="standardised").fit(scaled, y)
    # The default penalty permits one factor for all columns, which leaves the ratios of norms.
    ours, expected = (MarginPursuitClassifier().fit(s, y) for s in (scaled, sparse.csr_matrix(X)))
    assert_array_equal(ours.predict(scaled), expected.predict(X))


def test_missing_values_are_found():
    X, y, _ = heavy_tailed()
    X[3, 1] = np.nan
    for rows in (X, sparse.csr_matrix(X)):
        with pytest.raises(ValueError, match="NaN"):
            MarginPursuitClassifier(leverage_bound=1.0).fit(rows, y)


@pytest.mark.parametrize("bound", [0, -1.0, np.inf, np.nan, "auto", True])
@pytest.mark.parametrize("model", [MarginPursuitClassifier, MarginPursuitClassifierCV])
def test_bounds_that_are_refused(model, bound):
    X, y, _ = heavy_tailed()
    with pytest.raises(ValueError, match="leverage_bound must be a number that is positive and"):
        model(leverage_bound=bound).fit(X, y)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_a_stream_bounds_later_rows_by_the_median_of_the_first(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5))
    y = (X[:, 0] + 0.3 * rng.normal(size=4000) > 0).astype(int)
    X[2000::20], y[2000::20] = [0.0, 30.0, 0.0, 0.0, 0.0], 1  # after the first rows

    def slant(bound):
        """The coefficient of the leverage rows' column, relative to that of the labels' column."""
        model = MarginPursuitClassifier(leverage_bound=bound)
        for first in range(0, 4000, 1000):
            rows = slice(first, first + 1000)
            model.partial_fit(make(X[rows]), y[rows], classes=[0, 1])
        return abs(model.coef_[0, 1] / model.coef_[0, 0])

    assert slant(1.0) < 0.5 * slant(None)


class TestRowsFarAway:
    """Rows of any leverage, with wrong labels, set neither the centre nor the unit of columns."""

    @staticmethod
    def rows(factor, n_rows, n_columns, n_classes=2):
        rng = np.random.default_rng(0)
        X, X_test = rng.normal(size=(n_rows, n_columns)), rng.normal(size=(2000, n_columns))
        true = rng.normal(size=n_columns)
        y, y_test = ((rows @ true > 0).astype(int) for rows in (X, X_test))
        if n_classes == 3:
            y, y_test = y + (X[:, 0] > 0.7), y_test + (X_test[:, 0] > 0.7)
        X[: n_rows // 20] *= factor
        y[: n_rows // 20] = n_classes - 1 - y[: n_rows // 20]
        return X, y, X_test, y_test

    @pytest.mark.parametrize("n_classes", [2, 3])
    @pytest.mark.parametrize("shape", [(400, 5), (900, 130), (160, 150)])  # newton, gram, dual
    def test_the_error_does_not_depend_on_their_distance(self, shape, n_classes):
        errors = []
        # The joint problem of several classes is solved with a warning at 1e8.
        for factor in (1.0, 1e2, 1e4, 1e8)[: 4 if n_classes == 2 else 3]:
            X, y, X_test, y_test = self.rows(factor, *shape, n_classes)
            errors.append(1.0 - MarginPursuitClassifier().fit(X, y).score(X_test, y_test))
        assert max(errors[1:]) <= errors[0] + 0.02
        assert_allclose(errors[-2], errors[-1], atol=0.015)

    def test_in_blocks_the_fit_is_the_same(self):
        X, y, _, _ = self.rows(1e4, 200, 5)
        whole = MarginPursuitClassifier(tol=1e-6).fit(X, y)
        parts = MarginPursuitClassifier(tol=1e-6).fit(Blocks([lambda: X[:90], lambda: X[90:]]), y)
        assert_allclose(parts.coef_, whole.coef_, rtol=1e-4, atol=1e-6)

    def test_ordinary_rows_take_no_second_measurement(self):
        X, y, weights = heavy_tailed()
        data = TrainingData(X, Labels(y, 2), weights, float(len(y)))
        with design_for(X) as design:
            assert bounded_weights(design, data, 1.0, centred=True).variance_weights is None
            assert design.n_passes == 3

    def test_weights_by_hand(self):
        """Distances by the rows that are not far away; far rows decrease with 1/r² in variances."""
        X, y = np.random.default_rng(4).normal(size=(40, 3)), np.arange(40) % 2
        X[[3, 20]] *= 1e4
        weights = np.full(40, 1 / 40)
        data = TrainingData(X, Labels(y, 2), weights, 40.0)
        with design_for(X) as design:
            bounded = bounded_weights(design, data, 0.8, centred=True)
        others = ~np.isin(np.arange(40), [3, 20])
        mean, deviation = X[others].mean(axis=0), X[others].std(axis=0)
        distances = np.linalg.norm((X - mean) / deviation, axis=1)
        assert_allclose(bounded.weights, weights_by_hand(distances, y, weights, 0.8), rtol=1e-9)
        factors = np.where(others, 1.0, 0.8 * np.median(distances) / distances)
        expected = bounded.weights * factors
        assert_allclose(bounded.variance_weights, expected / expected.sum(), rtol=1e-9)

    @pytest.mark.parametrize("factor", [1e4, 1e6])
    @pytest.mark.parametrize("kind", ["one direction", "hidden"])
    def test_rows_that_are_hard_to_find(self, factor, kind):
        rng = np.random.default_rng(1)
        X, y = 2.0 + rng.random(size=(400, 5)), np.arange(400) % 2
        if kind == "one direction":  # at 19 times the distance of the others
            X[:20] *= factor
        else:  # some are nearer than others by a factor of 1,000
            X[:20] = factor * rng.normal(size=(20, 5))
            X[:5] *= 1e3
        data = TrainingData(X, Labels(y, 2), np.full(400, 1 / 400), 400.0)
        with design_for(X) as design:
            bounded = bounded_weights(design, data, 1.0, centred=True)
        assert np.all(bounded.weights[:20] < 100.0 / factor * bounded.weights[20:].max())
        deviation = np.sqrt(bounded.variance_weights @ (X - X[20:].mean(axis=0)) ** 2)
        assert np.all(deviation < 3 * X[20:].std(axis=0))

    def test_many_rows_far_away_are_no_outliers(self):
        X, y = np.random.default_rng(1).normal(size=(400, 5)), np.arange(400) % 2
        X[:120] *= 1e4
        data = TrainingData(X, Labels(y, 2), np.full(400, 1 / 400), 400.0)
        with design_for(X) as design:
            assert bounded_weights(design, data, 1.0, centred=True).variance_weights is None

    @pytest.mark.parametrize("n_far", [0, 250])
    def test_the_rows_of_a_rare_category(self, n_far):
        """They are no outliers, and outliers next to them are found."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(5000, 4)), rng.integers(0, 2, 5000)
        X[:, 3] = np.arange(5000) < 1
        X[1 : 1 + n_far, :3] *= 1e6
        data = TrainingData(X, Labels(y, 2), np.full(5000, 2e-4), 5000.0)
        with design_for(X) as design:
            bounded = bounded_weights(design, data, 1.0, centred=True)
            assert design.n_passes <= 12
        if n_far:
            assert bounded.variance_weights is not None
            assert bounded.weights[0] > 0.1 * bounded.weights.max()
            assert bounded.weights[1:251].max() < 1e-3 * bounded.weights.max()
            return
        assert bounded.variance_weights is None
        expected = weights_by_hand(distances_by_hand(X, data.weights), y, data.weights, 1.0)
        assert_allclose(bounded.weights, expected, rtol=1e-9)

    @pytest.mark.parametrize("data", [load_digits, load_breast_cancer])
    @pytest.mark.parametrize("is_raw", [False, True])
    def test_tables_with_rare_values_and_long_tails(self, data, is_raw):
        """Of 5 % mislabelled rows in another unit; columns of digits are zero in most rows."""
        X, y = data(return_X_y=True)
        X, X_test, y, y_test = train_test_split(X, y, random_state=1, stratify=y)
        if not is_raw:
            scaler = StandardScaler().fit(X)
            X, X_test = scaler.transform(X), scaler.transform(X_test)
        bad = contaminate(X, y, leverage=0.05, factor=1e4, random_state=1)
        clean, contaminated = (
            MarginPursuitClassifier().fit(*rows).score(X_test, y_test)
            for rows in ((X, y), (bad.X, bad.y))
        )
        assert contaminated > clean - 0.025

    def test_one_row_of_a_small_table(self):
        """Tables of this size are fitted in one compiled call, but not with rows far away."""
        X, y = load_iris(return_X_y=True)
        clean = MarginPursuitClassifier().fit(X, y).score(X, y)
        bad, labels = X.copy(), y.copy()
        bad[7], labels[7] = 1e6 * bad[7], 2
        model = MarginPursuitClassifier().fit(bad, labels)
        assert model.score(np.delete(X, 7, axis=0), np.delete(y, 7)) > clean - 0.02


@pytest.mark.parametrize("n_rows", [100_000, 100_001])
@pytest.mark.parametrize("kind", ["random", "ascending", "two values", "alternating"])
def test_the_median_of_many_distances(n_rows, kind):
    """Where some of them say little about the quantiles of all, too."""
    distances = np.random.default_rng(100).random(n_rows)
    if kind == "ascending":
        distances.sort()
    if kind == "two values":
        distances = 1.0 + (distances > 0.6)
    if kind == "alternating":  # those at equal steps are the largest
        distances[:: n_rows >> 10] += 1.0
    data = TrainingData(None, None, np.full(n_rows, 1.0 / n_rows), float(n_rows))
    assert median_distance(distances, data) == np.median(distances)


@pytest.mark.parametrize("density", [0.05, 0.2, 0.48, 0.9])
def test_a_column_of_mostly_zeros_has_no_rows_far_away(density):
    """The mean is about zero, so that rows of zeros are near, and all others many times as far."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    x = rng.normal(size=200) + 0.5 * y
    x = np.where(rng.random(200) < density, x - x.mean(), 0.0)[:, np.newaxis]
    model = MarginPursuitClassifier().fit(x, y)
    assert np.all(np.isfinite(model.coef_))
    assert model.coef_[0, 0] > 0


def training_data(X, y):
    return TrainingData(X, Labels(y, y.max() + 1), np.full(len(y), 1.0 / len(y)), float(len(y)))


class TestRedescendingFactors:
    def test_factors_by_hand(self):
        distances = np.r_[np.ones(35), 0.0, 4.0, 10.0, 20.0, 1e60]
        data = training_data(distances[:, np.newaxis], np.arange(40) % 2)  # all medians are 1
        expected = np.r_[np.ones(37), 0.5**32, 0.25**32, 1e-96]
        for bound in (1.0, 0.1):
            assert_allclose(redescending_factors(data, distances, bound), expected)
        expected = np.r_[np.ones(38), 0.5**32, 1e-96]  # the limit is twice as far
        assert_allclose(redescending_factors(data, distances, 2.0), expected)

    def test_the_bulk_of_the_rows_counts(self):
        """Where most rows are nearly equal, the median of the distances is small."""
        distances = np.r_[np.full(80, 1e-3), np.full(15, 1.0), np.full(5, 2.5)]
        data = training_data(distances[:, np.newaxis], np.arange(100) % 2)
        expected = np.r_[np.ones(95), np.full(5, (2.0 / 2.5) ** 32)]
        assert_allclose(redescending_factors(data, distances, 1.0), expected)

    def test_a_class_that_is_far_away_as_a_whole_counts(self):
        distances = np.r_[np.ones(30), np.full(10, 50.0), 1000.0]
        data = training_data(distances[:, np.newaxis], np.r_[np.zeros(30), np.ones(11)].astype(int))
        factors = redescending_factors(data, distances, 1.0)
        assert_allclose(factors[:40], 1.0)
        assert_allclose(factors[40], (5 * 50 / 1000) ** 32)

    @given(st.integers(0, 1000), st.floats(0.1, 10.0))
    def test_factors_fall_with_the_distance(self, seed, bound):
        rng = np.random.default_rng(seed)
        distances, y = np.exp(rng.normal(scale=3.0, size=40)), rng.integers(0, 2, 40)
        factors = redescending_factors(training_data(distances[:, np.newaxis], y), distances, bound)
        assert np.all((factors > 0) & (factors <= 1))
        near = 5 * max(1.0, bound) * np.median(distances)
        near = max(near, 2 * max(1.0, bound) * np.sort(distances)[35])
        assert_allclose(factors[distances <= near], 1.0)
        for k in (0, 1):
            order = np.argsort(distances[y == k])
            assert np.all(np.diff(factors[y == k][order]) <= 0)


def eights(seed):
    """Return standardised rows with a rare class, the digit 8: 700 to fit, and others."""
    X, y = load_digits(return_X_y=True)
    train, test = np.split(np.random.default_rng(seed).permutation(len(y)), [700])
    rows = StandardScaler().fit(X[train])
    return rows.transform(X[train]), y[train] == 8, rows.transform(X[test]), y[test] == 8


def test_a_search_with_rbf_ignores_rows_far_away():
    errors = []
    for seed in range(3):
        X, y, new, truth = eights(seed)
        bad = contaminate(X, y, leverage=0.05, random_state=seed)
        search = MarginPursuitClassifierCV(kernel="rbf", cv=3)
        clean, contaminated = search.fit(X, y).score(new, truth), search.fit(bad.X, bad.y)
        without = MarginPursuitClassifierCV(kernel="rbf", cv=3, leverage_bound=None)
        scores = clean, contaminated.score(new, truth), without.fit(bad.X, bad.y).score(new, truth)
        errors.append(1.0 - np.array(scores))
    clean, bounded, unbounded = np.mean(errors, axis=0)
    assert bounded < clean + 0.005
    assert unbounded > clean + 0.01


@pytest.mark.parametrize("weighted", [False, True])
def test_far_rows_count_less_in_the_accuracy_of_a_search(weighted):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.integers(0, 3, 300)
    X[np.arange(300), y] += 2.0
    X[::20] *= 30.0
    weights = rng.random(300) if weighted else np.ones(300)
    folds = np.arange(300) % 3
    search = MarginPursuitClassifierCV(
        kernel="rbf", gammas=[0.2], alphas=[0.01], cv=PredefinedSplit(folds), multi_class="joint"
    ).fit(X, y, weights)
    found = row_leverage(search, X, y, weights)
    limit = min(1.0, search.leverage_bound) / found.distance
    factors = found.weight / np.where(found.distance > 1.0, limit, 1.0)  # redescending ones alone
    assert np.sum(factors < 1e-3) == 15
    is_right = search.out_of_fold_scores_.argmax(axis=1) == y
    parts = [
        np.average(is_right[folds == k], weights=(weights * factors)[folds == k]) for k in range(3)
    ]
    assert_allclose(search.best_score_, np.mean(parts), rtol=1e-10)
    assert abs(search.best_score_ - np.average(is_right, weights=weights)) > 0.01


@pytest.mark.parametrize(("fraction", "bound"), [(0.4, 1.0), (0.9, 1.0), (1.0, 0.1)])
def test_rows_with_rbf_that_are_no_outliers_count(fraction, bound):
    """Most rows are equal, and the others tell the classes apart; or the bound is small."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random(400) < fraction, rng.choice([-1.0, 1.0], 400), 0.0)
    y = np.where(x != 0, x > 0, rng.integers(0, 2, 400)).astype(int)
    model = MarginPursuitClassifier(kernel="rbf", leverage_bound=bound).fit(x[:, np.newaxis], y)
    assert np.all(model.predict([[-1.0], [1.0]]) == [0, 1])


def test_scorers_have_the_weights_as_given():
    X, y, _, _ = eights(0)
    bad = contaminate(X, y, leverage=0.05, random_state=0)
    options = {"kernel": "rbf", "gammas": [0.005], "alphas": [0.01], "cv": 5}
    given = MarginPursuitClassifierCV(scoring="accuracy", **options).fit(bad.X, bad.y)
    assert_allclose(given.best_score_, np.mean((given.out_of_fold_scores_ > 0) == bad.y))
