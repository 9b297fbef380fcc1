"""The fit of a kernel classifier with one class against one (`_pairs`)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from marginpursuit import _kernels
from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._half_fits import HalfFitPolicy, HalfFits, chosen_fits
from marginpursuit.classifiers._halves import Halves, split_keys
from marginpursuit.classifiers._kernel_expansion import gram_of, refuse_unusable
from marginpursuit.classifiers._link import FittedLink
from marginpursuit.classifiers._margins import Margins
from marginpursuit.classifiers._pairs import PairFits, Pairs, class_scores, pair_scores
from marginpursuit.classifiers._progress import warn
from marginpursuit.design import Standardisation, design_for
from marginpursuit.tasks import LabelSets


def fits_pairs(model: Any, data: TrainingData) -> bool:
    """Whether a `MarginPursuitClassifier` with a kernel fits one class against one.

    Raises a ValueError where it was asked to and cannot.
    """
    labels = data.labels
    if isinstance(labels, LabelSets) or labels.n_classes == 2:
        return False
    if model.multi_class not in ("auto", "ovo"):
        return False
    reason = _obstacle(model, data)
    if model.multi_class == "ovo" and reason is not None:
        raise ValueError(f"multi_class='ovo' {reason}, or set multi_class='joint'.")
    if model.multi_class == "ovo":
        return True
    n_rows = int(np.count_nonzero(data.weights))
    is_small = n_rows <= model._kernel_policy.max_auto_pair_rows
    return reason is None and is_small and model.n_components is None


def _obstacle(model: Any, data: TrainingData) -> str | None:
    """Return why pairs of classes cannot be fitted, and what to do; None if they can."""
    n_rows, policy = int(np.count_nonzero(data.weights)), model._kernel_policy
    if _kernels.kernel_newton is None:
        return "needs the compiled kernels: install a C compiler and build the package again"
    if isinstance(data.matrix, Blocks):
        return "needs X in memory; got rows in blocks. Load X"
    if policy.n_landmarks(n_rows, model.n_components) < n_rows:
        return (
            f"needs all rows as landmarks, at most {policy.max_exact_rows}; got {n_rows} rows and "
            f"n_components={model.n_components!r}. Fit fewer rows"
        )
    if isinstance(model.scale, str):
        return f"needs a number as scale; got {model.scale!r}. Set scale to a number"
    if model.solver not in ("auto", "newton"):
        return f"needs solver='auto' or 'newton'; got {model.solver!r}. Set solver='auto'"
    if model.alpha_unit == "common":
        return "needs alpha_unit='auto', 'row' or 'absolute'; got 'common'. Set alpha_unit='auto'"
    if not model._penalty(data.n_samples) > 0:
        return f"needs a penalty alpha > 0; got {model.alpha!r}. Set alpha='auto'"
    return None


@dataclass(frozen=True, slots=True)
class _SortedRows:
    """The rows of positive weight, sorted by class."""

    rows: NDArray[np.intp]
    pairs: Pairs
    weights: FloatArray

    @classmethod
    def of(cls, model: Any, data: TrainingData, divisor: float) -> "_SortedRows":
        used = np.flatnonzero(data.weights > 0)
        rows = used[np.argsort(data.labels.codes[used], kind="stable")]
        gram = gram_of(partial(model._kernel_of_rows, data.matrix, divisor), rows)
        refuse_unusable(gram)
        codes = np.ascontiguousarray(data.labels.codes[rows])
        pairs = Pairs(gram, codes, data.labels.n_classes, bool(model.fit_intercept))
        return cls(rows, pairs, data.weights[rows])

    def fit(self, model: Any, weights: FloatArray, penalties: FloatArray, tol: float) -> PairFits:
        """Fit all pairs; raises a ValueError where the kernel is not positive semidefinite."""
        losses = [model._loss(float(model.scale))] * len(penalties)
        try:
            return self.pairs.fit(weights, losses, penalties, tol, model.max_iter)
        except FloatingPointError as error:
            raise model._indefinite(error) from error

    def scores(self, fits: PairFits, some: Any, margin: float) -> FloatArray:
        """Return the scores of the classes for some of these rows, (n, n_fits, n_classes)."""
        pairs = self.pairs
        found = pair_scores(pairs.gram[some], fits.dual_coef, pairs.sizes, fits.intercept)
        return class_scores(found, pairs.n_classes, margin)


def fit_pairs_of_classes(model: Any, data: TrainingData) -> None:
    """Fit checked data with a kernel, one class against one."""
    data, divisor = model._bounded_kernel(data)
    own = _SortedRows.of(model, data, divisor)
    penalty, margin = model._penalty(data.n_samples), float(model.margin)
    is_auto = isinstance(model.alpha, str) and model.alpha == "auto"
    factors = HalfFitPolicy().factors_of(is_joint=True) if is_auto else (1.0,)
    link: Any = None
    if is_auto or model.probability == "held_out":
        halves = _half_fits(model, data, own, penalty, factors)
        best = chosen_fits(halves, data.n_samples, is_joint=True)
        penalty, link = best.factor * penalty, best.link
    fits = own.fit(model, own.weights, np.array([penalty]), model.tol)
    scores = own.scores(fits, slice(None), margin)[:, 0]
    coef = np.zeros((data.labels.n_classes, data.labels.n_rows))
    coef[:, own.rows] = fits.dual_coef[0] / divisor
    model._keep_expansion(data.matrix, coef.T, fits.intercept[0], own.rows)
    codes, is_kept = own.pairs.codes, np.isin(own.rows, model.support_)
    model.n_support_ = np.bincount(codes[is_kept], minlength=own.pairs.n_classes)
    model.multi_class_, model.scale_, model.alpha_ = "ovo", float(model.scale), float(penalty)
    if model.probability == "held_out":
        model.link_ = link
    solved = fits.solved
    model.objective_ = float(solved.values.sum())
    model.n_iter_ = model.n_passes_ = int(solved.n_iter.max())
    margins = _margins(scores, codes)[:, np.newaxis]
    model._keep_margins(Margins(margins, own.weights, data.total_weight, margin), model.scale_)
    gap = float(solved.gaps.max())
    if gap > model.tol:
        owner = model if model._search is None else model._search
        warn(
            f"{type(owner).__name__}: the estimated relative suboptimality of a pair of classes is "
            f"{gap:.1e}, above tol={model.tol:g}. Set max_iter above {model.max_iter}, or tol "
            f"above {gap:.0e}.",
            ConvergenceWarning,
        )


def _margins(scores: FloatArray, codes: NDArray[np.intp]) -> FloatArray:
    """Return the score of the class of each row less the largest of the others."""
    every = np.arange(len(codes))
    others = scores.copy()
    others[every, codes] = -np.inf
    return np.asarray(scores[every, codes] - others.max(axis=1))


def _half_fits(
    model: Any, data: TrainingData, own: _SortedRows, penalty: float, factors: tuple[float, ...]
) -> list[HalfFits]:
    """Fit both halves of the rows at multiples of a penalty, and a link to their held-out scores.

    The tolerances are those of half fits with shared passes (`_half_fits`).
    """
    policy, margin = HalfFitPolicy(), float(model.margin)
    keys = [key[own.rows] for key in _split_keys(data, centred=bool(model.fit_intercept))]
    codes = own.pairs.codes
    halves = Halves.of(tuple(keys), codes, own.weights, policy.min_distinct_rows)
    if halves is None:
        link = FittedLink.a_priori(margin, data.total_weight)
        return [HalfFits(1.0, link, np.inf, (np.empty(0), np.empty(0)))]
    tol = policy.tol if len(factors) == 1 else policy.choice_tol
    penalties = 2.0 * penalty * np.array(factors)[::-1]  # from the largest on
    scores = np.empty((len(codes), len(factors), own.pairs.n_classes))
    for weights, held_out in zip(halves.weights, halves.held_out, strict=True):
        fits = own.fit(model, weights, penalties, tol)
        scores[held_out] = own.scores(fits, held_out, margin)[:, ::-1]
    kept = halves.held_out.any(axis=0)
    counts, found = data.n_samples * own.weights[kept], []
    for k, factor in enumerate(factors):
        given = scores[kept, k], codes[kept], counts, margin
        link, log_loss = FittedLink.fit(*given, max_rows=policy.max_link_rows)
        found.append(HalfFits(factor, link, log_loss, (np.empty(0), np.empty(0))))
    return found


def _split_keys(data: TrainingData, *, centred: bool) -> tuple[FloatArray, FloatArray]:
    """Return norms and a random projection of the rows, as those of half fits are."""
    with design_for(data.matrix) as design:
        standardisation = Standardisation.identity(design.n_columns)
        if not design.is_sparse:
            standardisation = design.standardisation(data.weights, centred=centred)
        return split_keys(design, standardisation)
