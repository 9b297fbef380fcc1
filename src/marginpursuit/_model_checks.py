"""Whether a decoded model can predict: shapes, values, kernel expansion and link."""

from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit.classifiers._shared import FittedLink, LabelLinks


def model_error(model: Any) -> str | None:
    """Return the reason why a model cannot predict; None if it can."""
    is_linear = getattr(model, "kernel", "linear") == "linear"
    names = ("classes_", "coef_" if is_linear else "dual_coef_", "intercept_")
    parts: list[Any] = [getattr(model, name, None) for name in names]
    if not all(isinstance(part, np.ndarray) for part in parts):
        return "classes, coefficients or intercept are missing"
    multilabel = getattr(model, "multilabel_", False)
    if not isinstance(multilabel, bool):
        return f"its kind of labels is {short(multilabel)}; expected true or false"
    return (
        _class_error(parts[0])
        or _shape_error(model, parts, is_multilabel=multilabel)
        or _value_error(*parts[1:])
        or (None if is_linear else _expansion_error(model, parts[1]))
        or _probability_error(model)
    )


def _class_error(classes: NDArray[Any]) -> str | None:
    if classes.ndim != 1 or len(classes) < 2 or not np.all(classes[:-1] < classes[1:]):
        return "its classes are not at least two different labels in order"
    if classes.dtype.kind == "f" and not np.all(np.isfinite(classes)):
        return "its classes are not finite"
    return None


def _shape_error(model: Any, parts: list[NDArray[Any]], *, is_multilabel: bool) -> str | None:
    """Compare the coefficients with classes and columns, or the rows of a kernel expansion."""
    classes, coef, intercept = parts
    n_columns, names = (getattr(model, x, None) for x in ("n_features_in_", "feature_names_in_"))
    n_problems = n_intercepts = 1 if len(classes) == 2 and not is_multilabel else len(classes)
    if _has_pairs(model):
        n_intercepts = len(classes) * (len(classes) - 1) // 2
    is_linear = getattr(model, "kernel", "linear") == "linear"
    expected = (n_problems, n_columns) if is_linear else (n_problems, *coef.shape[1:2])
    if type(n_columns) is not int or n_columns < 1 or coef.shape != expected or coef.ndim != 2:
        return (
            f"its coefficients have shape {coef.shape}, for {len(classes)} classes and "
            f"{n_columns!r} columns"
        )
    if intercept.shape != (n_intercepts,):
        return f"its intercept has shape {intercept.shape}"
    if names is not None and (not isinstance(names, np.ndarray) or names.shape != (n_columns,)):
        return "its feature names do not suit its columns"
    return None


def _value_error(coef: NDArray[Any], intercept: NDArray[Any]) -> str | None:
    if any(part.dtype.kind != "f" or part.dtype.itemsize > 8 for part in (coef, intercept)):
        return "its coefficients are not floats"
    if not (np.all(np.isfinite(coef)) and np.all(np.isfinite(intercept))):
        return "its coefficients are not finite"
    return None


def _has_pairs(model: Any) -> bool:
    """Whether a model says that it was fitted one class against one."""
    multi_class = getattr(model, "multi_class_", None)
    return isinstance(multi_class, str) and multi_class == "ovo"


def _expansion_error(model: Any, coef: NDArray[Any]) -> str | None:
    """Return the reason why a kernel expansion cannot be evaluated; None if it can."""
    if _has_pairs(model):
        counts: Any = getattr(model, "n_support_", None)
        is_right = isinstance(counts, np.ndarray) and counts.shape == model.classes_.shape
        is_right = is_right and counts.dtype.kind == "i" and bool(np.all(counts >= 0))
        if not is_right or int(counts.sum()) != coef.shape[1]:
            return "it lacks the number of rows of each class in its expansion"
    if model.kernel == "precomputed":
        return _support_error(getattr(model, "support_", None), coef.shape[1], model.n_features_in_)
    rows: Any = getattr(model, "support_vectors_", None)
    shape = (coef.shape[1], model.n_features_in_)
    is_matrix = isinstance(rows, np.ndarray) or sparse.issparse(rows)
    if not is_matrix or rows.shape != shape or rows.dtype.kind not in "biuf":
        return f"it does not have the {shape[0]} rows of {shape[1]} columns of its expansion"
    if not np.all(np.isfinite(rows if isinstance(rows, np.ndarray) else rows.data)):
        return "the rows of its expansion are not finite"
    gamma = getattr(model, "gamma_", None)
    return None if _is_positive(gamma) else f"its gamma is {short(gamma)}; expected a number > 0"


def _support_error(rows: Any, n_rows: int, n_columns: int) -> str | None:
    """Compare the indices of the rows of an expansion with its length and the columns of X."""
    if not isinstance(rows, np.ndarray) or rows.shape != (n_rows,) or rows.dtype.kind != "i":
        return f"it has {n_rows} coefficients, and not the index of a row for each"
    if n_rows and not 0 <= rows.min() <= rows.max() < n_columns:
        return f"its expansion names rows outside of 0 to {n_columns - 1}"
    return None


def _probability_error(model: Any) -> str | None:
    """Return the reason why a model cannot compute probabilities; None if it can."""
    # Fits of the margin loss have all of these; other classifiers have none.
    required = {"scale_", "multi_class_"} if hasattr(model, "multi_class") else {"link_"}
    required = required if hasattr(model, "predict_proba") else set()
    if hasattr(model, "link"):  # a search: its own link, or that of the best fit
        required.add("link_" if model.link == "fitted" else "best_estimator_")
    missing = sorted(name for name in required if getattr(model, name, None) is None)
    if missing:
        return f"it lacks {missing}"
    scale, multi_class = getattr(model, "scale_", 1.0), getattr(model, "multi_class_", "ovr")
    if not _is_positive(scale):
        return f"its scale is {short(scale)}; expected a positive number"
    if not isinstance(multi_class, str) or multi_class not in ("joint", "ovr", "ovo"):
        return (
            f"its loss of several classes is {short(multi_class)}; expected 'joint', 'ovr' or 'ovo'"
        )
    best, link = getattr(model, "best_estimator_", None), getattr(model, "link_", None)
    if best is not None and not hasattr(best, "predict_proba"):
        return "its best estimator has no probabilities"
    return None if link is None else _links_error(model, link)


def _links_error(model: Any, link: Any) -> str | None:
    """Return the reason why the link, or a link of several labels, is invalid."""
    if not getattr(model, "multilabel_", False):
        return _link_error(link)
    if not isinstance(link, LabelLinks):
        return "its link is not that of several labels"
    parts = (link.slopes, link.thresholds)
    if not (
        all(isinstance(x, np.ndarray) and x.shape == (len(model.classes_),) for x in parts)
        and all(x.dtype.kind == "f" and np.all(np.isfinite(x)) for x in parts)
        and np.all(link.slopes > 0)
        and isinstance(link.offset, float)
        and np.isfinite(link.offset)
    ):
        return "its link does not have a positive slope and a threshold of each label"
    return None


def _link_error(link: Any) -> str | None:
    """Return the reason why a fitted link is invalid; None if it is valid."""
    if not isinstance(link, FittedLink):
        return "its link is not a fitted link"
    slopes = link.slopes
    if not (
        _is_positive(link.margin)
        and isinstance(link.threshold, float)
        and np.isfinite(link.threshold)
        and isinstance(link.smoothing, float)
        and 0 <= link.smoothing < 1
        and isinstance(slopes, np.ndarray)
        and slopes.shape == (4,)
        and slopes.dtype.kind == "f"
        and np.all((slopes > 0) & np.isfinite(slopes))
    ):
        return "its link does not have positive slopes, a margin, a threshold and a smoothing"
    return None


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < np.inf
