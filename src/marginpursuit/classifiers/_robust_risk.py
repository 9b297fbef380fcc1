"""Base class of the classifiers that minimise a robust estimate of the risk."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from marginpursuit._threads import Threads, usable_threads
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._one_vs_rest import SeparateClassifier
from marginpursuit.classifiers._parameters import FIT_PARAMETERS, number, one_of
from marginpursuit.classifiers._progress import Reporter
from marginpursuit.classifiers._refitted_halves import PROBABILITY
from marginpursuit.design import MemoryDesign
from marginpursuit.solvers import SOLVERS, Progress, Request, plan
from marginpursuit.solvers._refine import solve_hinge, solve_newton
from marginpursuit.solvers.risk import RISK_LOSSES, Risk, RobustSolution
from marginpursuit.tasks import Labels

ALLOWED = {
    "loss": one_of(RISK_LOSSES),
    "alpha": number("that is finite and >= 0", lambda x: 0 <= x < np.inf, ["auto"]),
    "probability": PROBABILITY,
    **FIT_PARAMETERS,
}

# Solvers of weighted risks for few columns or few rows; they bound the gap.
_SOLVE_WITH_GAP = {"hinge": solve_hinge, "logistic": solve_newton}


class RobustRiskClassifier(SeparateClassifier):
    """Base of the classifiers that minimise a robust estimate of the risk, penalised."""

    @abstractmethod
    def _minimise(
        self, risk: Risk, data: TrainingData, report: Callable[[Progress], None]
    ) -> tuple[RobustSolution, Any]:
        """Minimise for one class against the rest; return the solution and its scale or blocks."""

    def _fit_risks(self, data: TrainingData) -> list[Any]:
        """Fit all binary problems; return the scale or the number of blocks of each."""
        loss, automatic = RISK_LOSSES[self.loss], isinstance(self.alpha, str)
        alpha = 1.0 / data.n_samples if automatic else float(self.alpha)
        with Threads(usable_threads(self.n_threads)) as threads:
            request = Request(
                MemoryDesign(data.matrix, threads),
                weights=data.weights[np.newaxis],
                losses=(loss.loss,),
                alpha_unit="column" if automatic else "absolute",
                least_alpha=alpha,
                fit_intercept=self.fit_intercept,
            )
            name = plan(request).solver
            solver = SOLVERS[name]
            prepared = solver.prepare(request)
            bounds_gap = name == "gram"
            solve = _SOLVE_WITH_GAP[self.loss] if bounds_gap else solver.solve
            fits = []
            for problem in data.labels.positive_classes:
                labels = Labels((data.labels.codes == problem).astype(np.intp), 2)
                risk = Risk(
                    prepared, alpha, solve, bounds_gap, labels, data.weights, loss, self.tol
                )
                fits.append(self._minimise(risk, data, Reporter(self)))
            solutions = [solution for solution, _ in fits]
            self._keep(solutions, [prepared.to_data(solution.linear) for solution in solutions])
        influence = np.column_stack([solution.influence for solution in solutions])
        self.sample_influence_ = influence[:, 0] if len(solutions) == 1 else influence
        return [setting for _, setting in fits]

    def _unit_dependent(self, data: TrainingData) -> list[str]:
        return [] if self.alpha in ("auto", 0) else [f"alpha={self.alpha!r}"]
