"""Labels that are probably wrong, from probabilities of held-out rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._validation import FloatArray

__all__ = ["LabelIssues", "label_issues"]


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """The quality of the label of each row; the names are those of cleanlab.

    Attributes
    ----------
    is_label_issue : ndarray of bool, of shape (n_samples,)
        Whether the label is probably wrong.
    label_quality : ndarray of shape (n_samples,)
        The probability of the given label, for a row that was held out.
    given_label : ndarray of shape (n_samples,)
        The label of the data.
    predicted_label : ndarray of shape (n_samples,)
        The most probable label.
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


def label_issues(labels: ArrayLike, proba: ArrayLike, classes: ArrayLike) -> LabelIssues:
    """Rank rows by how suspicious their label is.

    A label is an issue if another class j is confident, and more probable than every other
    confident class: its probability is at least the mean probability of j over the rows that are
    labelled j (confident learning, Northcutt, Jiang and Chuang 2021).

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        The labels of the data.
    proba : array-like of shape (n_samples, n_classes)
        Probabilities of rows that were not used in the fit, such as `out_of_fold_proba_` of
        `MarginPursuitClassifierCV`.
    classes : array-like of shape (n_classes,)
        The class of each column of `proba`.

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
    >>> found = label_issues(y, model.out_of_fold_proba_, model.classes_)
    >>> int(found.ranking[0]), bool(found.is_label_issue[17]), int(found.given_label[17])
    (17, True, 1)
    """
    given, columns = np.asarray(labels), np.asarray(classes)
    probability = np.asarray(proba, dtype=np.float64)
    if probability.shape != (len(given), len(columns)):
        raise ValueError(
            f"proba must have a row for each of {len(given)} labels and a column for each of "
            f"{len(columns)} classes; got shape {probability.shape}"
        )
    if not np.all(np.isfinite(probability)):
        raise ValueError("proba must be finite; got NaN or infinity. Hold out every row once.")
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
    is_issue = (confident[rows, best] >= 0) & ~is_given[rows, best]
    return LabelIssues(
        is_issue,
        probability[is_given],
        given,
        columns[probability.argmax(axis=1)],
    )
