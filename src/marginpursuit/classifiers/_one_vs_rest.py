"""Base class of classifiers that fit one binary problem after the other."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from marginpursuit.classifiers._base import LinearClassifier, TrainingData
from marginpursuit.classifiers._parameters import Allowed, check_parameters
from marginpursuit.classifiers._progress import warn
from marginpursuit.classifiers._refitted_halves import HeldOutProbabilityMixin
from marginpursuit.design import Linear
from marginpursuit.solvers import Solution, Status


class SeparateClassifier(HeldOutProbabilityMixin, LinearClassifier):
    """Base of the classifiers that fit one class against the rest, one problem at a time."""

    _allowed: ClassVar[dict[str, Allowed]]

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the coefficients.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, of any real dtype.
        y : array-like of shape (n_samples,)
            Class of each sample.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_parameters(self, self._allowed)
        self._reset()
        data = self._check_training(X, y, sample_weight)
        halves = self._halves_of(data)
        with np.errstate(all="ignore"):  # the results are checked instead
            try:
                self._fit(data)
            except FloatingPointError:
                with self._rescaled(data) as rescaled:
                    self._fit(rescaled)
        self._fit_link(data, halves)
        return self

    @abstractmethod
    def _fit(self, data: TrainingData) -> None:
        """Fit to checked data; raise a FloatingPointError if squares of X are not finite."""

    def _keep(self, solutions: Sequence[Solution], linears: Sequence[Linear]) -> None:
        """Set the fitted attributes, and warn if a problem did not converge."""
        status = Status.worst(solution.status for solution in solutions)
        self.status_ = status.value
        self.n_iter_ = max(1, *(solution.n_iter for solution in solutions))
        self.objective_ = float(sum(solution.value.sum() for solution in solutions))
        self.coef_ = np.vstack([coef.T for coef, _ in linears])
        self.intercept_ = np.concatenate([intercept for _, intercept in linears])
        gap = max(float(solution.gap.max()) for solution in solutions)
        is_above, is_cut = not gap <= self.tol, status is Status.MAX_ITER
        if status is Status.CONVERGED or not (is_above or is_cut):
            return
        reason = f"the convergence measure that tol bounds is {gap:.1e}, above tol={self.tol:g}"
        advice = f"Set max_iter above {self.max_iter}, or a larger tol."
        if not is_cut:
            advice = "More iterations do not lower it. Set a larger tol."
        elif not is_above:
            reason = f"tol={self.tol:g} is applied after more iterations only"
            advice = f"Set max_iter above {self.max_iter}."
        warn(f"{type(self).__name__} {status.value}: {reason}. {advice}", ConvergenceWarning)
