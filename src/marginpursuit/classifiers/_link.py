r"""Probabilities from scores: the exact link of the loss, and a link fitted to held-out scores.

The exact link of the loss holds for the minimiser over all functions. It is overconfident where no
linear score is optimal, and where few rows have margins below γ.

**The fitted link** has a logit that is piecewise linear in the score u, with f(0) = 0 and knots at
0, l = -γ - t and h = γ - t: the levels ± γ after a threshold t has been subtracted from the scores,

.. math::

    \operatorname{logit} p = f(u) = a_1 \min(u - l, 0) + a_2 \min(\max(u, l), 0)
        + a_3 \max(\min(u, h), 0) + a_4 \max(u - h, 0).

The slopes a are positive, so f increases and has the sign of the score. With several classes the
probabilities are the softmax of the f(u). The slopes minimise the log-loss. There is no offset of a
class: with one, the most probable class could differ from the prediction.

**Half fits.** The scores of a fit to its own rows are too far from zero: the link is fitted to
*held-out* scores. The rows are split into two halves by their content, and each half scores the
other. Both halves are folds of one problem over the data as they are prepared for the fit to all
rows, in shared passes. They start at that fit. Their penalty is twice its own: each half has half
the rows.

**The split.** The rows of a class are ordered by a random projection with a fixed seed, rounded to
float32, and distinct values alternate between the halves. Equal rows are in the same half, so that
a row of weight 2 is split like two copies of it, whatever the order of the rows. A class with fewer
than four distinct rows belongs to both halves, with half its weight, and is not scored.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.utils import gen_batches

from marginpursuit._namespaces import namespace, to_numpy
from marginpursuit._threads import single_threaded_blas
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.design import Design, Linear, Standardisation
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.solvers import FOLD_SOLVERS, Problem


@dataclass(frozen=True, slots=True)
class FittedLink:
    """The link, given by its knots and slopes."""

    margin: float
    slopes: FloatArray  # (4,)
    threshold: float = 0.0  # that was subtracted from the scores, within ± margin

    @classmethod
    def fit(
        cls,
        scores: FloatArray,
        codes: NDArray[np.intp],
        weights: FloatArray,
        margin: float,
        threshold: float = 0.0,
        *,
        max_rows: int,
        slope_bounds: tuple[float, float] = (1e-3, 1e3),
    ) -> "FittedLink":
        """Fit the slopes to out-of-fold scores.

        Parameters
        ----------
        scores : ndarray of shape (n_rows, n_problems)
            Out-of-fold scores, less the threshold.
        codes : ndarray of shape (n_rows,)
            Classes of the rows.
        weights : ndarray of shape (n_rows,)
            The number of rows that each row counts for.
        margin, threshold : float
            The knots.
        max_rows : int
            The most rows to use; of more, every k-th is taken.
        slope_bounds : tuple of float
            Bounds of slope times margin, which keep the link strictly increasing and its
            probabilities inside (0, 1).

        Returns
        -------
        FittedLink
            The link.
        """
        count, step = weights.sum(), thinning(len(codes), max_rows)
        codes, weights = codes[::step], weights[::step]
        weights = weights / weights.sum()
        pieces = np.stack(_pieces(scores[::step] / margin, threshold / margin))
        n_rows, n_classes = pieces.shape[1:]
        # Smoothed targets, as in Platt scaling: each other class has probability 1 / (n + K).
        other = 1.0 / (count + n_classes)
        target = np.full((n_rows, n_classes), other)
        target[np.arange(n_rows), codes] = 1.0 - (n_classes - 1) * other
        target *= weights[:, np.newaxis]

        def log_loss(slopes: FloatArray) -> tuple[float, FloatArray]:
            logits = np.tensordot(slopes, pieces, 1)
            logits -= logits.max(axis=1, keepdims=True)
            odds = np.exp(logits)
            total = odds.sum(axis=1, keepdims=True)
            logs = logits - np.log(total)
            excess = (weights[:, np.newaxis] / total) * odds - target
            return -float(np.sum(target * logs)), np.tensordot(pieces, excess, 2)

        bounds = [slope_bounds] * len(pieces)
        with single_threaded_blas():  # the solver's systems of four equations gain from no thread
            found = minimize(
                log_loss,
                np.ones(4),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"ftol": 1e-14, "gtol": 1e-9},  # the result follows rounding otherwise
            )
        return cls(margin, found.x / margin, threshold)

    def probabilities(self, scores: Any) -> Any:
        """Return probabilities of shape (n_rows, n_classes), in the array library of the scores."""
        xp, slopes = namespace(scores), self.margin * self.slopes
        scaled = xp.astype(scores, xp.float64) / self.margin
        pieces = _pieces(scaled, self.threshold / self.margin)
        logits = sum(float(slope) * piece for slope, piece in zip(slopes, pieces, strict=True))
        odds = xp.exp(logits - xp.max(logits, axis=1)[:, None])
        # Probabilities that round to zero or one are moved to the next float inside (0, 1).
        least, most = float(np.finfo(np.float64).tiny), 1.0 - float(np.finfo(np.float64).epsneg)
        return xp.clip(odds / xp.sum(odds, axis=1)[:, None], least, most)


def thinning(n_rows: int, max_rows: int) -> int:
    """Return the smallest step at which at most `max_rows` of `n_rows` are taken."""
    return -(-n_rows // max_rows)


def _pieces(scores: Any, threshold: float) -> list[Any]:
    """Return the four terms of f without slopes, each of shape (n_rows, n_classes).

    With two classes, the score is that of the second, and that of the first is zero.
    """
    xp, low, high = namespace(scores), -1.0 - threshold, 1.0 - threshold
    if scores.shape[1] == 1:
        scores = xp.concat([xp.zeros_like(scores), scores], axis=1)
    return [
        xp.clip(scores - low, None, 0.0),
        xp.clip(scores, low, 0.0),
        xp.clip(scores, 0.0, high),
        xp.clip(scores - high, 0.0, None),
    ]


@dataclass(frozen=True, slots=True)
class HalfFitPolicy:
    """Thresholds of the half fits."""

    tol: float = 1e-3  # relative suboptimality of a half fit
    max_iter: int = 100
    min_distinct_rows: int = 4  # of a class, so that each half has two
    max_link_rows: int = 1 << 14  # held-out rows to which the four slopes are fitted


@dataclass(frozen=True, slots=True)
class Halves:
    """Which rows are fitted and held out by each of the two half fits."""

    weights: FloatArray  # (2, n_rows), of the fits; each row sums to one
    held_out: NDArray[np.bool_]  # (2, n_rows)

    @classmethod
    def of(
        cls,
        projection: FloatArray,
        codes: NDArray[np.intp],
        weights: FloatArray,
        min_distinct_rows: int = 4,
    ) -> "Halves | None":
        """Split the rows; None unless two classes have enough distinct rows to be scored."""
        is_used = weights > 0
        # The class in the upper half of a key, the projection as an integer in the lower.
        bits = (projection.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # -0.0 becomes 0.0
        keys = codes.astype(np.uint64) << np.uint64(32) | bits.astype(np.uint64)
        distinct, place = np.unique(keys[is_used], return_inverse=True)
        code = (distinct >> np.uint64(32)).astype(np.intp)
        n_distinct = np.bincount(code)
        is_split = n_distinct >= min_distinct_rows
        if np.count_nonzero(is_split) < 2:
            return None
        first = np.concatenate([[0], np.cumsum(n_distinct)[:-1]])
        # The half with one row more of an odd number alternates between the classes.
        half = (np.arange(len(distinct)) - first[code] + code) % 2
        fitted = np.zeros((2, len(weights)))
        held_out = np.zeros((2, len(weights)), dtype=bool)
        for number in range(2):
            held_out[number, is_used] = (is_split[code] & (half != number))[place]
            fitted[number, is_used] = np.where(is_split[code], half == number, 0.5)[place]
        fitted *= weights
        fitted /= fitted.sum(axis=1, keepdims=True)
        return cls(fitted, held_out)

    def thinned(self, step: int) -> "Halves":
        """Return the same fits, with one of `step` held-out rows, in the order of the rows."""
        rows = np.flatnonzero(self.held_out.any(axis=0))
        kept = np.zeros_like(self.held_out)
        kept[:, rows[::step]] = self.held_out[:, rows[::step]]
        return Halves(self.weights, kept)


def held_out_link(
    design: Design,
    data: TrainingData,
    problem: Problem,
    solver: str,
    fit: Linear,
    policy: HalfFitPolicy | None = None,
) -> FittedLink | None:
    """Return the link that is fitted to the held-out scores of two half fits.

    Parameters
    ----------
    design : Design
        The rows as they came.
    data : TrainingData
        Labels, and the weights of the fit.
    problem : Problem
        The problem of the fit to all rows.
    solver : str
        The solver that prepared it.
    fit : tuple of ndarray
        Its solution, in the coordinates of the prepared data.
    policy : HalfFitPolicy, optional
        Thresholds.

    Returns
    -------
    FittedLink or None
        None where fewer than two classes have four distinct rows, or the solver fits no folds.
    """
    policy = HalfFitPolicy() if policy is None else policy
    if solver not in FOLD_SOLVERS:
        return None
    codes, weights = (to_numpy(x) for x in (data.labels.codes, data.weights))
    projection = _projection(design, problem)
    halves = Halves.of(projection, codes, weights, policy.min_distinct_rows)
    if halves is None:
        return None
    step = thinning(int(np.count_nonzero(halves.held_out)), policy.max_link_rows)
    halves = halves.thinned(step)
    scores = _held_out_scores(problem, solver, fit, halves, policy)
    rows = [np.flatnonzero(held_out) for held_out in halves.held_out]
    order = np.argsort(np.concatenate(rows))  # the order of the rows, however they are split
    kept = np.concatenate(rows)[order]
    return FittedLink.fit(
        np.concatenate(scores)[order],
        codes[kept],
        step * data.n_samples * weights[kept],
        problem.tasks.losses[0].margin,
        max_rows=policy.max_link_rows,
    )


def _projection(design: Design, problem: Problem) -> FloatArray:
    """Return a random projection of the rows as they came, which has the same value for equal rows.

    The columns of dense rows are standardised. Solvers of sparse or wide rows may have replaced the
    columns, so these are not used.
    """
    prepared = problem.prepared
    standardisation = prepared.standardisation
    if prepared.design is not design:
        standardisation = Standardisation.identity(design.n_columns)
        if not design.is_sparse:
            weights, centred = problem.tasks.weights[0, :], prepared.fit_intercept
            standardisation = design.standardisation(weights, centred=centred)
    normal = np.random.default_rng(0).standard_normal((design.n_columns, 1))
    scores: Any = design.scores(normal, np.zeros(1), standardisation)
    return np.asarray(to_numpy(scores), dtype=np.float64)[:, 0]


def _held_out_scores(
    problem: Problem, solver: str, fit: Linear, halves: Halves, policy: HalfFitPolicy
) -> list[FloatArray]:
    """Fit both halves, in shared passes, and return the scores of the rows that each holds out."""
    prepared, tasks = problem.prepared, problem.tasks
    n_tasks, fold = len(tasks), np.repeat([0, 1], len(tasks))
    columns = np.repeat([0, 1], n_tasks * tasks.columns_per_task)  # the half of each score
    both = replace(
        tasks,
        weights=prepared.design.place(halves.weights),
        positive=np.tile(tasks.positive, 2),
        fold=fold,
        losses=2 * tasks.losses,
    )
    half_fits = replace(
        problem,
        prepared=replace(prepared, unit=np.repeat(prepared.unit, 2, axis=0)),
        tasks=both,
        alphas=2.0 * np.tile(problem.alphas, 2),
        start=(np.tile(fit[0], 2), np.tile(fit[1], 2)),
        max_iter=min(problem.max_iter, policy.max_iter),
        tol=policy.tol,
        report=None,
        keep=None,
    )
    solution = FOLD_SOLVERS[solver].solve_folds(half_fits, np.full(2 * n_tasks, policy.tol))
    linear = prepared.standardisation.to_data(solution.linear)
    return prepared.design.held_out_scores(*linear, halves.held_out, columns)


def exact_probabilities(
    scores: Any, loss: MarginLoss | JointLoss, batch_rows: int = 1 << 13
) -> Any:
    """Return the probability of each class from scores of shape (n_rows, n_problems).

    With several classes, the probabilities of each against the rest are divided by their sum. A
    joint loss has a link of all scores.
    Scores of NumPy are processed `batch_rows` rows at a time, which bounds the temporary memory.
    """
    if not isinstance(scores, np.ndarray):
        return _linked(scores, loss)
    result = np.empty((len(scores), max(2, scores.shape[1])))
    for rows in gen_batches(len(scores), batch_rows):
        result[rows] = _linked(scores[rows], loss)
    return result


def _linked(scores: Any, loss: MarginLoss | JointLoss) -> Any:
    """Return the probabilities of some rows, as an array of the library of the scores."""
    xp = namespace(scores)
    scores = xp.astype(scores, xp.float64)
    if scores.shape[1] == 1:
        scores = xp.concat([-scores, scores], axis=1)
    probabilities = loss.link(scores)
    # Breaks ties on flat parts of the link in favour of argmax(score), also where the probability
    # of every class is zero.
    tie = 1e-12
    highest = xp.argmax(scores, axis=1)[:, None]
    classes = xp.arange(scores.shape[1], dtype=highest.dtype, device=scores.device)
    probabilities = probabilities + tie * xp.astype(highest == classes[None, :], xp.float64)
    return probabilities / xp.sum(probabilities, axis=1)[:, None]
