"""Linear probes: how well a linear classifier of given features predicts given labels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

from marginpursuit._namespaces import has_real_dtype, is_device_array, to_host, to_numpy
from marginpursuit._probe_choice import Accuracies, Choice, FittedProbe, Labelled, accuracies
from marginpursuit._validation import FloatArray, count, real, refuse_lazy
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._shared import checked_matrix, refuse_missing, refuse_mixed
from marginpursuit.design import take_rows
from marginpursuit.selection import MarginPursuitClassifierCV
from marginpursuit.solvers import FOLD_SOLVERS

__all__ = ["ProbeResult", "probe"]


@dataclass(frozen=True)
class ProbeResult:
    """The accuracies of linear probes, one row for each number of training rows a class.

    Attributes
    ----------
    table : dict of str to list
        The columns of the table. `rows_per_class` is a number of draws, or "all"; `n_train` the
        training rows; `alpha` the chosen penalty, the median over draws; `top_1`, `top_5` and
        `mean_per_class` accuracies, means over draws, and `top_1_std` the standard deviation over
        draws; `rows` says which rows have these accuracies: "test", "validation", "out-of-fold", or
        "none" (one row a class without `validation` and `test`); `seconds` the time of the choice
        and the fit.
    model : MarginPursuitClassifier or MarginPursuitClassifierCV
        The classifier that is fitted to all training rows.
    alphas : ndarray of shape (n_alphas,)
        The penalties of the choice for all training rows, decreasing; those of the search where
        it made the choice.
    validation_accuracies : ndarray of shape (n_alphas,)
        The top-1 accuracy at each of them; the mean over folds. Empty after a search, whose
        `cv_results_` has the scores.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import probe
    >>> result = probe(*load_iris(return_X_y=True), alphas=[1e-2, 1e-3])
    >>> result.table["rows_per_class"], result.table["rows"]
    (['all'], ['out-of-fold'])
    >>> result.validation_accuracies.shape
    (2,)
    """

    table: dict[str, list[Any]]
    model: Any = field(repr=False)
    alphas: FloatArray = field(repr=False)
    validation_accuracies: FloatArray = field(repr=False)

    def to_frame(self) -> Any:
        """Return the table as a pandas data frame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "to_frame needs pandas, which is not installed. Run pip install pandas, or use "
                "the attribute table."
            ) from error
        return pd.DataFrame(self.table)

    def __repr__(self) -> str:
        """Return the table as text."""
        columns = {name: [_cell(name, x) for x in values] for name, values in self.table.items()}
        widths = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
        lines = ["  ".join(name.rjust(widths[name]) for name in columns)]
        for row in zip(*columns.values(), strict=True):
            lines.append("  ".join(x.rjust(widths[k]) for k, x in zip(columns, row, strict=True)))
        return "\n".join(lines)


def probe(
    X: Any,
    y: Any,
    *,
    validation: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    cv: Any = 5,
    alphas: Iterable[float] | None = None,
    shots: Sequence[int] = (),
    n_draws: int = 5,
    estimator: Any = None,
    random_state: int = 0,
) -> ProbeResult:
    """Fit a linear classifier to features, with its penalty chosen, and measure its accuracy.

    The penalty is chosen by the accuracy on `validation`, or by cross-validation. Where penalties
    are given, they are fitted from the largest to the smallest, each warm-started by the one
    before. :doc:`/tutorials/embeddings` has examples.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Features of the training rows: a NumPy array, also memory-mapped and of float16, a torch
        tensor or a sparse matrix. Arrays on a GPU stay there.
    y : array-like of shape (n_samples,)
        The class of each row.
    validation : tuple of (array-like, array-like), optional
        Features and classes by which the penalty is chosen. They are not fitted.
    test : tuple of (array-like, array-like), optional
        Features and classes on which the accuracies are measured. By default these are the rows by
        which the penalty is chosen, which favours the probe a little.
    cv : int, splitter or iterable, default=5
        How to split without `validation`, as in scikit-learn; for a split that is given pass
        :class:`~sklearn.model_selection.PredefinedSplit`. The chosen candidate is fitted to all
        rows.
    alphas : iterable of float, optional
        The penalties to choose from, in the unit of the estimator. By default, with `validation`
        those of the search; otherwise :class:`~marginpursuit.MarginPursuitClassifierCV` chooses
        scale, overconfidence and penalty.
    shots : sequence of int, default=()
        Numbers of training rows a class to draw and fit in addition to all rows.
    n_draws : int, default=5
        Draws for each number of rows.
    estimator : MarginPursuitClassifier or MarginPursuitClassifierCV, optional
        The parameters of the fits. A `MarginPursuitClassifier` has its penalty replaced by the
        chosen one; by default it has ``probability=None``. A search ignores `alphas`, and takes the
        folds of `cv`.
    random_state : int, default=0
        The seed of the draws.

    Returns
    -------
    ProbeResult
        The accuracies, which print as a table, and the classifier.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from marginpursuit import probe
    >>> X, y = load_digits(return_X_y=True)
    >>> result = probe(X[:1000], y[:1000], validation=(X[1000:1400], y[1000:1400]),
    ...                test=(X[1400:], y[1400:]), alphas=[1e-2, 1e-3, 1e-4], shots=[8], n_draws=2)
    >>> result.table["rows_per_class"], result.table["rows"]
    ([8, 'all'], ['test', 'test'])
    >>> result.table["top_1"][1] > 0.85
    True
    """
    labels = _labels("y", y)
    X = _checked_rows("X", X, labels)
    if isinstance(estimator, MarginPursuitClassifierCV) and validation is not None:
        raise ValueError(
            "estimator is a MarginPursuitClassifierCV, which splits the training rows; got "
            "validation as well. Pass cv=PredefinedSplit(...) on one array of all rows, or a "
            "MarginPursuitClassifier."
        )
    if validation is None and isinstance(cv, Integral):
        count("cv", int(cv), 2)
    count("random_state", random_state, 0)
    choice = Choice(
        _checked_part("validation", validation, X, labels),
        cv,
        None if alphas is None else _checked_alphas(alphas),
        _checked_estimator(estimator),
    )
    tested = _checked_part("test", test, X, labels)
    rows: list[dict[str, Any]] = []
    try:
        for size in _checked_shots(shots):
            draws = []
            for draw in range(count("n_draws", n_draws)):
                chosen = _draw(labels, size, np.random.default_rng([random_state, size, draw]))
                part = take_rows(X, chosen), labels[chosen]
                draws.append(_measured(choice.with_folds_of(size), part, tested))
            rows.append(_row(size, draws))
        last = _measured(choice, (X, labels), tested)
    except ValueError:
        if has_real_dtype(X):
            refuse_missing(X, "probe", None)  # names the row of X, not of a draw or a fold
        raise
    rows.append(_row("all", [last]))
    table = {name: [row[name] for row in rows] for name in rows[0]}
    fitted = last.fitted
    return ProbeResult(table, fitted.model, fitted.alphas, fitted.accuracies)


class _Measured(NamedTuple):
    """A fit to one draw of the training rows, and its accuracies."""

    fitted: FittedProbe
    n_train: int
    accuracies: Accuracies
    rows: str  # that have these accuracies
    seconds: float


def _measured(choice: Choice, train: Labelled, test: Labelled | None) -> _Measured:
    """Fit to training rows, and measure accuracies on test rows or on those of the choice."""
    start = perf_counter()
    fitted = choice.fit(*train)
    seconds = perf_counter() - start
    if test is None:
        return _Measured(fitted, len(train[1]), fitted.held_out, fitted.rows, seconds)
    found = accuracies(fitted.model, *test)
    return _Measured(fitted, len(train[1]), found, "test", seconds)


def _row(size: int | str, draws: list[_Measured]) -> dict[str, Any]:
    """Return the means over draws as a row of the table."""
    found = [draw.accuracies for draw in draws]
    top_1 = np.array([each.top_1 for each in found])
    return {
        "rows_per_class": size,
        "draws": len(draws),
        "n_train": draws[0].n_train,
        "alpha": float(np.median([draw.fitted.alpha for draw in draws])),
        "top_1": float(top_1.mean()),
        "top_1_std": float(top_1.std(ddof=1)) if len(draws) > 1 else float("nan"),
        "top_5": float(np.mean([each.top_5 for each in found])),
        "mean_per_class": float(np.mean([each.mean_per_class for each in found])),
        "rows": draws[0].rows,
        "seconds": float(np.sum([draw.seconds for draw in draws])),
    }


def _draw(labels: NDArray[Any], size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return increasing indices of `size` rows of each class."""
    classes, codes = np.unique(labels, return_inverse=True)
    sizes = np.bincount(codes)
    if sizes.min() < size:
        least = int(sizes.argmin())
        name = classes.tolist()[least]
        raise ValueError(
            f"shots has {size}; class {name!r} has {sizes[least]} training rows. Pass at most as "
            "many shots, or leave the class out."
        )
    order = np.lexsort([rng.random(len(codes)), codes])
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.sort(order[(first[:, np.newaxis] + np.arange(size)).ravel()])


def _labels(name: str, y: Any) -> NDArray[Any]:
    """Return labels as a NumPy array of one dimension."""
    refuse_mixed(name, to_host(y))
    labels = to_numpy(y) if hasattr(y, "__dlpack_device__") else np.asarray(y)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(
            f"{name} has shape {labels.shape}; expected (n_samples,), the class of each row"
        )
    try:
        np.unique(labels)
    except TypeError as error:
        raise TypeError(f"{name} must have labels of one type") from error
    return labels


def _checked_rows(name: str, X: Any, labels: NDArray[Any]) -> Any:
    """Return features as an array or matrix; refuse other shapes than a row for each label."""
    refuse_lazy(name, X)
    rows = X
    if not hasattr(X, "dtype"):  # a list or a data frame, whose missing values become NaN
        rows = check_array(checked_matrix(X), ensure_all_finite=False, ensure_2d=False)
    is_sparse = sparse.issparse(rows)
    rows = rows.tocsr() if is_sparse else rows  # other formats have no rows to take
    if len(rows.shape) != 2 or rows.shape[0] != len(labels):
        raise ValueError(
            f"{name} has shape {tuple(rows.shape)}; expected ({len(labels)}, n_features): one row "
            f"for each of the {len(labels)} labels"
        )
    return rows


def _checked_part(
    name: str, part: tuple[Any, Any] | None, X: Any, train: NDArray[Any]
) -> Labelled | None:
    """Return features and labels of other rows, with the columns and classes of the training."""
    if part is None:
        return None
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise TypeError(f"{name} must be a tuple (X, y); got {type(part).__name__}")
    labels = _labels(f"y of {name}", part[1])
    rows = _checked_rows(f"X of {name}", part[0], labels)
    if rows.shape[1] != X.shape[1]:
        raise ValueError(
            f"X of {name} has {rows.shape[1]} columns; expected {X.shape[1]}, those of X"
        )
    unknown = np.setdiff1d(labels, train)
    if len(unknown):
        raise ValueError(
            f"y of {name} has classes that y does not have: {unknown[:5].tolist()}. Leave these "
            "rows out, or add rows of these classes to X."
        )
    if is_device_array(X) != is_device_array(rows):
        raise TypeError(
            f"X is of type {type(X).__name__} and X of {name} is of type {type(rows).__name__}; "
            "put both on the same device."
        )
    return rows, labels


def _checked_alphas(alphas: Iterable[float]) -> list[float]:
    """Return penalties in a list; `alphas` is an iterable of positive numbers."""
    try:
        values = real("alphas", list(alphas))
    except TypeError as error:
        raise TypeError(f"alphas must be a list of positive numbers; got {alphas!r}") from error
    if not len(values) or not np.all((values > 0) & (values < np.inf)):
        raise ValueError(f"alphas must be positive numbers, at least one; got {values.tolist()}")
    return [float(alpha) for alpha in values]


def _checked_shots(shots: Sequence[int]) -> list[int]:
    """Return distinct numbers of rows, in order."""
    if not isinstance(shots, Iterable):
        raise TypeError(f"shots must be a list of numbers of rows a class; got {shots!r}")
    return sorted({count("shots", size) for size in shots})


def _checked_estimator(estimator: Any) -> Any:
    if isinstance(estimator, MarginPursuitClassifier):
        for name, values in (("kernel", ["linear"]), ("solver", ["auto", *FOLD_SOLVERS])):
            if getattr(estimator, name) not in values:
                raise ValueError(
                    f"estimator.{name} must be one of {values} for a path of penalties; got "
                    f"{getattr(estimator, name)!r}"
                )
    if estimator is None or isinstance(
        estimator, MarginPursuitClassifier | MarginPursuitClassifierCV
    ):
        return estimator
    raise TypeError(
        "estimator must be a MarginPursuitClassifier or a MarginPursuitClassifierCV; got "
        f"{type(estimator).__name__}"
    )


def _cell(name: str, value: Any) -> str:
    """Return a value of the table as text."""
    if not isinstance(value, float):
        return str(value)
    if np.isnan(value):
        return "-"
    return (
        f"{value:.2g}"
        if name == "alpha"
        else f"{value:.1f}"
        if name == "seconds"
        else f"{value:.4f}"
    )
