"""`partial_fit` of a classifier with a margin loss."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from marginpursuit._namespaces import to_host
from marginpursuit._threads import usable_threads
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import LinearClassifier, TrainingData
from marginpursuit.classifiers._finite import range_error
from marginpursuit.classifiers._online_newton import (
    Stream,
    StreamPolicy,
    batches,
    is_enough,
    stacked,
)
from marginpursuit.classifiers._progress import warn
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import penalty_weights


def _can_stream(estimator: Any) -> bool:
    """Raise an AttributeError for parameters that need all rows at once."""
    if isinstance(estimator.class_weight, str):
        raise AttributeError(
            "partial_fit cannot balance classes whose totals are not known yet; got class_weight="
            f"{estimator.class_weight!r}"
        )
    if getattr(estimator, "multi_class", None) == "joint":
        raise AttributeError(
            "partial_fit fits each class against the rest; got multi_class='joint'. Set "
            "multi_class='ovr' or 'auto'."
        )
    if getattr(estimator, "kernel", "linear") != "linear":
        raise AttributeError(
            f"partial_fit needs kernel='linear'; got kernel={estimator.kernel!r}. Call fit with "
            "all rows."
        )
    return True


class StreamingClassifier(LinearClassifier):
    """A classifier with a :class:`~marginpursuit.losses.MarginLoss` and `partial_fit`."""

    margin: float
    overconfidence: float
    fit_intercept: bool
    leverage_bound: float | None
    n_threads: int | None
    coef_: FloatArray
    intercept_: FloatArray
    scale_: float
    n_iter_: int
    n_passes_: int

    _private_state = ("_buffer", "_stream")
    _stream_policy = StreamPolicy()

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Update the fit with one batch of a stream.

        The first rows, five for each column and at least a thousand, are stored and fitted exactly;
        a scale rule is applied to them. After that each batch is read once; standardisation, scale,
        probability link and the median distance of `leverage_bound` remain those of the first rows.
        If the loss is quadratic (a large `scale` and ``overconfidence=1``) and the leverage is not
        bounded, the result is that of one fit to all batches. Otherwise it is an approximation of
        that fit, less accurate the further the scale is below √2 times the margin.

        The first batch after `fit` or `load_model` begins a new stream, with a warning: the classes
        are kept, the coefficients are discarded.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            The samples of the batch. Each block, also of a Dask array, is a batch. All blocks are
            checked, in one pass, before the first update; then they are loaded in this process one
            at a time. An array that NumPy cannot read in place, as on a GPU, is copied to NumPy.
        y : {array-like, Dask array} of shape (n_samples,)
            Their classes.
        classes : array-like of shape (n_classes,), optional
            All classes of the stream; needed in the first call only, and not after `fit`.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0.

        Returns
        -------
        self : object
            The estimator.
        """
        self._check_parameters()
        if not (hasattr(self, "_buffer") or hasattr(self, "_stream")):
            classes = getattr(self, "classes_", None) if classes is None else classes
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            if hasattr(self, "coef_"):
                warn(
                    "partial_fit begins a new stream and discards the coefficients of fit or of "
                    "the model file. Call fit with all rows to keep what was learnt from them."
                )
            self._reset()
        X, y = (to_host(x) for x in (X, y))
        data = self._check_batch(X, y, classes, sample_weight)
        try:
            with np.errstate(all="ignore"):
                for batch in batches(data):
                    if hasattr(self, "_stream"):
                        self._update_stream(batch)
                    else:
                        self._append_to_buffer(batch)
        except FloatingPointError as error:
            raise range_error(error) from error
        return self

    def _append_to_buffer(self, data: TrainingData) -> None:
        """Fit a batch together with all before it; begin online updates once there are enough."""
        buffer = stacked(getattr(self, "_buffer", None), data)
        n_iter, n_passes = getattr(self, "n_iter_", 0), getattr(self, "n_passes_", 0)
        self._fit_buffer(buffer)
        self.n_iter_, self.n_passes_ = self.n_iter_ + n_iter, self.n_passes_ + n_passes
        self._buffer = buffer
        if is_enough(buffer, self._stream_policy):
            self._stream = Stream.begin(
                buffer,
                (self.coef_.T, self.intercept_),
                self._loss(self.scale_),
                fit_intercept=self.fit_intercept,
                leverage_bound=self.leverage_bound,
                threads=usable_threads(self.n_threads),
                policy=self._stream_policy,
            )
            # These attributes describe the stored rows only.
            names = ("objective_", "_margins", "margin_location_", "margin_statistics_")
            for name in ("_buffer", *names):
                self.__dict__.pop(name, None)

    def _update_stream(self, data: TrainingData) -> None:
        stream, name = self._stream, self._resolve_alpha_unit(is_sparse=self._stream.is_sparse)
        # Neither the norms of earlier rows are kept, nor the fourth powers of their entries.
        name = {"row": "common", "inflated": "standardised"}.get(name, name)
        varies = np.ones((1, self.n_features_in_))
        weights = penalty_weights(name, stream.standardisation.inverse_deviation, varies)
        loss, threads = self._loss(self.scale_), usable_threads(self.n_threads)
        self.n_passes_ += stream.update(data, loss, self._penalty, weights[0], threads)
        self.n_iter_ += 1
        coef, self.intercept_ = self._stream.to_data()
        self.coef_ = coef.T

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise a ValueError for a parameter whose value is not allowed."""

    @abstractmethod
    def _fit_buffer(self, data: TrainingData) -> None:
        """Fit exactly to the stored batches."""

    @abstractmethod
    def _loss(self, scale: float) -> MarginLoss:
        """Return the loss at a scale."""

    @abstractmethod
    def _penalty(self, n_samples: float) -> float:
        """Return the penalty α of a fit to this many rows."""

    @abstractmethod
    def _resolve_alpha_unit(self, *, is_sparse: bool, rows_per_column: float = np.inf) -> str:
        """Return the unit of the penalty, a name in the table of `solvers._problem`."""
