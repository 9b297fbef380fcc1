"""Lazy predictions on Dask arrays, computed by the workers that hold the rows."""

from collections.abc import Callable
from copy import copy
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from marginpursuit.blocks import is_dask

_Predict = TypeVar("_Predict", bound=Callable[[Any, Any], Any])


def lazy_on_dask(predict: _Predict) -> _Predict:
    """Make a prediction method return a Dask array if X is a Dask array or data frame."""

    @wraps(predict)
    def wrapped(self: Any, X: Any) -> Any:
        if not is_dask(X):
            return predict(self, X)
        check_is_fitted(self)
        if hasattr(X, "to_dask_array"):
            X = X.to_dask_array()
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X must have {self.n_features_in_} features, as {type(self).__name__} was fitted "
                f"with; got shape {X.shape}"
            )
        alone = copy(self)
        alone.n_threads = 1  # Dask runs one task in each of its threads
        # The prediction of a row of zeros has the dtype and shape of all predictions.
        none = predict(alone, np.zeros((1, self.n_features_in_)))[:0]
        shape = {"drop_axis": 1} if none.ndim == 1 else {"chunks": (X.chunks[0], none.shape[1:])}
        run = partial(_predict_block, predict, alone, none)
        return X.rechunk({1: -1}).map_blocks(run, meta=none, **shape)

    return wrapped  # type: ignore[return-value]


def _predict_block(predict: Callable[..., Any], estimator: Any, none: Any, rows: Any) -> Any:
    return predict(estimator, rows) if rows.shape[0] else none
