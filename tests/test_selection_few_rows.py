"""The rule "auto" of the search: with few rows, the single fit unless another is clearly better."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, make_classification

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.selection.candidates import Candidate, FitOptions, Stopping
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.search import Search, SearchOptions


def noise(n_rows=120, n_classes=2):
    """Return rows that do not explain their class: candidates differ by chance."""
    rng = np.random.default_rng(n_rows)
    return rng.standard_normal((n_rows, 10)), np.arange(n_rows) % n_classes


def options(prior, rule="auto"):
    fits = FitOptions(1.0, "standardised", True, "auto", 1)
    return SearchOptions(
        *(fits, Stopping(100, 1e-3), False, rule, "fitted", None, False, None), prior=prior
    )


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [
        ([0.0, 0.0, 0.0, 0.0], 0),
        ([0.1, -0.1, 0.1, 0.0], 0),
        ([0.1, 0.09, 0.11, 0.1], 1),
        ([0.3, 0.0, 0.3, 0.0], 0),  # 1.7 standard errors
        ([0.3, 0.05, 0.3, 0.05], 1),  # 2.4
    ],
)
def test_another_candidate_is_better_by_two_standard_errors(gains, chosen):
    candidates = [Candidate(1e-3, 0.0, 1.0), Candidate(1e-4, 1.0, 3.0)]
    scores = np.array([[0.5, 0.6, 0.5, 0.6]] * 2)
    scores[1] += gains
    training = MarginPursuitClassifierCV()._check_training(*noise(), None)
    search = Search(training, [], None, options(candidates[0]), SelectionPolicy())
    assert search._choose(candidates, scores) == chosen
    search = Search(training, [], None, options(None), SelectionPolicy())
    assert search._choose(candidates, scores) == int(np.argmax(scores.mean(axis=1)))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_few_rows_have_the_penalty_of_the_single_fit(n_classes):
    X, y = noise(n_classes=n_classes)
    search = MarginPursuitClassifierCV(n_threads=1).fit(X, y)
    single = MarginPursuitClassifier(n_threads=1).fit(X, y)
    assert search.best_params_["overconfidence"] == 0.0
    assert search.best_params_["scale"] == 1.0
    assert abs(np.log(search.best_params_["alpha"] / single.alpha_)) < 0.2
    assert search.threshold_ == 0.0
    assert search.cv_results_["threshold"][search.best_index_] == 0.0
    # Accuracies at threshold zero, which are smoothed over thresholds for two classes.
    predicted = search.out_of_fold_scores_
    predicted = predicted > 0 if n_classes == 2 else predicted.argmax(axis=1)
    assert search.best_score_ == pytest.approx(np.mean(predicted == y), abs=0.06)
    refit = MarginPursuitClassifier(**search.best_params_, multi_class=search.multi_class_)
    assert_allclose(search.coef_, refit.fit(X, y).coef_, atol=2e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"rule": "best"},
        {"scoring": "accuracy"},
        {"scales": (0.1, 1.0)},
        {"alphas": (1e-4, 1e-2)},
        {"overconfidences": (0.0, 1.0)},
    ],
)
def test_otherwise_the_best_mean_score_is_chosen(changes):
    X, y = noise()
    search = MarginPursuitClassifierCV(n_threads=1, **changes).fit(X, y)
    means = search.cv_results_["mean_test_score"]
    assert means[search.best_index_] == means.max() == search.best_score_


def test_many_rows_have_the_best_mean_score():
    X, y = noise(SelectionPolicy().max_prior_rows + 2)
    search = MarginPursuitClassifierCV(n_threads=1, cv=2).fit(X, y)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()


def test_a_clear_gain_is_taken():
    # Wrong labels of the larger class shift the intercept; the threshold shifts it back. The gain
    # is 2.3 standard errors or more, whichever penalty the single fit has.
    X, y = make_classification(400, 5, n_informative=5, n_redundant=0, class_sep=2, random_state=1)
    y[(y == 1) & (np.random.default_rng(0).random(400) < 0.45)] = 0
    chosen = MarginPursuitClassifierCV(n_threads=1).fit(X, y)
    best = MarginPursuitClassifierCV(n_threads=1, rule="best").fit(X, y)
    assert chosen.best_params_ == best.best_params_
    assert best.best_params_["overconfidence"] != MarginPursuitClassifier().overconfidence


def test_the_choice_is_repeatable_and_survives_units():
    X, y = load_iris(return_X_y=True)
    search = MarginPursuitClassifierCV(n_threads=1).fit(X, y)
    again = MarginPursuitClassifierCV(n_threads=1).fit(1e3 * X, y)
    assert again.best_params_ == search.best_params_
    huge = MarginPursuitClassifierCV(n_threads=1).fit(1e200 * X, y)
    assert huge.best_params_ == search.best_params_
