"""Labels that are probably wrong, from probabilities of held-out rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from marginpursuit._validation import FloatArray, between

__all__ = ["LabelIssues", "label_issues"]


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """The quality of the label of each row; the names are those of cleanlab.

    Attributes
    ----------
    is_label_issue : ndarray of bool, of shape (n_samples,)
        Whether the label is probably wrong.
    label_quality : ndarray of shape (n_samples,)
        The probability of the given label, by which rows are ranked.
    given_label : ndarray of shape (n_samples,)
        The label of the data.
    predicted_label : ndarray of shape (n_samples,)
        The most probable label.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.inspection import label_issues
    >>> proba = np.array([[0.9, 0.1], [0.2, 0.8], [0.95, 0.05], [0.1, 0.9]])
    >>> found = label_issues([0, 1, 1, 1], proba, [0, 1])
    >>> found.label_quality, int(found.ranking[0])
    (array([0.9 , 0.8 , 0.05, 0.9 ]), 2)
    """

    is_label_issue: NDArray[np.bool_]
    label_quality: FloatArray
    given_label: NDArray[Any]
    predicted_label: NDArray[Any]

    @property
    def ranking(self) -> NDArray[np.intp]:
        """The rows, most suspicious first: issues by quality, then the others by quality."""
        return np.lexsort((self.label_quality, ~self.is_label_issue))

    def to_frame(self) -> Any:
        """Return the columns as a pandas frame, in the order of the rows.

        Returns
        -------
        pandas.DataFrame
            The four columns.
        """
        import pandas

        return pandas.DataFrame({name: getattr(self, name) for name in self.__dataclass_fields__})


def label_issues(
    labels: ArrayLike,
    proba: ArrayLike,
    classes: ArrayLike,
    *,
    fitted_proba: ArrayLike | None = None,
    max_ratio: float = 0.3,
) -> LabelIssues:
    """Rank rows by how suspicious their label is.

    A label is an issue if another class j is confident, more probable than every other confident
    class, and the given label is at most `max_ratio` times as probable as j. A class j is confident
    where its probability is at least the mean probability of j over the rows that are labelled j
    (confident learning, Northcutt, Jiang and Chuang 2021). The ratio keeps rows between classes
    that overlap from being flagged. :doc:`/tutorials/outliers` has the precision and recall of the
    flags, and of the rankings.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        The labels of the data.
    proba : array-like of shape (n_samples, n_classes)
        Probabilities of rows that were not used in the fit, such as `out_of_fold_proba_` of
        `MarginPursuitClassifierCV`.
    classes : array-like of shape (n_classes,)
        The class of each column of `proba`.
    fitted_proba : array-like of shape (n_samples, n_classes), optional
        Probabilities of the same rows by a fit to all of them, ``model.predict_proba(X)``. Pass
        them with two classes, where they rank wrong labels better; with many classes `proba` ranks
        them better. Where given, `label_quality` is taken from these; otherwise from `proba`.
    max_ratio : float, default=0.3
        The most that the probability of a given label may be, relative to that of the confident
        class, for the label to be an issue. A larger number flags more rows.

    Returns
    -------
    LabelIssues
        Issues, qualities, given and predicted labels.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from marginpursuit import MarginPursuitClassifierCV
    >>> from marginpursuit.inspection import label_issues
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> y[17] = 1 - y[17]
    >>> model = MarginPursuitClassifierCV().fit(X, y)
    >>> found = label_issues(
    ...     y, model.out_of_fold_proba_, model.classes_, fitted_proba=model.predict_proba(X)
    ... )
    >>> int(found.ranking[0]), bool(found.is_label_issue[17]), int(found.given_label[17])
    (17, True, 1)
    """
    given, columns = _vector("labels", labels), _vector("classes", classes)
    if len(np.unique(columns)) < len(columns):
        raise ValueError(f"classes must be distinct, one for each column; got {columns.tolist()}")
    between("max_ratio", max_ratio, 0.0, 1.0)
    probability = _checked("proba", proba, given, columns)
    fitted = probability
    if fitted_proba is not None:
        fitted = _checked("fitted_proba", fitted_proba, given, columns)
    is_given = given[:, np.newaxis] == columns
    if not np.all(is_given.any(axis=1)):
        unknown = given[~is_given.any(axis=1)][0]
        raise ValueError(f"labels must be among classes; got {unknown!r}")
    counts = np.maximum(is_given.sum(axis=0), 1)
    thresholds = np.where(is_given, probability, 0.0).sum(axis=0) / counts
    thresholds[~is_given.any(axis=0)] = np.inf  # a class without rows is never confident
    confident = np.where(probability >= thresholds, probability, -1.0)
    best = confident.argmax(axis=1)
    rows = np.arange(len(given))
    highest = confident[rows, best]
    is_issue = (highest >= 0) & ~is_given[rows, best]
    is_issue &= probability[is_given] <= max_ratio * highest
    return LabelIssues(
        is_issue,
        fitted[is_given],
        given,
        columns[probability.argmax(axis=1)],
    )


def _vector(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return an array of one dimension."""
    vector = np.asarray(values)
    if vector.ndim != 1:
        raise ValueError(
            f"{name} must be an array of one dimension, one class an entry; got "
            f"{vector.ndim} dimensions"
        )
    return vector


def _checked(name: str, proba: ArrayLike, given: NDArray[Any], columns: NDArray[Any]) -> FloatArray:
    """Return probabilities as an array with a row for each label and a column for each class."""
    if sparse.issparse(proba):
        raise TypeError(f"{name} must be a dense array; got a sparse matrix. Pass its toarray().")
    probability = np.asarray(proba, dtype=np.float64)
    if probability.shape != (len(given), len(columns)):
        raise ValueError(
            f"{name} must have a row for each of {len(given)} labels and a column for each of "
            f"{len(columns)} classes; got shape {probability.shape}"
        )
    if not np.all(np.isfinite(probability)):
        raise ValueError(f"{name} must be finite; got NaN or infinity. Hold out every row once.")
    low, high = np.min(probability, initial=0.0), np.max(probability, initial=0.0)
    if low < 0.0 or high > 1.0 + 1e-6:  # sums of probabilities are one up to rounding
        raise ValueError(
            f"{name} must be in [0, 1]; got values from {low:.3g} to {high:.3g}. Pass "
            "probabilities instead of scores."
        )
    return probability
