"""Paired differences of cross-validated scores, with intervals for overlapping training rows.

The scores of the folds are not independent, since their training rows overlap. The corrected
resampled t interval (Nadeau and Bengio 2003, *Inference for the generalization error*) replaces the
variance s²/k of the mean of k differences by (1/k + n_test/n_train) s².
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from marginpursuit.experiments.method_results import MethodResult, SetResult
from marginpursuit.experiments.scoring import SCORINGS, Scoring

__all__ = ["CorrectedMean", "Difference", "Recommendation", "corrected_mean", "recommend"]


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """A mean over folds, its interval and its p-value.

    Attributes
    ----------
    mean : float
        The mean.
    half_width : float
        Half of the width of its interval.
    p_value : float
        Two-sided p-value of a mean of zero.
    """

    mean: float
    half_width: float
    p_value: float

    @property
    def interval(self) -> tuple[float, float]:
        """The interval."""
        return self.mean - self.half_width, self.mean + self.half_width

    @property
    def sign(self) -> int:
        """1 or -1 if the interval lies above or below zero; 0 if it contains zero."""
        low, high = self.interval
        return int(low > 0) - int(high < 0)


def corrected_mean(
    values: Sequence[float], test_to_train: float, confidence: float = 0.95
) -> CorrectedMean:
    """Return the corrected resampled t interval of Nadeau and Bengio.

    The interval is the mean ± t s √(1/k + n_test/n_train), with k values, their standard deviation
    s, and the quantile t of Student's distribution with k - 1 degrees of freedom.

    Parameters
    ----------
    values : sequence of float
        A value per fold, such as the difference of two scores; at least 2.
    test_to_train : float
        The ratio n_test / n_train of the folds.
    confidence : float, default=0.95
        The confidence level.

    Returns
    -------
    CorrectedMean
        Mean, half width and p-value. Equal values have the half width 0.

    Examples
    --------
    >>> from marginpursuit.experiments.paired_differences import corrected_mean
    >>> found = corrected_mean([0.01, 0.02, 0.03, 0.02, 0.02], test_to_train=0.25)
    >>> round(found.mean, 4), round(found.half_width, 4), found.sign
    (0.02, 0.0132, 1)
    """
    k = len(values)
    if k < 2:
        raise ValueError(f"values must have at least 2 elements, one per fold; got {k}")
    mean = math.fsum(values) / k
    # The standard deviation of equal values is exactly 0, whatever the rounding of the mean.
    deviation = 0.0 if min(values) == max(values) else float(np.std(values, ddof=1))
    error = deviation * math.sqrt(1 / k + test_to_train)
    if error == 0:
        return CorrectedMean(mean, 0.0, 1.0 if mean == 0 else 0.0)
    half_width = float(stats.t.ppf((1 + confidence) / 2, k - 1)) * error
    return CorrectedMean(mean, half_width, float(2 * stats.t.sf(abs(mean) / error, k - 1)))


@dataclass(frozen=True, slots=True)
class Difference:
    """The score of a method minus that of the baseline, over the same folds."""

    method: str
    baseline: str
    scoring: Scoring
    score: CorrectedMean

    @property
    def verdict(self) -> str:
        """Whether the method is better or worse than the baseline, at the 95 % level."""
        return {1: "better", 0: "no difference", -1: "worse"}[self.score.sign]

    @property
    def written(self) -> str:
        """The difference and the half width of its interval, without unit."""
        return self.scoring.written_difference(self.score.mean, self.score.half_width)

    @property
    def sentence(self) -> str:
        """The difference and the verdict in words."""
        change = f"{self.written} {self.scoring.unit}"
        return f"{self.method} instead of {self.baseline}: {change}: {self.verdict}"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The method with the best score on a data set, and how it differs from the baseline.

    Attributes
    ----------
    ranking : tuple of MethodResult
        The methods without failure, best first; those that lack the score come last.
    n_rows : int
        The number of rows of the data set.
    scoring : Scoring
        The score.
    differences : dict of str to Difference
        The differences to the baseline, by method; empty without a baseline that has the score.
    majority_error : float or None, default=None
        The error of always predicting the most frequent class.
    """

    ranking: tuple[MethodResult, ...]
    n_rows: int
    scoring: Scoring
    differences: dict[str, Difference]
    majority_error: float | None = None

    @property
    def method(self) -> MethodResult | None:
        """The recommended method; None if no method has the score."""
        best = self.ranking[0] if self.ranking else None
        return best if best and best.score(self.scoring.name) is not None else None

    def interval(self, method: MethodResult) -> str:
        """Return the 95 % interval of the score of a method; empty if it lacks the score.

        The error has Wilson's interval, other scores have the corrected interval over the folds.
        """
        if self.scoring.name == "accuracy":
            low, high = method.error_interval
            return self.scoring.written_interval(1 - high, 1 - low)
        scores = method.scores(self.scoring.name)
        if scores is None:
            return ""
        return self.scoring.written_interval(
            *corrected_mean(scores, _mean_ratio(method, self.n_rows)).interval
        )

    @property
    def headline(self) -> str:
        """Which method to take, and its score; errors also with that of the most frequent class."""
        if self.method is None:
            return f"No method has a result for {self.scoring.quantity}."
        score = self.scoring.written(self.method.score(self.scoring.name) or 0.0)
        constant = ""
        if self.scoring.name == "accuracy" and self.majority_error is not None:
            constant = f" (always the most frequent class: {100 * self.majority_error:.2f} %)"
        return f"Take {self.method.name}: {self.scoring.quantity} {score}{constant}."

    @property
    def reason(self) -> str:
        """How much better than the baseline it is, and how sure that is."""
        if self.method is None or not self.differences:
            return ""
        difference = self.differences.get(self.method.name)
        if difference is None:  # it is the baseline; the next method is the closest alternative
            other = self.differences[self.ranking[1].name]
            choice = f" {other.method} may be as good." if other.verdict != "worse" else ""
            return f"{other.sentence}.{choice}"
        n = len(self.differences)
        p_value = min(1.0, n * difference.score.p_value)
        if difference.verdict != "better":
            sure = f"{difference.baseline} may be as good."
        elif n == 1:
            sure = f"p = {p_value:.1g}."
        elif p_value <= 0.05:
            sure = f"p = {p_value:.1g}, corrected for the choice among {n} methods."
        else:
            sure = (
                f"Not certain: p = {p_value:.1g} after correction for the choice among {n} methods."
            )
        return f"{difference.sentence}. {sure}"


def recommend(result: SetResult) -> Recommendation:
    """Rank the methods on a data set, and compare each with the baseline.

    Parameters
    ----------
    result : SetResult
        The results.

    Returns
    -------
    Recommendation
        Ranking and differences. Equal scores are ranked by the time of a fit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit.experiments.compare import compare, methods
    >>> from marginpursuit.experiments.paired_differences import recommend
    >>> X, y = load_iris(return_X_y=True)
    >>> chosen = methods(["LogisticRegression", "RidgeClassifier"])
    >>> found = recommend(compare(X, y, name="iris", chosen=chosen, baseline="LogisticRegression"))
    >>> found.differences["RidgeClassifier"].verdict
    'worse'
    """
    scoring = SCORINGS[result.scoring]
    done = [method for method in result.methods if not method.failure]
    ranking = sorted(done, key=lambda method: _rank(method, scoring))
    baseline = next((method for method in done if method.name == result.baseline), None)
    differences = {}
    if baseline is not None:
        found = {
            method.name: _difference(method, baseline, scoring, result.n_rows)
            for method in ranking
            if method is not baseline
        }
        differences = {name: value for name, value in found.items() if value is not None}
    return Recommendation(
        tuple(ranking), result.n_rows, scoring, differences, result.majority_error
    )


def _rank(method: MethodResult, scoring: Scoring) -> tuple[float, float]:
    score = method.score(scoring.name)
    return (math.inf if score is None else -score, method.seconds)


def _difference(
    method: MethodResult, baseline: MethodResult, scoring: Scoring, n_rows: int
) -> Difference | None:
    """Compare a method with the baseline; None if either lacks the score."""
    ours, theirs = method.scores(scoring.name), baseline.scores(scoring.name)
    if ours is None or theirs is None:
        return None
    values = [a - b for a, b in zip(ours, theirs, strict=True)]
    score = corrected_mean(values, _mean_ratio(method, n_rows))
    return Difference(method.name, baseline.name, scoring, score)


def _mean_ratio(method: MethodResult, n_rows: int) -> float:
    """Return the mean ratio of held-out rows and training rows over the folds."""
    ratios = [fold.n_test / (n_rows - fold.n_test) for fold in method.folds]
    return math.fsum(ratios) / len(ratios)
