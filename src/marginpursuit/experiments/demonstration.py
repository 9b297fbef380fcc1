"""A short demonstration: clean rows, corrupted rows and three classes."""

from collections.abc import Callable
from typing import Any, NamedTuple

from marginpursuit import datasets
from marginpursuit.experiments.compare import compare, methods
from marginpursuit.experiments.cross_validation import Contamination
from marginpursuit.experiments.method_results import SetResult
from marginpursuit.experiments.runs import Run

__all__ = ["count_fits", "demonstrate"]


def demonstrate(n_repeats: int = 3, progress: Callable[[str], None] | None = None) -> Run:
    """Compare `MarginPursuitClassifierCV` with linear methods of scikit-learn.

    The data sets are included with scikit-learn: breast_cancer, the same with 5 % corrupted
    training rows, and wine, which has three classes. All methods have their default parameters.

    Parameters
    ----------
    n_repeats : int, default=3
        Repetitions of a cross-validation with 5 folds.
    progress : callable, optional
        Called with the name of the method after each fold, `count_fits` times.

    Returns
    -------
    Run
        The results, with LogisticRegression as baseline.
    """
    sets = tuple(_compare(part, n_repeats, progress) for part in _parts())
    return Run.now("Demonstration: clean rows, corrupted rows, three classes", sets=sets)


def count_fits(n_repeats: int = 3) -> int:
    """Return the number of fits of `demonstrate`.

    Parameters
    ----------
    n_repeats : int, default=3
        Repetitions of the cross-validation.

    Returns
    -------
    int
        The number of fits.

    Examples
    --------
    >>> from marginpursuit.experiments.demonstration import count_fits
    >>> count_fits()
    225
    """
    return len(_parts()) * len(_methods()) * 5 * n_repeats


class _Part(NamedTuple):
    data: str
    contamination: Contamination | None = None


def _parts() -> tuple[_Part, ...]:
    corrupted = _Part("breast_cancer", Contamination("leverage", 0.05))
    return _Part("breast_cancer"), corrupted, _Part("wine")


def _methods() -> dict[str, Any]:
    peers = ("LogisticRegression", "LinearSVC", "RidgeClassifier", "SGDClassifier")
    return methods(["MarginPursuitClassifierCV", *peers])


def _compare(part: _Part, n_repeats: int, progress: Callable[[str], None] | None) -> SetResult:
    data = datasets.load(part.data)
    return compare(
        data.X,
        data.y,
        name=data.name,
        description=data.description,
        sha256=data.sha256,
        chosen=_methods(),
        n_folds=5,
        n_repeats=n_repeats,
        baseline="LogisticRegression",
        contamination=part.contamination,
        progress=progress,
    )
