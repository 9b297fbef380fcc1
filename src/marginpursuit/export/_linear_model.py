"""A fitted linear classifier as numbers: coefficients, classes and the link."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
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
        """Return the numbers of a fitted classifier, or of a pipeline of scalers and one.

        Raises
        ------
        TypeError
            If the model is not a classifier of this library, or a pipeline has other steps.
        ValueError
            If the model has a kernel.
        """
        if isinstance(model, Pipeline):
            *scalers, last = [step for _, step in model.steps if step not in (None, "passthrough")]
            linear = cls.of(last)
            for scaler in reversed(scalers):
                linear = linear._after(scaler)
            return replace(linear, feature_names=_feature_names([*scalers, last][0]))
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
        return cls(
            np.asarray(model.coef_, dtype=np.float64),
            np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), len(model.coef_)),
            model.classes_,
            getattr(model, "multilabel_", False),
            model._fitted_link() if hasattr(model, "predict_proba") else None,
            _feature_names(model),
        )

    def _after(self, scaler: Any) -> "LinearModel":
        """Return the model of rows that are not scaled yet."""
        factor, offset = _affine(scaler)
        intercept = self.intercept + self.coef @ np.broadcast_to(offset, self.n_features)
        return replace(self, coef=self.coef * factor, intercept=intercept)

    @property
    def labels(self) -> list[Any]:
        """The classes as numbers and text of Python; dates raise a TypeError."""
        if self.classes.dtype.kind in "mM":
            raise TypeError(
                f"got classes of dtype {self.classes.dtype}; expected numbers or text. Fit to "
                "y.astype(str)."
            )
        return list(self.classes.tolist())

    @property
    def n_problems(self) -> int:
        """The number of scores of a row."""
        return len(self.coef)

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return int(self.coef.shape[1])


def _feature_names(model: Any) -> tuple[str, ...] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def _affine(scaler: Any) -> tuple[Any, Any]:
    """Return the factors and offsets of the columns by which a scaler transforms them."""
    check_is_fitted(scaler)
    if type(scaler) is MinMaxScaler and not scaler.clip:
        return scaler.scale_, scaler.min_
    if type(scaler) is MaxAbsScaler and not getattr(scaler, "clip", False):
        return 1.0 / scaler.scale_, 0.0
    if type(scaler) in (StandardScaler, RobustScaler):
        is_centred = getattr(scaler, "with_mean", getattr(scaler, "with_centering", False))
        centre: Any = getattr(scaler, "mean_", getattr(scaler, "center_", None))
        factor = 1.0 if scaler.scale_ is None else 1.0 / scaler.scale_
        return factor, -centre * factor if is_centred else 0.0
    raise TypeError(
        f"got a pipeline with the step {scaler!r}; expected a classifier after StandardScaler, "
        "RobustScaler, MinMaxScaler(clip=False) or MaxAbsScaler. Export the whole pipeline to "
        "ONNX, if skl2onnx has converters for its steps, or use save_model."
    )
