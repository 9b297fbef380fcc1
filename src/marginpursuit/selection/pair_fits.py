"""Fits of candidates to folds with one class against one (`classifiers/_pairs.py`).

The matrix of the data has one column, the numbers of the rows; the kernel of each γ is a function
of two vectors of row numbers. A rung computes the kernel matrix of its rows once for each γ, and
all folds and penalties share it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._shared import (
    Pairs,
    TrainingData,
    class_scores,
    pair_scores,
    refuse_unusable,
)
from marginpursuit.losses import MarginLoss
from marginpursuit.selection.candidates import FitOptions, FoldBatch, Stopping
from marginpursuit.selection.successive_halving import Rung

#: Returns the kernel values of the rows with the first and those with the second numbers.
Kernel = Callable[[NDArray[np.intp], NDArray[np.intp]], FloatArray]


class KernelCandidate(NamedTuple):
    """A setting of the hyper-parameters with a kernel; the first three are those of `Candidate`."""

    alpha: float
    overconfidence: float
    scale: float
    gamma: float | None  # None where the kernel has none


@dataclass(frozen=True)
class PairKernels:
    """The kernel of each γ, and the data of a search with it."""

    kernels: dict[float | None, Kernel]
    data: TrainingData  # with numbers of rows as matrix and bounded weights

    @classmethod
    def of(
        cls, models: Sequence[tuple[float | None, MarginPursuitClassifier]], data: TrainingData
    ) -> "PairKernels":
        """Return the kernels of unfitted classifiers, which have one value of γ each.

        The weights are those that the bound on the leverage has for the first γ.
        """
        kernels: dict[float | None, Kernel] = {}
        for gamma, model in models:
            weighted, divisor = model._bounded_kernel(data)
            if not kernels:
                numbers = np.arange(len(weighted.weights))[:, np.newaxis]
                bounded = replace(weighted, matrix=numbers, original_matrix=data.matrix)
            kernels[gamma] = partial(model._kernel_of_rows, data.matrix, divisor)
        return cls(kernels, bounded)


class PairFoldFits:
    """Fits of candidates to the folds of a rung, as `FoldFits` has them."""

    n_passes = 0.0  # over the rows: the kernel takes their place

    def __init__(
        self,
        kernels: PairKernels,
        rung: Rung,
        weights: FloatArray,
        options: FitOptions,
        stopping: Stopping,
    ) -> None:
        self._kernels, self._rung, self._options = kernels.kernels, rung, options
        codes = rung.fitted.labels.codes
        self._order = np.argsort(codes, kind="stable")
        self._codes = np.ascontiguousarray(codes[self._order])
        self._weights, self._stopping = weights[:, self._order], stopping

    def __enter__(self) -> "PairFoldFits":
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Nothing is to be closed."""

    def held_out(self, candidates: Collection[Any], scales: Sequence[float]) -> Iterator[FoldBatch]:
        """Fit every candidate to every fold and yield the scores of the held-out rows.

        Penalties of one γ, scale and overconfidence are fitted from the largest on, each
        warm-started by the one before.
        """
        by_gamma = sorted(
            candidates,
            key=lambda own: (own.gamma or 0.0, own.scale, own.overconfidence, -own.alpha),
        )
        for gamma, some in groupby(by_gamma, key=lambda own: own.gamma):
            yield from self._at_gamma(gamma, list(some))

    def _at_gamma(self, gamma: float | None, candidates: list[Any]) -> Iterator[FoldBatch]:
        rung, options, kernel = self._rung, self._options, self._kernels[gamma]
        fitted = rung.fitted.matrix[self._order, 0]
        gram = kernel(fitted, fitted)
        n_classes = rung.fitted.labels.n_classes
        pairs = Pairs(gram, self._codes, n_classes, options.fit_intercept)
        losses = [
            MarginLoss(options.margin, own.scale, own.overconfidence, options.rho)
            for own in candidates
        ]
        penalties = options.alpha_factor * np.array([own.alpha for own in candidates])
        place = np.argsort(self._order)  # of each fitted row in the order of the classes
        for fold, (fit, weights) in enumerate(zip(rung.fits, self._weights, strict=True)):
            try:
                found = pairs.fit(
                    weights, losses, penalties, self._stopping.tol, self._stopping.max_iter
                )
            except FloatingPointError:
                refuse_unusable(gram)  # names another reason than an indefinite kernel
                raise
            if rung.is_full:
                values = gram[place[fit.test]]
            else:
                values = kernel(rung.scored.matrix[fit.test, 0], fitted)
            scores = pair_scores(values, found.dual_coef, pairs.sizes, found.intercept)
            yield FoldBatch(
                candidates,
                fold,
                None,
                class_scores(scores, n_classes, options.margin),
            )
