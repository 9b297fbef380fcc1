r"""Dual coordinate descent: one variable a_i for each row, minimised over one after the other.

The dual is ½ aᵀKa + (linear terms) + Σ_i h_i(a_i). The derivative of its smooth part in a_i is the
margin y_i f_i of the row, with scores f that a sweep updates. `Terms` are the h_i, quadratic on
either side of zero and between bounds.

A sweep minimises over the variables in a given order. It returns the number of active variables,
which it moves to the front of `order`, and the largest derivative it found. The other variables are
shrunk: they are at a bound or a kink, where both one-sided derivatives exceed `threshold`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit._validation import FloatArray

_compiled: Any
try:
    from marginpursuit._kernels import _compiled
except ImportError:  # installed where there was no compiler
    _compiled = None

__all__ = ["Coordinates", "MatrixCoordinates", "RowCoordinates", "Terms"]


@dataclass(frozen=True, slots=True)
class Terms:
    """The functions h_i: ½ up_i a² - gain_up a where a ≥ 0, ½ down_i a² - gain_down a below.

    They are convex, as gain_up ≤ gain_down, and infinite outside of [lower_i, upper_i].
    """

    lower: FloatArray
    upper: FloatArray
    up: FloatArray
    down: FloatArray
    gain_up: float
    gain_down: float

    def value(self, a: FloatArray) -> FloatArray:
        """Return each h_i(a_i), for a within the bounds."""
        rising = a * (0.5 * self.up * a - self.gain_up)
        return np.where(a >= 0, rising, a * (0.5 * self.down * a - self.gain_down))

    def minimiser(self, margins: FloatArray) -> FloatArray:
        """Return each minimiser of a m + h(a), which is minus the derivative of the loss at m."""
        with np.errstate(divide="ignore", invalid="ignore"):  # a quotient by zero is infinite
            above = np.where(margins < self.gain_up, (self.gain_up - margins) / self.up, 0.0)
            below = np.where(margins > self.gain_down, (self.gain_down - margins) / self.down, 0.0)
        return np.asarray(np.clip(above + below, self.lower, self.upper))

    def loss(self, margins: FloatArray) -> FloatArray:
        """Return the loss of each row, the largest -a m - h(a)."""
        best = self.minimiser(margins)
        return -best * margins - self.value(best)

    def excess(self, a: FloatArray, margins: FloatArray) -> FloatArray:
        """Return each a m + h(a) + loss(m) ≥ 0; their sum is the duality gap."""
        return np.maximum(a * margins + self.value(a) + self.loss(margins), 0.0)


class Coordinates(ABC):
    """The variables of one dual; a subclass computes and updates scores.

    `a` holds the variables and `curvature` the diagonal of K.
    """

    def __init__(self, sign: FloatArray, terms: Terms, curvature: FloatArray) -> None:
        self.sign, self.terms, self.curvature = sign, terms, curvature
        self.a = np.zeros(len(sign))

    def sweep(self, order: NDArray[np.int64], threshold: float) -> tuple[int, float]:
        """Minimise over each variable in `order`.

        Returns the number of active variables and the largest derivative. `order` is overwritten:
        the active variables come first.
        """
        if _compiled is not None:
            t = self.terms
            shared = (self.sign, t.lower, t.upper, t.up, t.down, t.gain_up, t.gain_down)
            return self._compiled_sweep(shared, order, threshold)
        kept, largest = 0, 0.0
        for i in order.tolist():
            margin, a = self.sign[i] * self._score(i), self.a[i]
            left, right = self._slopes(i, margin)
            largest = max(largest, left, -right)
            if min(-left, right) > threshold:
                continue
            order[kept] = i
            kept += 1
            self.a[i] = self._best(i, margin)
            if self.a[i] != a:
                self._move(i, self.sign[i] * (self.a[i] - a))
        return kept, largest

    def _slopes(self, i: int, margin: float) -> tuple[float, float]:
        """Return the derivatives in a_i to the left and to the right."""
        a, t = self.a[i], self.terms
        rising = margin + t.up[i] * a - t.gain_up
        falling = margin + t.down[i] * a - t.gain_down
        left = -np.inf if a <= t.lower[i] else rising if a > 0 else falling
        right = np.inf if a >= t.upper[i] else rising if a >= 0 else falling
        return float(left), float(right)

    def _best(self, i: int, margin: float) -> float:
        """Return the minimiser in a_i."""
        t, curvature = self.terms, self.curvature[i]
        linear, best = curvature * self.a[i] - margin, np.float64(0.0)
        with np.errstate(divide="ignore"):
            if linear > -t.gain_up:
                best = (linear + t.gain_up) / (curvature + t.up[i])
            elif linear < -t.gain_down:
                best = (linear + t.gain_down) / (curvature + t.down[i])
        return float(min(max(best, t.lower[i]), t.upper[i]))

    @property
    @abstractmethod
    def work(self) -> int:
        """The approximate number of elements that a step reads."""

    @abstractmethod
    def refresh(self) -> FloatArray:
        """Recompute and return the scores, without the rounding errors of the updates."""

    @abstractmethod
    def _compiled_sweep(
        self, shared: tuple[Any, ...], order: NDArray[np.int64], threshold: float
    ) -> tuple[int, float]: ...

    @abstractmethod
    def _score(self, i: int) -> float: ...

    @abstractmethod
    def _move(self, i: int, change: float) -> None: ...


class MatrixCoordinates(Coordinates):
    """Scores `start` + K y a, for a symmetric matrix K; `scores` is updated by every step.

    A step that leaves its variable unchanged reads one score, so that shrinking saves little time.
    """

    def __init__(
        self, matrix: FloatArray, sign: FloatArray, terms: Terms, start: FloatArray
    ) -> None:
        super().__init__(sign, terms, np.diagonal(matrix).copy())
        self.matrix, self._start, self.scores = matrix, start, start.copy()

    @property
    def work(self) -> int:
        """The number of elements that a step reads."""
        return len(self.matrix)

    def refresh(self) -> FloatArray:
        """Recompute the scores, without the rounding errors of the updates."""
        self.scores = self._start + self.matrix @ (self.sign * self.a)
        return self.scores

    def _compiled_sweep(
        self, shared: tuple[Any, ...], order: NDArray[np.int64], threshold: float
    ) -> tuple[int, float]:
        found: tuple[int, float] = _compiled.sweep_matrix(
            *shared, self.curvature, self.a, order, threshold, self.matrix, self.scores
        )
        return found

    def _score(self, i: int) -> float:
        return float(self.scores[i])

    def _move(self, i: int, change: float) -> None:
        self.scores += change * self.matrix[i]


class RowCoordinates(Coordinates):
    """Scores x·coef of rows, dense or CSR, with coef = `start` + M Xᵀ(y a).

    M is the symmetric `inverse_hessian` of the penalty, the identity if it is None. With `constant`
    a one is appended to each row; coefficients and M include its entry.
    """

    def __init__(
        self,
        rows: Any,
        sign: FloatArray,
        terms: Terms,
        start: FloatArray,
        curvature: FloatArray,
        inverse_hessian: FloatArray | None,
        constant: bool,
    ) -> None:
        super().__init__(sign, terms, curvature)
        self.coef, self._inverse_hessian, self.constant = start.copy(), inverse_hessian, constant
        self._start, self._is_sparse = start, sparse.issparse(rows)
        self._rows = rows.astype(np.float64, copy=False)
        self._stored: tuple[Any, ...] = (np.ascontiguousarray(self._rows),)
        if self._is_sparse:
            indices = (part.astype(np.int64, copy=False) for part in (rows.indices, rows.indptr))
            self._stored = (self._rows.data, *indices)

    @property
    def work(self) -> int:
        """The number of elements that a step reads."""
        return len(self.coef) * (1 if self._inverse_hessian is None else len(self.coef))

    def refresh(self) -> FloatArray:
        """Recompute coefficients and scores, without the rounding errors of the updates."""
        factors = self.sign * self.a
        adjoint = np.append(self._rows.T @ factors, np.full(int(self.constant), factors.sum()))
        self.coef = self._start + self._solved(adjoint)
        n_columns = self._rows.shape[1]
        return np.asarray(self._rows @ self.coef[:n_columns] + self.coef[n_columns:].sum())

    def _compiled_sweep(
        self, shared: tuple[Any, ...], order: NDArray[np.int64], threshold: float
    ) -> tuple[int, float]:
        sweep = _compiled.sweep_sparse if self._is_sparse else _compiled.sweep_dense
        state = (self.curvature, self.a, order, threshold)
        found: tuple[int, float] = sweep(
            *shared, *state, *self._stored, self.coef, self._inverse_hessian, self.constant
        )
        return found

    def _row(self, i: int) -> FloatArray:
        row = self._rows[[i]].toarray()[0] if self._is_sparse else self._rows[i]
        return np.append(row, np.ones(int(self.constant)))

    def _score(self, i: int) -> float:
        return float(self._row(i) @ self.coef)

    def _move(self, i: int, change: float) -> None:
        self.coef += change * self._solved(self._row(i))

    def _solved(self, vector: FloatArray) -> FloatArray:
        """Return M times a vector."""
        return vector if self._inverse_hessian is None else self._inverse_hessian @ vector
