"""Cross-validate one method: fold results, calibration, and contaminated training rows."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from marginpursuit._validation import FloatArray, count
from marginpursuit.datasets import contaminate
from marginpursuit.experiments._margin_course import fit_standardised, margin_course
from marginpursuit.experiments.method_results import Fold, MethodResult
from marginpursuit.experiments.scoring import Predictions, all_scores
from marginpursuit.tables import counted

__all__ = [
    "Contamination",
    "Split",
    "cross_validate",
    "fitted_numbers",
    "most_folds",
    "stratified_splits",
    "vectorised_splits",
]


@dataclass(frozen=True, slots=True)
class Contamination:
    """Contamination of the training rows; held-out rows stay as they are.

    Attributes
    ----------
    kind : {"flips", "leverage"}
        Wrong labels; or wrong labels and rows multiplied by 10, relative to the column means.
    rate : float
        Fraction of the training rows.
    """

    kind: Literal["flips", "leverage"]
    rate: float = 0.05

    def __str__(self) -> str:
        name = "wrong labels" if self.kind == "flips" else "leverage outliers"
        return f"{100 * self.rate:g} % {name}"

    def apply(self, X: Any, y: NDArray[Any], seed: int) -> tuple[Any, NDArray[Any]]:
        """Return contaminated copies of training rows; sparse rows are not centred."""
        mean = 0.0 if sparse.issparse(X) else X.mean(axis=0)
        centred = X if sparse.issparse(X) else X - mean
        changed = contaminate(centred, y, random_state=seed, **{self.kind: self.rate})
        return (changed.X if sparse.issparse(X) else changed.X + mean), changed.y


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Indices of the training rows and the held-out rows, and what happens to the former.

    Attributes
    ----------
    train, test : ndarray of int
        The rows.
    seed : int
        The seed of the split.
    contamination : Contamination or None
        Contamination of the training rows.
    matrices : tuple of two matrices, or None
        Training rows and held-out rows of a mixed table, vectorised by the training rows.
    """

    train: NDArray[np.intp]
    test: NDArray[np.intp]
    seed: int = 0
    contamination: Contamination | None = None
    matrices: tuple[Any, Any] | None = None

    def training_rows(self, X: Any, y: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        """Return samples and classes of the training rows."""
        rows = X[self.train] if self.matrices is None else self.matrices[0], y[self.train]
        return rows if self.contamination is None else self.contamination.apply(*rows, self.seed)

    def test_rows(self, X: Any, y: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        """Return samples and classes of the held-out rows."""
        return X[self.test] if self.matrices is None else self.matrices[1], y[self.test]


def vectorised_splits(
    splits: Sequence[Split],
    vectoriser: Any,
    frame: Any,
    progress: Callable[[str], None] | None = None,
) -> list[Split]:
    """Fit a vectoriser to the training rows of each split, and transform both parts.

    Parameters
    ----------
    splits : sequence of Split
        The splits.
    vectoriser : TableVectoriser
        An unfitted transformer.
    frame : pandas.DataFrame
        The table.
    progress : callable, optional
        Called after each split.

    Returns
    -------
    list of Split
        The splits, with their matrices.
    """
    found = []
    for split in splits:
        fitted = clone(vectoriser)
        train = fitted.fit_transform(frame.iloc[split.train])
        with warnings.catch_warnings():
            # The table is that of the fit, whose decisions count such cells.
            warnings.filterwarnings("ignore", "column .*: no cell can be read", UserWarning)
            test = fitted.transform(frame.iloc[split.test])
        found.append(replace(split, matrices=(train, test)))
        if progress is not None:
            progress("columns")
    return found


def most_folds(y: NDArray[Any]) -> int:
    """Return the most stratified folds: the number of rows of the second largest class.

    The two largest classes thus have a row in each fold. Smaller classes may be absent from some.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Classes, of which there are at least two.

    Returns
    -------
    int
        The number of folds.

    Examples
    --------
    >>> from marginpursuit.experiments.cross_validation import most_folds
    >>> most_folds(["a"] * 20 + ["b"] * 4 + ["c"] * 2)
    4
    """
    classes, sizes = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes; got {classes.tolist()}")
    return int(np.sort(sizes)[-2])


def stratified_splits(
    y: NDArray[Any],
    *,
    groups: NDArray[Any] | None = None,
    n_folds: int = 5,
    n_repeats: int = 1,
    seed: int = 0,
    contamination: Contamination | None = None,
) -> list[Split]:
    """Split rows into stratified folds, several times.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Classes.
    groups : ndarray of shape (n_samples,), optional
        Group of each sample; a group is held out as a whole.
    n_folds : int, default=5
        Number of folds, at most `most_folds`. Each class needs two samples.
    n_repeats : int, default=1
        Number of assignments of samples to folds.
    seed : int, default=0
        Seed of the first assignment; the next have the seeds after it.
    contamination : Contamination, optional
        Contamination of the training rows.

    Returns
    -------
    list of Split
        One split for each repetition and fold.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.experiments.cross_validation import stratified_splits
    >>> splits = stratified_splits(np.repeat([0, 1], 10), n_folds=5, n_repeats=2)
    >>> len(splits), len(splits[0].test)
    (10, 4)
    """
    classes, sizes = np.unique(y, return_counts=True)
    if most_folds(y) < count("n_folds", n_folds, least=2) or sizes.min() < 2:
        rare = int(sizes.argmin() if sizes.min() < 2 else np.argsort(sizes, kind="stable")[-2])
        raise ValueError(
            f"class {classes[rare].item()!r} has {counted(sizes[rare], 'sample')}; each class "
            f"needs at least 2, and the two largest n_folds = {n_folds}. Reduce n_folds or merge "
            "classes."
        )
    splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
    seeds = range(seed, seed + count("n_repeats", n_repeats, least=1))
    with warnings.catch_warnings():
        # Folds may hold out none of a rare class.
        warnings.filterwarnings("ignore", "The least populated class in y", UserWarning)
        return [
            Split(train, test, number, contamination)
            for number in seeds
            for train, test in splitter(n_folds, shuffle=True, random_state=number).split(
                np.zeros(len(y)), y, groups
            )
        ]


def cross_validate(
    name: str,
    method: Any,
    X: Any,
    y: NDArray[Any],
    splits: Sequence[Split],
    *,
    n_repeats: int = 1,
    with_course: bool = True,
    progress: Callable[[str], None] | None = None,
) -> MethodResult:
    """Fit a method to the training rows of each split, and score the held-out rows.

    Parameters
    ----------
    name : str
        Name of the method.
    method : estimator
        An unfitted classifier.
    X : {ndarray, sparse matrix} of shape (n_samples, n_features)
        Samples. Dense columns are standardised by the training rows. Not used if the splits have
        matrices.
    y : ndarray of shape (n_samples,)
        Classes.
    splits : sequence of Split
        The splits.
    n_repeats : int, default=1
        How often the splits hold out every sample.
    with_course : bool, default=True
        Whether to store the margins during training, on the first split.
    progress : callable, optional
        Called with `name` after each fold.

    Returns
    -------
    MethodResult
        The result; if a fit fails, only the error.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import LinearSVC
    >>> from marginpursuit.experiments.cross_validation import cross_validate, stratified_splits
    >>> X, y = load_iris(return_X_y=True)
    >>> cross_validate("LinearSVC", LinearSVC(), X, y, stratified_splits(y)).error < 0.1
    True
    """
    settings = {key: repr(value) for key, value in method.get_params(deep=False).items()}
    folds: list[Fold] = []
    probabilities: list[tuple[FloatArray, NDArray[np.bool_]]] = []
    chosen: dict[str, float] = {}
    first = None  # the model of the first split
    classes = np.unique(y)
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # A fold may leave one row of a class with two.
            warnings.filterwarnings("ignore", "classes with a single sample", UserWarning)
            for split in splits:
                rows = split.training_rows(X, y)
                start = time.perf_counter()
                model = fit_standardised(clone(method), *rows)
                seconds = time.perf_counter() - start
                X_test, held_out = split.test_rows(X, y)
                predicted = Predictions.of(model, X_test)
                folds.append(_fold(all_scores(held_out, predicted), seconds, len(held_out)))
                confusion += confusion_matrix(held_out, predicted.labels, labels=classes)
                if predicted.proba is not None:
                    probabilities.append(_one_vs_rest(predicted.proba, held_out, model.classes_))
                if first is None:
                    chosen, first = fitted_numbers(model[-1]), model[-1]
                if progress is not None:
                    progress(name)
            pattern = getattr(first, "best_estimator_", method)
            course = _course(pattern, X, y, splits[0]) if with_course else None
    except Exception as failure:  # the other methods still run
        reason = f"{type(failure).__name__}: {failure}"
        return MethodResult(name, settings, chosen, (), None, None, reason, n_repeats)
    calibration = _calibration(probabilities) if probabilities else None
    return MethodResult(
        name,
        settings,
        chosen,
        tuple(folds),
        calibration,
        course,
        n_repeats=n_repeats,
        confusion=tuple(map(tuple, confusion.tolist())),
    )


def _fold(scores: dict[str, float], seconds: float, n_test: int) -> Fold:
    """Return the result of a fold; error and log-loss are stored under names of their own."""
    accuracy, loss = scores.pop("accuracy"), scores.pop("neg_log_loss", None)
    return Fold(1 - accuracy, None if loss is None else -loss, seconds, n_test, scores)


def _course(method: Any, X: Any, y: NDArray[Any], split: Split) -> Any:
    """Return the margins during training on a split."""
    return margin_course(method, *split.training_rows(X, y), *split.test_rows(X, y))


def fitted_numbers(model: Any) -> dict[str, float]:
    """Return the hyper-parameters and counts chosen by a fit, of those that the model has.

    Parameters
    ----------
    model : estimator
        A fitted classifier.

    Returns
    -------
    dict
        Numbers by name; of a vector, its largest element.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import MarginPursuitClassifierCV
    >>> from marginpursuit.experiments.cross_validation import fitted_numbers
    >>> numbers = fitted_numbers(MarginPursuitClassifierCV().fit(*load_iris(return_X_y=True)))
    >>> {"alpha", "overconfidence", "scale"} <= set(numbers)
    True
    """
    names = ("scale_", "alpha_", "overconfidence_", "n_iter_", "n_passes_")
    values = {name: getattr(model, name, None) for name in names}
    values |= getattr(model, "best_params_", {})
    numbers = ((name, np.asarray(value)) for name, value in values.items())
    return {name: float(value.max()) for name, value in numbers if value.dtype.kind in "iuf"}


def _one_vs_rest(
    proba: FloatArray, y: NDArray[Any], classes: NDArray[Any]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return probabilities and outcomes of the positive class, or of every class with several."""
    outcome = y[:, np.newaxis] == classes
    if len(classes) == 2:
        return proba[:, 1], outcome[:, 1]
    return proba.ravel(), outcome.ravel()


def _calibration(
    parts: list[tuple[FloatArray, NDArray[np.bool_]]], n_bins: int = 10
) -> tuple[tuple[float, float, int], ...]:
    """Return mean probability, frequency and count of the non-empty bins of equal width."""
    proba = np.concatenate([part[0] for part in parts])
    outcome = np.concatenate([part[1] for part in parts])
    bins = np.minimum((proba * n_bins).astype(int), n_bins - 1)
    return tuple(
        (float(proba[inside].mean()), float(outcome[inside].mean()), int(inside.sum()))
        for inside in (bins == number for number in range(n_bins))
        if inside.any()
    )
