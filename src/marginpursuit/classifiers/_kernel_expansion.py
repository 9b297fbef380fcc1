"""Base class of kernel classifiers: kernels by name, and predictions of a fitted expansion.

With ``kernel="linear"`` such a classifier is a linear one and is fitted as such. Otherwise its
score is h(x) = Σ_j c_j K(x_j, x) + intercept over some rows x_j of the training data.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils import gen_batches

from marginpursuit._namespaces import is_device_array, to_device_of, to_host
from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._base import LinearClassifier, TrainingData
from marginpursuit.classifiers._finite import range_error
from marginpursuit.classifiers._lazy import lazy_on_dask
from marginpursuit.classifiers._pairs import class_scores, pair_scores
from marginpursuit.classifiers._parameters import KERNELS
from marginpursuit.classifiers._refitted_halves import HeldOutProbabilityMixin
from marginpursuit.design import loaded, take_rows


class KernelExpansion(LinearClassifier):
    """Base of the classifiers that are linear in the feature space of a kernel.

    A subclass has the parameters `kernel`, `gamma`, `degree` and `coef0`. Where `_is_linear` it
    fits `coef_`, as every linear classifier. Where not it calls `_set_kernel`, reads the data
    through `_kernel_matrix`, and ends with `_keep_expansion`.
    """

    # Kernel values that predictions compute at a time: 32 MiB.
    _block_elements: ClassVar[int] = 1 << 22
    # Whether a kernel other than "linear" and "precomputed" can be fitted to rows in blocks.
    _fits_blocks: ClassVar[bool] = False

    @property
    def _is_linear(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "linear"

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "dual_coef_") or super().__sklearn_is_fitted__()

    def decision_function(self, X: Any) -> Any:
        """Return the scores h(x), positive for the second class or for the class of the column.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; for ``kernel="precomputed"``, their kernel with the training samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores; one column where there are two classes.
        """
        if "dual_coef_" not in vars(self):
            return super().decision_function(X)
        scores = self._expansion_scores(to_host(X))
        return to_device_of(X, scores) if is_device_array(X) else scores

    @lazy_on_dask
    def _expansion_scores(self, X: Any) -> Any:
        """Return the scores of samples by a fitted expansion."""
        matrix = self._read(X, reset=False)
        self._refuse_missing(matrix)
        if isinstance(matrix, Blocks):
            parts = [part for _, _, part in matrix.each(self._scores_of_rows)]
            scores = np.concatenate(parts)
        else:
            scores = self._scores_of_rows(matrix)
        if not np.all(np.isfinite(scores)):
            raise OverflowError(
                "X is too large for this fit: scores exceed the largest float. Pass samples in the "
                "units of the training data."
            )
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _scores_of_rows(self, matrix: Any) -> FloatArray:
        """Return the scores of checked rows in memory, (n_rows, n_problems).

        Classes that were fitted one against one have a score each (`_pairs`).
        """
        if getattr(self, "multi_class_", "ovr") == "ovo":
            return class_scores(self._pair_scores(matrix), len(self.classes_), float(self.margin))
        scores = np.tile(self.intercept_, (matrix.shape[0], 1))
        for span, values in self._kernel_batches(matrix):
            scores[span] += values @ self.dual_coef_.T
        return np.asarray(scores)

    def _pair_scores(self, matrix: Any) -> FloatArray:
        """Return the scores of checked rows in memory for each pair of classes."""
        scores = np.tile(self.intercept_, (matrix.shape[0], 1))
        for span, values in self._kernel_batches(matrix):
            own = self.dual_coef_[np.newaxis], self.n_support_, self.intercept_[np.newaxis]
            scores[span] = pair_scores(values, *own)[:, 0]
        return np.asarray(scores)

    def _kernel_batches(self, matrix: Any) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the kernel of the rows with those of the expansion, some rows at a time."""
        n_support = len(self.support_)  # none where all rows are equal
        step = max(1, self._block_elements // max(1, n_support))
        for span in gen_batches(matrix.shape[0], step) if n_support else ():
            rows = matrix[span]
            if self._is_precomputed:
                yield span, _floats(rows[:, self.support_])
            else:
                yield span, self._kernel_matrix(rows, self.support_vectors_)

    def _set_kernel(self, data: TrainingData) -> None:
        """Check the data for the kernel, and set `gamma_`."""
        if isinstance(data.matrix, Blocks) and (self._is_precomputed or not self._fits_blocks):
            raise TypeError(
                f"{type(self).__name__}(kernel={self.kernel!r}) needs X in memory; got "
                f"{type(data.matrix).__name__}. Load X as a NumPy array or a sparse matrix, or set "
                "kernel='linear'."
            )
        self._refuse_missing(data.matrix)
        n_rows, n_columns = data.matrix.shape
        if self._is_precomputed:
            if n_rows != n_columns:
                raise ValueError(
                    "X must be a square matrix of all kernel values of the training samples for "
                    f"kernel='precomputed'; got shape {data.matrix.shape}"
                )
            return
        if not isinstance(self.gamma, str):
            self.gamma_ = float(self.gamma)
        elif self.gamma == "auto":
            self.gamma_ = 1.0 / n_columns
        else:
            self.gamma_ = _scaled_gamma(data)

    def _kernel_matrix(self, rows: Any, others: Any) -> FloatArray:
        """Return the kernel of each of some rows with each of some others, in float64.

        With ``kernel="precomputed"``, `rows` are the values already and `others` are ignored.
        """
        if self._is_precomputed:
            return _floats(rows)
        if callable(self.kernel):
            values, shape = np.asarray(self.kernel(rows, others)), (rows.shape[0], others.shape[0])
            if values.shape != shape or values.dtype.kind not in "biuf":
                raise ValueError(
                    f"kernel must return real numbers of shape {shape}; got dtype {values.dtype}, "
                    f"shape {values.shape}"
                )
            if np.any(np.isnan(values)):
                raise ValueError("kernel must return numbers; got NaN. Check the kernel function.")
            return _floats(values)
        fitted = {"gamma": "gamma_"}
        names = KERNELS[self.kernel]
        options = {name: getattr(self, fitted.get(name, name)) for name in names}
        rows, others = (part.astype(np.float64, copy=False) for part in (rows, others))
        if self.kernel == "rbf" and not (sparse.issparse(rows) or sparse.issparse(others)):
            # Distances do not depend on the origin, but their rounding errors do.
            centre = centre_of(others)
            rows, others = rows - centre, others - centre
        return _floats(pairwise_kernels(rows, others, metric=self.kernel, **options))

    def _keep_expansion(
        self,
        matrix: Any,
        dual_coef: FloatArray,
        intercept: FloatArray,
        order: NDArray[np.intp] | None = None,
    ) -> None:
        """Set the fitted attributes from coefficients of shape (n_rows, n_problems).

        `order` are the rows in the order of the expansion; by default that of the data.
        """
        is_used = np.any(dual_coef != 0, axis=1)
        self.support_ = np.flatnonzero(is_used) if order is None else order[is_used[order]]
        self.dual_coef_ = np.ascontiguousarray(dual_coef[self.support_].T)
        self.intercept_ = intercept
        if not self._is_precomputed:
            self.support_vectors_ = loaded(take_rows(matrix, self.support_))


class KernelClassifier(HeldOutProbabilityMixin, KernelExpansion):
    """A kernel classifier whose held-out probabilities take two more fits."""


def _scaled_gamma(data: TrainingData) -> float:
    """Return 1 / (number of columns · variance of all entries), or 1 where that is infinite.

    The variance is weighted, as a weight of 2 is the same as the row twice.
    """
    n_columns = data.matrix.shape[1]
    is_sparse = data.matrix.is_sparse if isinstance(data.matrix, Blocks) else data.is_sparse
    mean = _weighted_sum(data, partial(_power_sum, 0.0, 1)) / n_columns
    if is_sparse:
        square = _weighted_sum(data, partial(_power_sum, 0.0, 2)) / n_columns
        if not np.isfinite(square):
            raise range_error("the squares of the entries are not finite")
        variance = square - mean**2
    else:
        variance = _weighted_sum(data, partial(_power_sum, mean, 2)) / n_columns
    return 1.0 / (n_columns * variance) if variance > 0 else 1.0


def _weighted_sum(data: TrainingData, function: Callable[[Any, FloatArray], float]) -> float:
    """Sum a function of rows and their weights over all rows, in memory or in blocks."""
    if isinstance(data.matrix, Blocks):
        return float(data.matrix.total(function, data.weights))
    return function(data.matrix, data.weights)


def _power_sum(origin: float, power: int, rows: Any, weights: FloatArray) -> float:
    """Return the weighted sum of (x - origin)^power over all entries; sparse rows have origin 0."""
    is_sparse = sparse.issparse(rows)
    if is_sparse:
        return float((weights @ rows.astype(np.float64, copy=False).power(power)).sum())
    step, total = max(1, (1 << 16) // max(1, rows.shape[1])), 0.0
    for span in gen_batches(len(rows), step):  # a block of rows fits a second-level cache
        block = rows[span].astype(np.float64) - origin
        block **= power
        total += float(weights[span] @ block.sum(axis=1))
    return total


def centre_of(rows: NDArray[Any], n_used: int = 100) -> FloatArray:
    """Return the median of each column over some rows: a centre that a row far away does not move.

    About `n_used` rows at equal distances are used.
    """
    return np.median(rows[:: max(1, len(rows) // n_used)].astype(np.float64), axis=0)


def _floats(values: Any) -> FloatArray:
    """Return values as a dense array of float64."""
    is_sparse = sparse.issparse(values)
    return np.ascontiguousarray(values.toarray() if is_sparse else values, dtype=np.float64)


def gram_of(kernel: Callable[..., Any], rows: NDArray[np.intp], step: int = 1024) -> FloatArray:
    """Return the kernel of all rows with each other, in blocks, so that the user can interrupt."""
    if len(rows) <= step:
        return np.asarray(kernel(rows, rows))
    gram = np.empty((len(rows), len(rows)))
    for span in gen_batches(len(rows), step):
        gram[span] = kernel(rows[span], rows)
    return gram


def refuse_unusable(gram: FloatArray, step: int = 1024) -> None:
    """Refuse a kernel matrix that is not finite or not symmetric; checked in blocks of rows."""
    spans = list(gen_batches(len(gram), step))
    if not all(np.all(np.isfinite(gram[span])) for span in spans):
        raise OverflowError(
            "kernel values exceed the largest float. Rescale the columns of X, or the kernel if it "
            "is precomputed."
        )
    largest = max(float(np.abs(gram[span]).max()) for span in spans)
    asymmetry = max(float(np.abs(gram[span] - gram[:, span].T).max()) for span in spans)
    if asymmetry > 1e-8 * largest:
        raise ValueError(
            f"kernel must be symmetric; K(x, x') and K(x', x) differ by up to {asymmetry:g}. "
            "Symmetrise the kernel."
        )
