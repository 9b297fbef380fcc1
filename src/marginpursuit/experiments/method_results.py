"""The results of a comparison: methods on a data set, fold by fold."""

import math
import operator
from dataclasses import dataclass, field

__all__ = [
    "Checkpoint",
    "Coefficient",
    "Course",
    "Explanation",
    "Fold",
    "MethodResult",
    "SetResult",
    "SuspiciousRow",
    "wilson_interval",
]


def wilson_interval(fraction: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a probability, from a fraction of n trials.

    Parameters
    ----------
    fraction : float
        The observed fraction.
    n : float
        The number of trials.

    Returns
    -------
    tuple of two floats
        The interval.

    Examples
    --------
    >>> from marginpursuit.experiments.method_results import wilson_interval
    >>> [round(end, 3) for end in wilson_interval(0.5, 10)]
    [0.237, 0.763]
    """
    z = 1.959963984540054  # 97.5 % quantile of the normal distribution
    centre = (fraction + z * z / (2 * n)) / (1 + z * z / n)
    variance = fraction * (1 - fraction) / n + (z / (2 * n)) ** 2
    half = z / (1 + z * z / n) * math.sqrt(max(variance, 0.0))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class Fold:
    """The result of a method on one fold."""

    error: float
    log_loss: float | None  # None for methods without predict_proba
    seconds: float  # of the fit, including standardisation
    n_test: int
    scores: dict[str, float] = field(default_factory=dict)  # those that follow from neither

    def score(self, name: str) -> float | None:
        """Return a score by its name in `scoring.SCORINGS`; None if the method lacks it."""
        if name == "accuracy":
            return 1 - self.error
        if name == "neg_log_loss":
            return None if self.log_loss is None else -self.log_loss
        return self.scores.get(name)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Distribution of the held-out margins after a number of iterations."""

    steps: int
    error: float
    location: float
    density: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Course:
    """Distribution of the held-out margins over the course of training, with common bins."""

    edges: tuple[float, ...]
    level: float  # the margin level of the method
    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True, slots=True)
class MethodResult:
    """The result of a method on a data set."""

    name: str
    settings: dict[str, str]  # the parameters of the estimator
    chosen: dict[str, float]  # numbers chosen by the fit to the first fold
    folds: tuple[Fold, ...]
    calibration: tuple[tuple[float, float, int], ...] | None  # mean probability, frequency, count
    course: Course | None
    failure: str | None = None
    n_repeats: int = 1  # how often every sample is held out
    confusion: tuple[tuple[int, ...], ...] | None = None  # held-out rows: [class][predicted class]

    @property
    def error(self) -> float:
        """The error rate over all held-out samples."""
        return self._mean([fold.error for fold in self.folds])

    @property
    def error_interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval for the test error.

        It treats the held-out samples as independent trials; the dependence between folds that
        share training samples is ignored. Repetitions do not add samples.
        """
        n = sum(fold.n_test for fold in self.folds) / self.n_repeats
        return wilson_interval(self.error, n)

    @property
    def log_loss(self) -> float | None:
        """The mean log-loss of the held-out samples; None without probabilities."""
        losses = [fold.log_loss for fold in self.folds if fold.log_loss is not None]
        return self._mean(losses) if losses else None

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error Σ nᵢ |pᵢ - fᵢ| / Σ nᵢ over the bins of `calibration`.

        pᵢ is the mean probability, fᵢ the frequency and nᵢ the size of bin i.
        """
        if self.calibration is None:
            return None
        total = sum(count for _, _, count in self.calibration)
        return math.fsum(abs(p - f) * count for p, f, count in self.calibration) / total

    def scores(self, name: str) -> list[float] | None:
        """Return a score of each fold; None if a fold lacks it."""
        found = [value for fold in self.folds if (value := fold.score(name)) is not None]
        return found if found and len(found) == len(self.folds) else None

    def score(self, name: str) -> float | None:
        """Return the mean of a score over all held-out samples; None if a fold lacks it."""
        found = self.scores(name)
        return None if found is None else self._mean(found)

    @property
    def seconds(self) -> float:
        """The mean time of a fit."""
        return sum(fold.seconds for fold in self.folds) / len(self.folds)

    def _mean(self, values: list[float]) -> float:
        """Return the mean over all held-out samples of a per-fold mean."""
        sizes = [fold.n_test for fold in self.folds]
        return math.fsum(map(operator.mul, values, sizes)) / sum(sizes)


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient of a fit, in the unit of the table."""

    label: str  # the class whose score it changes
    feature: str  # the name of the feature
    change: str  # the change of the table: "+1", "missing", "= value", "word"
    effect: float  # the change of the score
    standard_error: float | None  # by the bootstrap; None without data
    importance: float | None  # |effect| times the standard deviation of the feature


@dataclass(frozen=True, slots=True)
class SuspiciousRow:
    """A row that looks mislabelled, outlying or influential."""

    row: str  # where it is: line and identifiers
    given: str  # its label
    predicted: str  # the most probable label when it is held out
    quality: float  # the probability of its label when it is held out
    distance: float  # norm of the standardised row, in medians
    influence: float | None  # change of the fit without it, in means
    is_label_issue: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a fit of one method to all rows shows."""

    method: str
    coefficients: tuple[Coefficient, ...]  # most important first
    rows: tuple[SuspiciousRow, ...]  # most suspicious first
    n_features: int
    n_label_issues: int
    n_resamples: int  # fits of the bootstrap; 0 without standard errors

    @property
    def sentence(self) -> str:
        """The three most important effects, and the number of suspicious labels, in words."""
        first = self.coefficients[:3]
        if not first:
            return ""
        several = len({part.label for part in self.coefficients}) > 1
        effects = [
            f"{part.feature} ({'raises' if part.effect > 0 else 'lowers'}"
            f"{f' {part.label}' if several else ''})"
            for part in first
        ]
        subject = "the scores depend" if several else f"the score of {first[0].label} depends"
        labels = f" Suspicious labels: {self.n_label_issues}." if self.n_label_issues else ""
        return f"{subject} most on {', '.join(effects)}.{labels}"


@dataclass(frozen=True, slots=True)
class SetResult:
    """The results of all methods on a data set."""

    name: str
    description: str
    n_rows: int
    n_columns: int
    classes: tuple[str, ...]
    standardised: bool
    sha256: str
    methods: tuple[MethodResult, ...]
    scoring: str = "accuracy"  # the score that ranks the methods
    baseline: str | None = None  # the method that the others are compared with
    columns: tuple[str, ...] = ()  # what the table step decided about each column
    explanation: Explanation | None = None  # of the method of this library that ranks best
    majority_error: float | None = None  # of always predicting the most frequent class

    @property
    def why(self) -> str:
        """Why the scores differ, if the description starts with it, and what predictions use."""
        first = self.description.partition(". ")[0].rstrip(".")
        told = first.removeprefix("Why: ") if first.startswith("Why: ") else ""
        found = "" if self.explanation is None else self.explanation.sentence.rstrip(".")
        reasons = "; ".join(filter(None, (told, found)))
        return f"Why: {reasons}." if reasons else ""
