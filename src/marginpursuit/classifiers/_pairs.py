r"""Kernel fits of each class against each other one, and the scores of classes that follow.

K classes have K(K - 1)/2 *pairs*. That of the classes a < b has the rows of these two, y = +1 for
a, and a score :math:`u_{ab}` that minimises

.. math:: \sum_{i \in a \cup b} c_i\, \varphi(y_i u_{ab}(x_i)) + \frac{\alpha}{2} \|u_{ab}\|^2,

with the weights c of all rows, which sum to one over all classes. The penalty of a row is therefore
the same in all pairs, as C of a support vector machine is.

**Scores of classes.** The probability of a among the two is taken as the logistic function of
:math:`3 u_{ab}/\gamma`, the link of `_link` before any score was held out. The probabilities p of
all classes follow by pairwise coupling (`_kernels/coupling.c`), and the score of class k is

.. math:: s_k = \frac{\gamma}{3} \Bigl(\log p_k - \frac1K \sum_l \log p_l\Bigr).

The softmax of 3 s/γ is p, and the link that is fitted to held-out scores replaces the factor 3/γ.
Votes are as accurate as the coupling, but have no probabilities. The sum over b of the scores
:math:`u_{ab}` is not: on digits its error is 4 to 8 % instead of 1.3 % (seeds 110 and 111).

**Coefficients.** Row i of class a has a coefficient for each other class b, positive where the row
raises the score of its own class. With them

.. math:: u_{ab}(x) = \sum_{i \in a} d_{bi} K(x_i, x) - \sum_{i \in b} d_{ai} K(x_i, x) + t_{ab}.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._link import SlopePrior
from marginpursuit.solvers import Problem
from marginpursuit.tasks import value_at_zero


@dataclass(frozen=True, slots=True)
class PairPolicy:
    """Thresholds of the fits of pairs."""

    #: The bound of the logit of a class of a pair. Probabilities of classes are then above 1e-10,
    #: and their rounding errors below 1e-15.
    max_logit: float = 10.0
    #: Rows of a pair, in the mean, from which a fit starts at a fit to one of `start_step` rows of
    #: each class, whose relative suboptimality is `start_tol`. Pairs of 216 rows of digits take
    #: 0.6 of the time.
    min_start_rows: int = 100
    start_step: int = 4
    start_tol: float = 1e-2


@dataclass(frozen=True, slots=True)
class KernelProblems:
    """Binary problems with a kernel matrix, as the compiled function `kernel_newton` reads them."""

    rows: NDArray[np.intp]  # of all problems, indices into the kernel matrix
    edges: NDArray[np.intp]  # (n_problems + 1,), where the rows of each problem begin
    sign: FloatArray
    weight: FloatArray  # positive
    losses: FloatArray  # (n_penalties, 4), parameters of the losses
    penalties: FloatArray
    has_intercept: bool
    tol: float
    objective_floor: float  # per weight; suboptimality is relative to max(objective, this)
    max_iter: int


class Solved(NamedTuple):
    """Results of the fits of all pairs at several penalties, of shape (n_penalties, n_pairs)."""

    values: FloatArray  # the objective
    gaps: FloatArray  # estimates of the relative suboptimality
    n_iter: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class PairFits:
    """The fits of all pairs at several penalties."""

    dual_coef: FloatArray  # (n_penalties, n_classes, n_rows)
    intercept: FloatArray  # (n_penalties, n_pairs)
    solved: Solved


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of classes of rows that are sorted by class."""

    gram: FloatArray  # (n_rows, n_rows), the kernel of each row with each
    codes: NDArray[np.intp]  # (n_rows,), increasing
    n_classes: int
    fit_intercept: bool
    policy: PairPolicy = PairPolicy()

    @property
    def sizes(self) -> NDArray[np.intp]:
        """The number of rows of each class."""
        return np.bincount(self.codes, minlength=self.n_classes)

    def fit(
        self,
        weights: FloatArray,
        losses: list[Any],
        penalties: FloatArray,
        tol: float,
        max_iter: int,
    ) -> PairFits:
        """Fit all pairs at each penalty with its loss, each fit warm-started by the one before.

        Rows of weight zero are ignored. Raises a FloatingPointError where the matrix of a Newton
        step is not positive definite.
        """
        rows, policy = self._class_rows(weights), self.policy
        start = None
        n_used = sum(map(len, rows))
        if 2 * n_used >= policy.min_start_rows * self.n_classes:
            step = policy.start_step
            few, many = [own[::step] for own in rows], step * weights
            loose = max(tol, policy.start_tol)
            start = self._solve(few, many, losses[:1], penalties[:1], loose, max_iter)
        return self._solve(rows, weights, losses, penalties, tol, max_iter, start)

    def _class_rows(self, weights: FloatArray) -> list[NDArray[np.intp]]:
        """Return the rows of each class with positive weight."""
        used = np.flatnonzero(weights > 0)
        return np.split(used, np.searchsorted(self.codes[used], np.arange(1, self.n_classes)))

    def _solve(
        self,
        rows: list[NDArray[np.intp]],
        weights: FloatArray,
        losses: list[Any],
        penalties: FloatArray,
        tol: float,
        max_iter: int,
        start: PairFits | None = None,
    ) -> PairFits:
        """Fit the rows of each class given, from a fit to some of them or from zero."""
        n_penalties, n_rows = len(penalties), len(self.codes)
        pairs = list(zip(*np.triu_indices(self.n_classes, 1), strict=True))
        # The score of a pair without rows is zero.
        which = [k for k, (a, b) in enumerate(pairs) if len(rows[a]) + len(rows[b])]
        parts = [rows[c] for k in which for c in pairs[k]]
        lengths = np.array([len(part) for part in parts], dtype=np.intp)
        own = np.concatenate(parts)
        problems = KernelProblems(
            rows=own,
            edges=np.concatenate([[0], np.cumsum(lengths.reshape(-1, 2).sum(axis=1))]),
            sign=np.repeat(np.tile([1.0, -1.0], len(which)), lengths),
            weight=np.ascontiguousarray(weights[own]),
            losses=np.array([loss.kernel_parameters for loss in losses], dtype=np.float64),
            penalties=np.ascontiguousarray(penalties, dtype=np.float64),
            has_intercept=self.fit_intercept,
            tol=tol,
            objective_floor=Problem.floor_fraction * min(map(value_at_zero, losses)),
            max_iter=max_iter,
        )
        coef, intercept = np.zeros((n_penalties, len(own))), np.zeros((n_penalties, len(which)))
        other = np.array([pairs[k][::-1] for k in which], dtype=np.intp).ravel()
        place = np.repeat(other, lengths), own  # of the coefficients, in `dual_coef`
        if start is not None:
            coef[0] = problems.sign * start.dual_coef[0][place]
            intercept[0] = start.intercept[0, which]
        results = np.zeros((n_penalties, len(which), 4))
        _kernels.kernel_newton(self.gram, problems, coef, intercept, results)
        singular = 3  # the status of a step without a Cholesky factor
        if np.any(results[:, :, 3] == singular) or not np.all(np.isfinite(results)):
            raise FloatingPointError("the matrix of a Newton step is not positive definite")
        dual_coef = np.zeros((n_penalties, self.n_classes, n_rows))
        dual_coef[:, *place] = problems.sign * coef
        intercepts = np.zeros((n_penalties, len(pairs)))
        intercepts[:, which] = intercept
        solved = Solved(results[:, :, 0], results[:, :, 1], results[:, :, 2].astype(np.intp))
        return PairFits(dual_coef, intercepts, solved)


def pair_scores(
    values: FloatArray, dual_coef: FloatArray, sizes: NDArray[np.intp], intercept: FloatArray
) -> FloatArray:
    """Return the scores of all pairs, (n_samples, n_fits, n_pairs), positive for the first class.

    `values` is the kernel of samples with rows that are sorted by class, of which each class has
    the number in `sizes`; `dual_coef` has the shape (n_fits, n_classes, n_rows).
    """
    n_classes, (first, second) = len(sizes), np.triu_indices(len(sizes), 1)
    scores, n_fits = np.tile(intercept, (len(values), 1, 1)), len(dual_coef)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    for k in range(n_classes):
        own = slice(edges[k], edges[k + 1])
        coef = dual_coef[:, :, own].reshape(n_fits * n_classes, sizes[k])
        products = (values[:, own] @ coef.T).reshape(len(values), n_fits, n_classes)
        scores[:, :, first == k] += products[:, :, k + 1 :]
        scores[:, :, second == k] -= products[:, :, :k]
    return scores


def class_scores(scores: FloatArray, n_classes: int, margin: float) -> FloatArray:
    """Return scores of classes, (..., n_classes), from those of pairs, (..., n_pairs)."""
    factor = SlopePrior().mean / margin
    logits = np.ascontiguousarray(factor * scores.reshape(-1, scores.shape[-1]))
    if not len(logits):
        return np.empty((*scores.shape[:-1], n_classes))
    found = _kernels.coupled(logits, n_classes, PairPolicy().max_logit) / factor
    return np.asarray(found.reshape(*scores.shape[:-1], n_classes))
