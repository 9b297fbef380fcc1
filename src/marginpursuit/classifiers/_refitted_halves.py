"""Probabilities of classifiers that fit no folds in shared passes: two more fits, one to each half.

The rows are split as for :class:`~marginpursuit.MarginPursuitClassifier` (`_halves`). An estimator
with the same parameters is fitted to each half and scores the other; a link is fitted to these
held-out scores.
"""

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import ProbabilityMixin
from marginpursuit.classifiers._half_fits import HalfFitPolicy
from marginpursuit.classifiers._halves import Halves, random_direction
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.classifiers._link import FittedLink
from marginpursuit.classifiers._margins import Margins
from marginpursuit.classifiers._parameters import one_of
from marginpursuit.design import design_for, take_rows

#: The values of the parameter `probability`.
PROBABILITY = one_of(["held_out"]).or_none()


class HeldOutProbabilityMixin(ProbabilityMixin):
    """The parameter `probability`, "held_out" or None, of a linear or kernel classifier."""

    probability: str | None
    classes_: Any

    def _halves_of(self, data: TrainingData) -> Halves | None:
        """Split the rows of the fit, or refuse them; None where no probabilities are asked for.

        It is called before the fit, which too few rows then do not begin.
        """
        if self.probability is None:
            return None
        n_distinct = HalfFitPolicy().min_distinct_rows
        keys = (row_projections(data),)
        halves = Halves.of(keys, data.labels.codes, data.weights, n_distinct)
        if halves is None:
            self._reset()  # type: ignore[attr-defined]
            raise ValueError(
                f'probability="held_out" needs at least {n_distinct} distinct rows of each of two '
                "classes. Set probability=None."
            )
        return halves

    def _fit_link(self, data: TrainingData, halves: Halves | None) -> None:
        """Set `link_` if there are halves; a failure leaves no fitted attributes."""
        if halves is None:
            return
        try:
            self.link_ = self._held_out_link(data, halves)
        except BaseException:
            self._reset()  # type: ignore[attr-defined]
            raise

    def _held_out_link(self, data: TrainingData, halves: Halves) -> FittedLink:
        """Return the link of half fits; `data` is the checked input of the fit.

        The knots of the link are at ± the median of the absolute held-out scores, or the mean of
        the medians of several classes.
        """
        codes, weights, max_rows = data.labels.codes, data.weights, HalfFitPolicy().max_link_rows
        pairs = zip(halves.weights, halves.held_out, strict=True)
        scores = [self._half_scores(data, own, held_out) for own, held_out in pairs]
        rows = np.concatenate([np.flatnonzero(held_out) for held_out in halves.held_out])
        order = np.argsort(rows)
        rows, joined = rows[order], np.concatenate(scores)[order]
        counts = data.n_samples * weights[rows]
        absolute = Margins(np.abs(joined), counts, data.total_weight, 1.0)
        level = float(absolute.quantiles((0.5,)).mean()) or 1.0
        return FittedLink.fit(joined, codes[rows], counts, level, max_rows=max_rows)[0]

    def _half_scores(self, data: TrainingData, weights: Any, held_out: Any) -> Any:
        """Fit the rows of positive weight; return the scores, (n_rows, n_problems), of others."""
        train, test = np.flatnonzero(weights > 0), np.flatnonzero(held_out)
        rows, others = (take_rows(data.matrix, some) for some in (train, test))
        if getattr(self, "_is_precomputed", False):  # the kernel with the rows of the half
            rows, others = rows[:, train], others[:, train]
        parameters = self.get_params(deep=False)  # type: ignore[attr-defined]
        known = {"probability": None, "class_weight": None, "verbose": 0, "checkpoints": None}
        changes = {name: value for name, value in known.items() if name in parameters}
        half: Any = type(self)(**(parameters | changes))
        counts = 0.5 * data.n_samples * weights[train]
        try:
            half.fit(rows, self.classes_[data.labels.codes[train]], sample_weight=counts)
        except ValueError as error:
            raise ValueError(
                f"in a half fit of probability='held_out', which has {len(train)} of the "
                f"{np.count_nonzero(data.weights)} rows: {error}"
            ) from error
        return half.decision_function(others).reshape(len(test), -1)

    def _fitted_link(self) -> FittedLink:
        if not hasattr(self, "link_"):
            raise NotFittedError(
                f"this {type(self).__name__} has no link: the last fit had probability=None, or "
                "was an update by partial_fit. Call fit with probability='held_out'."
            )
        return self.link_


def row_projections(data: TrainingData) -> FloatArray:
    """Return a random projection of each row, with a fixed seed: equal for equal rows.

    It is asinh(p/m) of the projection p, with m the median of |p|: rounded to float32 relative to
    the largest, rows remain distinct even if one of them is 10^300 times as far as the others.
    """
    with design_for(data.matrix) as design:
        normal = random_direction(design.n_columns)[:, np.newaxis]
        found = np.asarray(design.scores(normal, np.zeros(1)), dtype=np.float64)[:, 0]
    with np.errstate(over="ignore"):
        return np.arcsinh(found / (float(np.median(np.abs(found))) or 1.0))
