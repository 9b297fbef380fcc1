"""A classifier that also learns from a stream of batches: the estimator's side of it."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from marginpursuit._namespaces import is_elsewhere, to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import LinearClassifier, TrainingData
from marginpursuit.classifiers._stream import Stream, batches, is_enough, stack
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import penalty_unit


def _can_stream(estimator: Any) -> bool:
    """Whether the parameters are such that batches can be taken one by one."""
    if isinstance(estimator.class_weight, str):
        raise AttributeError(
            "partial_fit cannot balance classes that are still to come; got class_weight="
            f"{estimator.class_weight!r}"
        )
    if estimator.leverage_bound is not None:
        raise AttributeError(
            "partial_fit cannot compare the leverage of rows with that of those still to come; got "
            f"leverage_bound={estimator.leverage_bound!r}"
        )
    return True


class StreamingClassifier(LinearClassifier):
    """A classifier with a :class:`~marginpursuit.losses.MarginLoss` and `partial_fit`."""

    margin: float
    overconfidence: float
    fit_intercept: bool
    coef_: FloatArray
    intercept_: FloatArray
    scale_: float
    n_iter_: int
    n_passes_: int

    @available_if(_can_stream)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from one batch of a stream.

        The first rows, five for each column and at least a thousand, are kept and fitted exactly;
        a scale rule is applied to them. After that each batch is seen once, and columns and scale
        stay as they are. Where the loss is quadratic (a large `scale` and ``overconfidence=1``) the
        result is that of one fit to all batches; elsewhere it comes near it, the nearer the less
        the scale is below √2 times the margin.

        The first batch after `fit` begins a stream of its own: it keeps the classes, but forgets
        the coefficients.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            The samples of the batch. Blocks, and those of a Dask array, are batches one after
            another: they are read once to be checked, all before any is learned from, and then
            loaded here one at a time. An array that NumPy cannot read in place, as on a GPU, is
            copied to NumPy, once.
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
        if not (hasattr(self, "_held") or hasattr(self, "_stream")):
            classes = getattr(self, "classes_", None) if classes is None else classes
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self._forget()
        X, y = (to_numpy(x) if is_elsewhere(x) else x for x in (X, y))  # a batch is small
        data = self._check_batch(X, y, classes, sample_weight)
        try:
            with np.errstate(all="ignore"):
                for batch in batches(data):
                    if hasattr(self, "_stream"):
                        self._update_stream(batch)
                    else:
                        self._hold(batch)
        except FloatingPointError as error:
            raise OverflowError(f"the columns of X need another unit: {error}") from error
        return self

    def _forget(self) -> None:
        super()._forget()
        for name in ("_held", "_stream"):
            self.__dict__.pop(name, None)

    def _hold(self, data: TrainingData) -> None:
        """Fit a batch together with all before it, and begin to forget them once they suffice."""
        held = stack(getattr(self, "_held", None), data)
        n_iter, n_sweeps = getattr(self, "n_iter_", 0), getattr(self, "n_passes_", 0)
        self._fit_batches(held)
        self.n_iter_, self.n_passes_ = self.n_iter_ + n_iter, self.n_passes_ + n_sweeps
        self._held = held
        if is_enough(held):
            self._stream = Stream.begin(
                held, (self.coef_.T, self.intercept_), self._loss, self.fit_intercept, self._threads
            )
            # These describe the rows that are forgotten now.
            del self._held, self.objective_, self.margin_location_, self.margin_statistics_

    def _update_stream(self, data: TrainingData) -> None:
        alpha, unit = self._penalty
        penalty = alpha * penalty_unit(
            unit, self._stream.inverse_spread, np.ones((1, self.n_features_in_))
        )
        self.n_passes_ += self._stream.update(data, self._loss, penalty[0], self._threads)
        self.n_iter_ += 1
        coef, self.intercept_ = self._stream.to_data()
        self.coef_ = coef.T

    @property
    def _loss(self) -> MarginLoss:
        return MarginLoss(self.margin, self.scale_, self.overconfidence)

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise a ValueError for a parameter that is not as allowed."""

    @abstractmethod
    def _fit_batches(self, data: TrainingData) -> None:
        """Fit exactly to the batches that are held."""

    @property
    @abstractmethod
    def _penalty(self) -> tuple[float, str]:
        """The penalty and its unit."""

    @property
    @abstractmethod
    def _threads(self) -> int:
        """The number of threads."""
