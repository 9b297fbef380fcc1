"""A fitted linear classifier as numbers: coefficients, classes and the link."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._shared import LinearClassifier, Link


@dataclass(frozen=True, slots=True)
class LinearModel:
    """What a prediction needs: scores x·coef + intercept, classes, and a link or None."""

    coef: FloatArray  # (n_problems, n_features)
    intercept: FloatArray  # (n_problems,)
    classes: NDArray[Any]  # numbers of the labels, where there are several
    has_label_sets: bool  # whether each problem is a label of its own
    link: Link | None
    feature_names: tuple[str, ...] | None

    @classmethod
    def of(cls, model: Any) -> "LinearModel":
        """Return the numbers of a fitted classifier of this library.

        Raises
        ------
        TypeError
            If the model is not a classifier of this library.
        ValueError
            If the model has a kernel.
        """
        if not isinstance(model, LinearClassifier):
            raise TypeError(
                f"got a model of type {type(model).__name__}; expected a fitted linear classifier "
                "of marginpursuit"
            )
        check_is_fitted(model)
        if not hasattr(model, "coef_"):
            raise ValueError(
                f"got {type(model).__name__} with kernel={getattr(model, 'kernel', None)!r}, which "
                "has no coefficients; expected a linear model. Fit with kernel='linear', or use "
                "save_model."
            )
        names = getattr(model, "feature_names_in_", None)
        return cls(
            np.asarray(model.coef_, dtype=np.float64),
            np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), len(model.coef_)),
            model.classes_,
            getattr(model, "multilabel_", False),
            model._fitted_link() if hasattr(model, "predict_proba") else None,
            None if names is None else tuple(map(str, names)),
        )

    @property
    def n_problems(self) -> int:
        """The number of scores of a row."""
        return len(self.coef)

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return int(self.coef.shape[1])
