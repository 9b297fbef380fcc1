"""Probabilities from held-out scores: the split into halves, the half fits and the fallbacks."""

import numpy as np
import pytest
from classifier_data import CANCER, IRIS, noisy
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, load_model, save_model
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._half_fits import HalfFitPolicy, HalfFits, chosen_fits
from marginpursuit.classifiers._halves import Halves
from marginpursuit.classifiers._link import FittedLink
from marginpursuit.model_files import ModelFileError

RNG = np.random.default_rng(0)


# --- the split -----------------------------------------------------------------------------------


def test_every_row_is_fitted_in_one_half_and_held_out_in_the_other():
    codes = RNG.integers(0, 3, 200)
    weights = RNG.random(200) * (RNG.random(200) > 0.2)
    halves = Halves.of((RNG.normal(size=200),), codes, weights)
    used = weights > 0
    np.testing.assert_array_equal(halves.held_out.sum(axis=0), used)
    np.testing.assert_array_equal((halves.weights > 0)[:, used], ~halves.held_out[:, used])
    assert not halves.held_out[:, ~used].any()
    np.testing.assert_allclose(halves.weights.sum(axis=1), 1.0)
    for k in range(3):
        sizes = halves.held_out[:, codes == k].sum(axis=1)
        assert abs(sizes[0] - sizes[1]) <= 1


def test_equal_rows_share_a_half_and_weights_are_copies():
    projection, codes = RNG.normal(size=40), np.arange(40) % 2
    times = RNG.integers(1, 4, 40)
    once = Halves.of((projection,), codes, times / times.sum())
    rows = RNG.permutation(np.repeat(np.arange(40), times))
    copies = Halves.of((projection[rows],), codes[rows], np.full(len(rows), 1 / len(rows)))
    np.testing.assert_array_equal(copies.held_out, once.held_out[:, rows])
    expected = (once.weights / times)[:, rows]
    np.testing.assert_allclose(copies.weights, expected, rtol=1e-12)


def test_the_second_key_decides_where_the_first_is_equal():
    codes, keys = np.repeat([0, 1], 8), np.tile(np.arange(8.0), 2)
    weights = np.full(16, 1 / 16)
    expected = Halves.of((keys,), codes, weights)
    pattern = [True, False, False, True] * 4
    np.testing.assert_array_equal(expected.held_out, [np.invert(pattern), pattern])
    for first in (np.zeros(16), keys // 4):
        found = Halves.of((first, keys), codes, weights)
        np.testing.assert_array_equal(found.held_out, expected.held_out)


def test_the_names_of_classes_do_not_change_the_split():
    codes, keys = RNG.integers(0, 3, 101), RNG.normal(size=101)
    weights = np.full(101, 1 / 101)
    found = Halves.of((keys,), np.array([2, 0, 1])[codes], weights)
    np.testing.assert_array_equal(found.held_out, Halves.of((keys,), codes, weights).held_out)


def test_a_class_with_few_distinct_rows_is_in_both_halves():
    codes = np.repeat([0, 1, 2], [20, 20, 3])
    halves = Halves.of((RNG.normal(size=43),), codes, np.full(43, 1 / 43))
    assert not halves.held_out[:, codes == 2].any()
    assert np.all(halves.weights[:, codes == 2] > 0)
    shares = [halves.weights[:, codes == k].sum(axis=1) for k in range(3)]
    np.testing.assert_allclose(shares[2], 3 / 43, rtol=1e-12)


def test_without_two_classes_of_four_distinct_rows_there_is_no_split():
    projection, codes = np.repeat(RNG.normal(size=13), 10), np.repeat([0, 1], [100, 30])
    weights = np.full(130, 1 / 130)
    assert Halves.of((projection,), codes, weights) is None
    assert Halves.of((projection,), codes, weights, min_distinct_rows=3) is not None


# --- probabilities -------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [CANCER, IRIS, noisy(300, n_classes=3)], ids=["two", "iris", "3"])
def test_probabilities_are_inside_and_agree_with_the_prediction(data):
    X, y = data
    model = MarginPursuitClassifier().fit(X, y)
    far = np.concatenate([X, 1e3 * X, -1e6 * X])
    proba = model.predict_proba(far)
    assert np.all((proba > 0) & (proba < 1))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(far))
    np.testing.assert_array_equal(model.predict_log_proba(far), np.log(proba))
    if len(model.classes_) == 2:
        order = np.argsort(model.decision_function(X))
        assert np.all(np.diff(proba[: len(X), 1][order]) >= 0)


@pytest.mark.parametrize("data", [CANCER, noisy(2000)], ids=["cancer", "noisy"])
def test_held_out_probabilities_are_about_as_good_as_those_of_logistic_regression(data):
    losses = {"held_out": 0.0, "exact": 0.0, "logistic": 0.0}
    for seed in range(3):
        X, Z, y, v = train_test_split(*data, random_state=seed, test_size=0.4)
        for name in ("held_out", "exact"):
            model = MarginPursuitClassifier(probability=name).fit(X, y)
            losses[name] += log_loss(v, model.predict_proba(Z))
        scaler = StandardScaler().fit(X)
        peer = LogisticRegression().fit(scaler.transform(X), y)
        losses["logistic"] += log_loss(v, peer.predict_proba(scaler.transform(Z)))
    assert losses["held_out"] < 1.1 * losses["logistic"]
    assert losses["held_out"] < losses["exact"]


@pytest.mark.parametrize(
    ("data", "unit"), [(CANCER, "inflated"), (IRIS, "standardised")], ids=["two", "three"]
)
def test_storage_and_weights_do_not_change_the_link(data, unit):
    X, y = data
    model = MarginPursuitClassifier(leverage_bound=None, tol=1e-10).fit(X, y)
    blocks = Blocks([lambda: X[:60], lambda: X[60:]])
    others = [
        MarginPursuitClassifier(leverage_bound=None, tol=1e-10).fit(blocks, y),
        MarginPursuitClassifier(leverage_bound=None, tol=1e-10, alpha_unit=unit).fit(
            sparse.csr_array(X), y
        ),
        MarginPursuitClassifier(leverage_bound=None, tol=1e-10).fit(
            X, y, np.full(len(y), 1 / len(y))
        ),
        MarginPursuitClassifier(leverage_bound=None, tol=1e-10, n_threads=1).fit(X, y),
    ]
    for other in others:
        np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X), atol=2e-3)
    weights = RNG.integers(1, 4, len(y))
    weighted = MarginPursuitClassifier(leverage_bound=None, tol=1e-10).fit(X, y, weights)
    repeated = MarginPursuitClassifier(leverage_bound=None, tol=1e-10).fit(
        np.repeat(X, weights, axis=0), np.repeat(y, weights)
    )
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=2e-3)


def test_sparse_wide_rows_by_dual_passes():
    X = sparse.random(1100, 1500, 0.01, format="csr", random_state=0)
    y = X[:, :700].sum(axis=1).A1 + 0.1 * RNG.normal(size=1100) > X.sum(axis=1).A1 / 2
    model = MarginPursuitClassifier().fit(X, y)
    assert model.link_ is not None
    # The fit to all rows separates them; the link knows what held-out rows are like.
    proba = model.predict_proba(X)
    assert model.score(X, y) > 0.95
    assert np.mean(proba.max(axis=1)) < model.score(X, y)
    # Half fits in a thread of their own are the same, and their passes are counted.
    one, two = (MarginPursuitClassifier(n_threads=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(two.coef_, one.coef_)
    np.testing.assert_array_equal(two.link_.slopes, one.link_.slopes)
    alone = MarginPursuitClassifier(probability=None).fit(X, y)
    assert one.n_passes_ == two.n_passes_ > alone.n_passes_


def test_half_fits_cost_about_one_fit():
    for X, y in (CANCER, IRIS, noisy(5000)):
        alone = MarginPursuitClassifier(probability=None).fit(X, y)
        model = MarginPursuitClassifier().fit(X, y)
        np.testing.assert_array_equal(model.coef_, alone.coef_)
        assert model.n_passes_ <= 2.2 * alone.n_passes_ + 3


# --- other values, fallbacks and files -----------------------------------------------------------


def test_without_probabilities_there_is_no_method():
    model = MarginPursuitClassifier(probability=None).fit(*CANCER)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "predict_log_proba")
    assert not hasattr(model, "link_")
    with pytest.raises(AttributeError):
        model.predict_proba(CANCER[0])


@pytest.mark.parametrize("solver", ["steepest", "stochastic"])
def test_solvers_of_the_paper_take_the_exact_link(solver):
    X = StandardScaler().fit_transform(CANCER[0])
    model = MarginPursuitClassifier(solver=solver, max_iter=3000, random_state=0)
    exact = MarginPursuitClassifier(**model.get_params() | {"probability": "exact"})
    assert model.fit(X, CANCER[1]).link_ is None
    exact.fit(X, CANCER[1])
    np.testing.assert_array_equal(model.predict_proba(X), exact.predict_proba(X))


def test_too_few_distinct_rows_take_the_link_a_priori():
    X, y = np.repeat(np.arange(6.0), 5)[:, np.newaxis], np.repeat([0, 1], 15)
    model = MarginPursuitClassifier(margin=2.0).fit(X, y)
    scores = model.decision_function(X)
    np.testing.assert_array_equal(model.link_.slopes, 1.5)
    logistic, smoothing = 1 / (1 + np.exp(-1.5 * scores)), 0.25 / 30.25
    expected = (1 - smoothing) * logistic + smoothing / 2
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected)
    assert model.alpha_ == 0.3 / 30


def test_a_stream_keeps_the_link_of_its_exact_fit():
    X, y = noisy(2000)
    model = MarginPursuitClassifier().partial_fit(X[:1200], y[:1200], classes=[0, 1])
    link = model.link_
    model.partial_fit(X[1200:], y[1200:])
    assert model.link_ is link
    np.testing.assert_array_equal(
        model.predict_proba(X), link.probabilities(model.decision_function(X)[:, np.newaxis])
    )


def test_the_link_is_saved_and_checked(tmp_path):
    X, y = CANCER
    model = MarginPursuitClassifier().fit(X, y)
    again = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    for slopes in ([1.0, 2.0, 3.0], [1.0, np.nan, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0]):
        broken = type(model.link_)(1.0, np.array(slopes))
        model.link_ = broken
        with pytest.raises(ModelFileError, match="link"):
            save_model(model, tmp_path / "broken")


def test_steepest_descent_warns_of_the_distance_to_the_minimum():
    X, y = CANCER
    with pytest.warns(
        ConvergenceWarning, match=r"estimated relative suboptimality.*Set max_iter above 20"
    ):
        MarginPursuitClassifier(solver="steepest", max_iter=20).fit(X, y)


def test_the_warning_names_the_penalty_where_columns_are_as_many_as_rows():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 50)), np.arange(60) % 2
    with pytest.warns(ConvergenceWarning, match=r"60 rows, 50 columns.*set alpha='auto'"):
        MarginPursuitClassifier(alpha="negligible", scale=0.01, max_iter=2, solver="gram").fit(X, y)
    with pytest.warns(ConvergenceWarning, match="Set max_iter above 2"):
        MarginPursuitClassifier(scale=0.01, max_iter=2, solver="gram").fit(X, y)


def test_the_penalty_counts_rows():
    X, y = noisy(100)
    few, many = (MarginPursuitClassifier().fit(X, y, weights) for weights in (None, [3.0] * 100))
    assert few.alpha_ * 100 == pytest.approx(0.3) or few.alpha_ * 100 > 0.9
    assert many.alpha_ == 0.3 / 300
    np.testing.assert_array_equal(
        MarginPursuitClassifier(alpha=0.3 / 300).fit(X, y, [3.0] * 100).coef_, many.coef_
    )


# --- the choice of the penalty -------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_penalty_is_the_least_with_nearly_the_lowest_held_out_log_loss(n_classes):
    X, y = noisy(120, n_classes=n_classes)
    noise = np.random.default_rng(0).normal(size=(120, 20))
    X = StandardScaler().fit_transform(np.hstack([X, noise]))
    fixed = {"alpha_unit": "absolute", "leverage_bound": None, "tol": 1e-10}
    half = np.empty(120, dtype=int)
    for k in range(n_classes):
        rows = np.flatnonzero(y == k)
        order = np.argsort(np.linalg.norm(X[rows], axis=1))
        half[rows[order]] = np.resize([0, 1, 1, 0], len(rows))
    losses = {}
    for factor in (0.1, 0.3, 1.0, 3.0) if n_classes == 2 else (0.3, 1.0, 3.0):
        scores = np.empty((120, 1 if n_classes == 2 else n_classes))
        for k in range(2):
            own = half == k
            fit = MarginPursuitClassifier(alpha=2 * factor / 120, **fixed).fit(X[own], y[own])
            scores[~own] = fit.decision_function(X[~own]).reshape(-1, scores.shape[1])
        link, _ = FittedLink.fit(scores, y, np.ones(120), 1.0, max_rows=120)
        losses[factor] = log_loss(y, link.probabilities(scores))
    model = MarginPursuitClassifier(**fixed).fit(X, y)
    assert losses[0.3] - losses.get(0.1, np.inf) < 1 / 120
    limit = 1.005 * min(x for k, x in losses.items() if k >= 0.3)
    chosen = min(k for k, x in losses.items() if k >= 0.3 and x <= limit)
    assert model.alpha_ * 120 == pytest.approx(chosen)
    assert model.alpha_ * 120 > 0.9
    same = MarginPursuitClassifier(alpha=model.alpha_, **fixed).fit(X, y)
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-3, atol=1e-5)


def fits_with(factors, losses):
    """Return half fits that have these factors and log-losses only."""
    pairs = zip(factors, losses, strict=False)
    return [HalfFits(factor, (), loss, (np.zeros(0), np.zeros(0))) for factor, loss in pairs]


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ((0.5, 0.4, 0.3), 2),
        ((0.5, 0.301, 0.3), 1),
        ((0.301, 0.302, 0.3), 0),
        ((0.302, 0.301, 0.3), 1),
        ((0.3, 0.2, 0.4), 1),
        ((0.0, 0.0, 0.0), 0),
        ((np.inf,), 0),
    ],
)
def test_the_least_penalty_within_half_a_per_cent_is_chosen(losses, chosen):
    fits = fits_with((1.0, 3.0, 10.0), losses)
    assert chosen_fits(fits, 100.0) is fits[chosen]
    exact = chosen_fits(fits, 100.0, HalfFitPolicy(max_increase=0.0))
    assert exact is min(fits, key=lambda fit: fit.log_loss)


@pytest.mark.parametrize(
    ("losses", "n_samples", "chosen"),
    [
        ((0.29, 0.3, 0.4, 0.5), 101.0, 0),
        ((0.29, 0.3, 0.4, 0.5), 99.0, 1),
        ((0.29, 0.3, 0.2, 0.5), 1e6, 2),
        ((0.1, 0.3, 0.2, 0.5), 1e6, 2),
        ((0.4, 0.3, 0.4, 0.5), 1e6, 1),
        ((np.inf, np.inf, np.inf, np.inf), 100.0, 1),
    ],
)
def test_a_smaller_penalty_needs_a_larger_likelihood(losses, n_samples, chosen):
    fits = fits_with((1 / 3, 1.0, 3.0, 10.0), losses)
    assert chosen_fits(fits, n_samples) is fits[chosen]
    strict = HalfFitPolicy(min_likelihood_gain=np.inf)
    assert chosen_fits(fits, n_samples, strict) is fits[max(chosen, 1)]


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ((0.3, 0.302, 0.31), 1),
        ((0.3, 0.304, 0.302), 2),
        ((0.3, 0.31, 0.32), 0),
        ((0.4, 0.3, 0.4), 1),
        ((0.0, 0.0, 0.0), 2),
        ((np.inf,), 0),
    ],
)
def test_with_a_joint_loss_the_largest_within_one_per_cent(losses, chosen):
    fits = fits_with((1.0, 3.0, 10.0), losses)
    assert chosen_fits(fits, 100.0, is_joint=True) is fits[chosen]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_small_table_chooses_the_penalty_of_the_general_fit(n_classes):
    """Columns with long tails: with two classes some of these choose 0.1/n."""
    chosen = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = np.arange(150) % n_classes
        X = np.exp(rng.normal(size=(150, 8)) + np.eye(n_classes, 8)[y])
        compiled = MarginPursuitClassifier(solver="newton").fit(X, y)
        general = MarginPursuitClassifier(solver="gram").fit(X, y)
        assert compiled.alpha_ == pytest.approx(general.alpha_)
        chosen.append(compiled.alpha_ * 150)
    assert (min(chosen) < 0.2) == (n_classes == 2)


def random_rows(n_rows, n_columns):
    rng = np.random.default_rng(n_rows)
    X = rng.standard_t(4, size=(n_rows, n_columns))
    score = 2 * X @ rng.normal(size=n_columns) / np.sqrt(n_columns)
    return X, (score + rng.logistic(size=n_rows) > 0).astype(int)


@pytest.mark.parametrize(
    ("X", "y"),
    [CANCER, (CANCER[0][:150], CANCER[1][:150]), random_rows(150, 20), random_rows(90, 40)],
    ids=["cancer", "cancer150", "150x20", "90x40"],
)
def test_solvers_and_storages_choose_the_same_penalty(X, y):
    fixed = {"alpha_unit": "standardised", "leverage_bound": None}
    expected = MarginPursuitClassifier(solver="gram", **fixed).fit(X, y).alpha_
    stored = sparse.csr_array(X)
    assert MarginPursuitClassifier(solver="newton", **fixed).fit(X, y).alpha_ == expected
    assert MarginPursuitClassifier(solver="gram", **fixed).fit(stored, y).alpha_ == expected
    assert MarginPursuitClassifier(solver="gram").fit(X, y).alpha_ == pytest.approx(
        MarginPursuitClassifier(solver="newton").fit(X, y).alpha_
    )


def test_the_choice_does_not_depend_on_probabilities_or_on_the_start():
    X, y = CANCER[0][:150], CANCER[1][:150]
    model = MarginPursuitClassifier().fit(X, y)
    for probability in ("exact", None):
        other = MarginPursuitClassifier(probability=probability).fit(X, y)
        np.testing.assert_array_equal(other.coef_, model.coef_)
    warm = MarginPursuitClassifier(warm_start=True).fit(X, y)
    assert warm.fit(X, y).alpha_ == model.alpha_


def test_where_the_penalty_is_a_number_a_rule_or_a_stream_there_is_no_choice():
    X, y = noisy(150)
    assert MarginPursuitClassifier(alpha=0.5).fit(X, y).alpha_ == 0.5
    assert MarginPursuitClassifier(scale="auto").fit(X, y).alpha_ == 0.3 / 150
    assert MarginPursuitClassifier.as_published().fit(X, y).alpha_ == 1e-6
    assert MarginPursuitClassifier().partial_fit(X, y, classes=[0, 1]).alpha_ == 0.3 / 150


def test_as_published():
    model = MarginPursuitClassifier.as_published(scale=2.0, n_threads=1)
    names = ("overconfidence", "scale", "alpha", "leverage_bound", "probability", "n_threads")
    found = [model.get_params()[name] for name in names]
    assert found == [1.0, 2.0, "negligible", None, "exact", 1]
