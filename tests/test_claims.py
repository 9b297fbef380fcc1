"""The claims of the paper: which fits decide them, and the identities behind the verdicts."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from marginpursuit import MarginPursuitClassifier, PegasosClassifier
from marginpursuit.bounds import algorithm_risk_bound, estimate_constants
from marginpursuit.experiments import EXPERIMENTS, FULL, Fit, Results, Setting
from marginpursuit.experiments._fits import Sample, run_fit
from marginpursuit.experiments._learners import LEARNERS, Task
from marginpursuit.experiments.theorem import best_case, first_informative_n
from marginpursuit.location import catoni_location
from marginpursuit.losses import MarginLoss


def drawn(n=80, d=4, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    return X, np.sign(X @ random.normal(size=d) + random.normal(size=n))


def test_pegasos_of_the_experiments_projects():
    """No iterate is longer than 1/√λ, whereas those without projection are."""
    X, y = drawn()
    task = Task(X, y, 2, 0.01, 5, None)
    radius = 1 / np.sqrt(task.penalty)
    assert np.all(np.linalg.norm(LEARNERS["Pegasos"](task).coef, axis=1) < 1.000001 * radius)
    free = PegasosClassifier(
        alpha=task.penalty,
        fit_intercept=False,
        max_iter=int(task.checkpoints[-1]),
        checkpoints=task.checkpoints,
        random_state=task.random,
    ).fit(X, y)
    assert np.any(np.linalg.norm(free.coef_path_[:, 0], axis=1) > 1.5 * radius)


def test_the_penalties_of_figure_5_are_those_of_its_caption():
    figure = EXPERIMENTS["figure5"]
    expected = {"cov": 1e-5, "digit5": 1e-5, "protein": 1e-5, "sido": 1e-3, "hiva": 1e-3}
    assert {data: figure.penalty(data) for data in FULL.tabled} == expected
    for fit in figure.plan(replace(FULL, trials=1)):
        if fit.epochs == 2 * FULL.epochs:
            assert fit.penalty == expected[fit.data]


def test_figure_5_runs_every_reading_with_and_without_the_half_where_it_says_so():
    figure = EXPERIMENTS["figure5"]
    setting = Setting(("d",), ("none", "standard"), (1.0,), trials=1, epochs=3)
    own = [fit for fit in figure.plan(setting) if fit.epochs == 6]
    assert {fit.scaling for fit in own} == {"standard"}
    assert len(own) == len(set(own)) == 2 + 11 + 3
    assert {fit.rescaling for fit in own if not fit.halved} == {None, *figure.with_full_penalty}


def test_data_beside_those_of_the_paper_are_labelled_and_decide_no_verdict():
    setting = Setting(("a",), ("standard",), (1.0,), trials=2, epochs=3, additional=("b",))
    experiment = EXPERIMENTS["location"]
    rows = {
        fit: {"result": {"own_location": [fit.margin if fit.data == "a" else 0.0]}}
        for fit in experiment.plan(setting)
    }
    for fit, row in rows.items():
        row["result"]["above_level"] = [1.0 / fit.margin]
    results = Results(rows)
    verdicts = experiment.verdicts(setting, results)
    assert {verdict.verdict for verdict in verdicts} == {"holds"}
    assert all(list(verdict.evidence) == ["a"] for verdict in verdicts)
    table = experiment.tables(setting, results)[0]
    assert table.header[2:] == ("a", "b (not in the paper)")
    assert table.rows[0][2:] == ("1.00 ± 0.00", "0.00 ± 0.00")


@pytest.mark.parametrize(("level", "expected"), [(1.05, True), (0.85, False), (1.2, False)])
def test_located_means_within_a_tenth_of_the_level(level, expected):
    experiment = EXPERIMENTS["location"]
    found = experiment._is_located(np.array([level - 0.01, level + 0.01]))
    assert found.holds is expected


# The location of the margins at the minimiser --------------------------------------------------


def minimiser(X, y, margin, scale, tau=1.0):
    model = MarginPursuitClassifier.as_published(
        margin=margin, scale=scale, overconfidence=tau, fit_intercept=False, alpha=0.0, tol=1e-12
    ).fit(X, y)
    return model.coef_[0]


@pytest.mark.parametrize("margin", [0.3, 1.0, 7.0])
def test_location_at_a_large_scale_is_r_squared_times_the_level(margin):
    """est = R²γ as s → ∞, with R² the uncentred fraction explained by least squares of y on X."""
    X, y = drawn(200, 6, seed=3)
    fitted = X @ np.linalg.lstsq(X, y, rcond=None)[0]
    r_squared = fitted @ fitted / (y @ y)
    assert 0.2 < r_squared < 0.8
    errors = []
    for ratio in (10.0, 100.0):
        scale = ratio * margin
        margins = y * (X @ minimiser(X, y, margin, scale))
        errors.append(abs(catoni_location(margins, scale) / margin - r_squared))
    assert errors[1] < 1e-4
    assert errors[1] < 0.05 * errors[0]  # of order (γ/s)²


def test_mean_margin_of_least_squares_is_r_squared():
    """The identity itself: mean of y ŷ is ‖ŷ‖²/n, since y - ŷ is orthogonal to ŷ."""
    X, y = drawn(50, 3, seed=5)
    fitted = X @ np.linalg.lstsq(X, y, rcond=None)[0]
    assert np.mean(y * fitted) == pytest.approx(fitted @ fitted / len(y), rel=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.3])
def test_location_over_level_depends_on_the_ratio_of_scale_to_level(tau):
    X, y = drawn(150, 4, seed=2)
    first = minimiser(X, y, 1.0, 0.4, tau)
    assert_allclose(minimiser(X, y, 5.0, 2.0, tau), 5.0 * first, rtol=1e-5)
    value = MarginLoss(1.0, 0.4, tau).value(y * (X @ first))
    assert_allclose(MarginLoss(5.0, 2.0, tau).value(5.0 * y * (X @ first)), 25.0 * value)


def test_the_location_is_the_level_where_the_fit_is_perfect():
    X, y = drawn(60, 3, seed=1)
    X = np.column_stack([X, y])
    margins = y * (X @ minimiser(X, y, 2.0, 1.0))
    assert catoni_location(margins, 1.0) == pytest.approx(2.0, abs=1e-6)


def test_the_stored_location_and_fraction_are_those_of_the_minimiser():
    X, y = drawn(120, 4, seed=4)
    fit = Fit("none", "standard", 0, "minimiser", margin=0.5, overconfidence=0.5)
    result = run_fit(fit, Sample(X, y, X, y))
    margins = y * (X @ minimiser(X, y, 0.5, 1.0, 0.5))
    assert result["own_location"] == pytest.approx([catoni_location(margins, 1.0)], rel=1e-4)
    correct = margins[margins > 0]
    assert result["above_level"] == pytest.approx([np.mean(correct > 0.5)], rel=1e-5)


# The theorem in numbers -------------------------------------------------------------------------


def test_the_first_informative_sample_size_is_where_the_bound_stops_being_vacuous():
    X, y = drawn(2000, 3)
    constants = estimate_constants(X, y)
    first = first_informative_n(constants)
    for n, expected in ((0.98 * first, True), (1.02 * first, False)):
        bound = algorithm_risk_bound(int(n), constants=constants, iterations=10**9)
        assert bound.vacuous is expected
    assert first_informative_n(best_case(constants)) < first


def test_the_best_case_has_the_largest_curvature_that_the_moments_permit():
    X, y = drawn(500, 4)
    constants = estimate_constants(X * [1, 2, 3, 4], y)
    best = best_case(constants)
    assert best.strong_convexity == best.spectral_moment == constants.second_moment / 4
    assert best.strong_convexity > constants.strong_convexity
    with pytest.raises(ValueError, match="strong_convexity"):  # above the second moment: refused
        algorithm_risk_bound(
            constants=best, iterations=1, strong_convexity=1.1 * constants.second_moment
        )
