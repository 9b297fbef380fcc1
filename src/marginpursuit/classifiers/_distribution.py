"""Base class of the margin distribution machines LDM and ODM."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from marginpursuit._kernels.coordinates import Terms
from marginpursuit._threads import Threads, single_threaded_blas, usable_threads
from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._finite import range_error
from marginpursuit.classifiers._kernel_expansion import KernelClassifier, refuse_unusable
from marginpursuit.classifiers._parameters import (
    FIT_PARAMETERS,
    KERNEL_PARAMETERS,
    RANDOM_STATE,
    Allowed,
    check_parameters,
    number,
)
from marginpursuit.classifiers._progress import (
    CallbackSupportMixin,
    Reporter,
    warn,
    with_callbacks,
)
from marginpursuit.classifiers._refitted_halves import PROBABILITY
from marginpursuit.design import MemoryDesign, Standardisation
from marginpursuit.solvers import Status
from marginpursuit.solvers._machine import (
    AugmentedRows,
    KernelFeatures,
    MachineFit,
    MarginDistributionProblem,
)
from marginpursuit.solvers.coordinate_descent import solve_matrix, solve_rows


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """Sizes up to which ``solver="auto"`` factorises a matrix in each step.

    Beyond them coordinate descent on the dual is faster (`benchmarks/distribution.py`).
    """

    max_columns: int = 2048  # of the rows, without a kernel
    max_kernel_rows: int = 1024  # of a kernel matrix, whose eigenvectors are computed first


#: The allowed values of the parameters of both machines.
PARAMETERS: dict[str, Allowed] = {
    **KERNEL_PARAMETERS,
    **FIT_PARAMETERS,
    "probability": PROBABILITY,
    "random_state": RANDOM_STATE,
}

POSITIVE = number("that is positive and finite", lambda x: 0 < x < np.inf)


class DistributionClassifier(CallbackSupportMixin, KernelClassifier):  # type: ignore[misc]
    """Base of the margin distribution machines.

    A subclass has the parameters of `PARAMETERS` and `solver`. It defines the allowed values of all
    parameters, the terms of the objective and the direct solver.
    """

    _allowed: ClassVar[dict[str, Allowed]]
    _limits: ClassVar[SolverLimits] = SolverLimits()

    @abstractmethod
    def _terms(self, weights: FloatArray) -> Terms:
        """Return the losses of the rows, by their dual."""

    @abstractmethod
    def _moment_factors(self) -> tuple[float, float]:
        """Return the factors c of the variance and g of the mean of the margins."""

    @abstractmethod
    def _solve_direct(self, machine: MarginDistributionProblem, rows: AugmentedRows) -> MachineFit:
        """Solve by a method that factorises an n_columns x n_columns matrix in each step."""

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, of any real dtype; for ``kernel="precomputed"``, the kernel of each
            with each.
        y : array-like of shape (n_samples,)
            Class of each sample.
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0; a weight of 2 is the same as the row twice.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_parameters(self, self._allowed)
        self._reset()
        data = self._check_training(X, y, sample_weight)
        self._refuse_missing(data.matrix)
        halves = self._halves_of(data)
        report = Reporter.for_callbacks(
            self, data.matrix, lambda: self.classes_[data.labels.codes], sample_weight
        )
        with np.errstate(all="ignore"):  # the results are checked to be finite
            fits = (self._fit_linear if self._is_linear else self._fit_kernel)(data, report)
        self.objective_ = float(sum(fit.value for fit in fits))
        self.duality_gap_ = np.array([fit.gap for fit in fits])
        self.n_iter_ = max(fit.n_iter for fit in fits)
        self._keep(fits)
        self._warn(fits)
        self._fit_link(data, halves)
        report.finish()
        return self

    def _keep(self, fits: list[MachineFit]) -> None:
        """Set the attributes of one estimator only."""

    def _fit_linear(self, data: TrainingData, report: Reporter) -> list[MachineFit]:
        """Fit coefficients."""
        data = _without_zero_weights(data)
        with Threads(usable_threads(self.n_threads)) as threads:
            design = MemoryDesign(data.matrix, threads)
            try:
                fits = self._fit_problems(
                    data, report, lambda machine: self._solve_linear(machine, design)
                )
            except FloatingPointError as error:
                raise range_error(error) from error
        coef = np.array([fit.coef for fit in fits])
        if not np.all(np.isfinite(coef)):
            raise range_error("coefficients exceed the largest float")
        n_columns = data.matrix.shape[1]
        self.coef_, self.intercept_ = coef[:, :n_columns], coef[:, n_columns:].sum(axis=1)
        return fits

    def _fit_kernel(self, data: TrainingData, report: Reporter) -> list[MachineFit]:
        """Fit coefficients of an expansion in the rows."""
        self._set_kernel(data)
        counted = np.flatnonzero(data.weights)
        matrix = data.matrix[counted]
        if self._is_precomputed:
            gram = self._kernel_matrix(matrix[:, counted], None)
        else:
            gram = self._kernel_matrix(matrix, matrix)
        refuse_unusable(gram)
        gram += float(self.fit_intercept)
        try:
            solve = self._kernel_solver(gram, len(data.labels.positive_classes))
            fits = self._fit_problems(_without_zero_weights(data), report, solve)
        except FloatingPointError as error:
            raise ValueError(
                f"kernel={self.kernel!r} must be positive semidefinite on X: {error}. Choose "
                "another kernel or other parameters."
            ) from error
        dual_coef = np.zeros((data.matrix.shape[0], len(fits)))
        dual_coef[counted] = np.column_stack([fit.coef for fit in fits])
        self._keep_expansion(
            data.matrix, dual_coef, float(self.fit_intercept) * dual_coef.sum(axis=0)
        )
        return fits

    def _kernel_solver(
        self, gram: FloatArray, n_problems: int
    ) -> Callable[[MarginDistributionProblem], MachineFit]:
        """Return the solver for a kernel matrix, which it may overwrite for its last problem."""
        if self._is_direct(len(gram) <= self._limits.max_kernel_rows):
            with single_threaded_blas():
                features = KernelFeatures(gram)

            def solve_features(machine: MarginDistributionProblem) -> MachineFit:
                with single_threaded_blas():
                    fit = self._solve_direct(machine, features.rows)
                return replace(fit, coef=features.expansion(fit.coef))

            return solve_features

        def solve_gram(machine: MarginDistributionProblem) -> MachineFit:
            # The solver overwrites its matrix.
            matrix = gram if n_problems == 1 else gram.copy()
            return solve_matrix(machine, matrix, self._generator)

        return solve_gram

    def _is_direct(self, suits: bool) -> bool:
        """Whether to use the direct solver; "auto" does if `suits`."""
        return bool(suits if self.solver == "auto" else self.solver != "dual")

    def _fit_problems(
        self,
        data: TrainingData,
        report: Reporter,
        solve: Callable[[MarginDistributionProblem], MachineFit],
    ) -> list[MachineFit]:
        """Fit each class against the rest, or the second against the first."""
        variance, mean = self._moment_factors()
        fits = []
        for problem in data.labels.positive_classes:
            machine = MarginDistributionProblem(
                data.labels.sign(problem),
                data.weights,
                self._terms(data.weights),
                variance,
                mean,
                self.max_iter,
                self.tol,
                report,
            )
            fits.append(solve(machine))
        return fits

    def _solve_linear(self, machine: MarginDistributionProblem, design: MemoryDesign) -> MachineFit:
        """Solve for the rows of a design, without standardisation."""
        rows = AugmentedRows(design, bool(self.fit_intercept))
        is_narrow = design.n_columns <= min(self._limits.max_columns, design.n_rows)
        is_direct = self._is_direct(is_narrow or design.n_rows <= self._limits.max_kernel_rows)
        if is_narrow and is_direct:
            return self._solve_direct(machine, rows)
        if is_narrow or (machine.variance == 0 and not is_direct):
            return solve_rows(machine, rows, self._generator)
        # With more columns than `max_columns` or than rows, the n_rows x n_rows linear kernel is
        # solved.
        identity = Standardisation.identity(design.n_columns)
        products = design.row_products(np.ones(design.n_columns), identity)
        gram = products + float(self.fit_intercept)
        if not np.all(np.isfinite(gram)):
            raise FloatingPointError("the products of the rows are not finite")
        fit = self._kernel_solver(gram, n_problems=1)(machine)
        return replace(fit, coef=rows.adjoint(fit.coef))

    @property
    def _generator(self) -> Any:
        given = self.random_state
        return given if isinstance(given, np.random.Generator) else check_random_state(given)

    def _warn(self, fits: list[MachineFit]) -> None:
        above = (fit for fit in fits if not fit.gap <= self.tol)
        worst = max(above, key=attrgetter("gap"), default=None)
        if worst is None:
            return
        advice = f"Set max_iter above {self.max_iter}."
        if worst.status is not Status.MAX_ITER:
            advice = "Standardise the columns of X, or set a larger tol."
        warn(
            f"{type(self).__name__} {worst.status.value}: the duality gap is {worst.gap:.1e} of "
            f"the objective, above tol={self.tol:g}. {advice}",
            ConvergenceWarning,
        )


def _without_zero_weights(data: TrainingData) -> TrainingData:
    """Drop the rows without weight."""
    counted = data.weights > 0
    if counted.all():
        return data
    labels = replace(data.labels, codes=data.labels.codes[counted])
    return replace(data, matrix=data.matrix[counted], labels=labels, weights=data.weights[counted])
