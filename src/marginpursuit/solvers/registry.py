"""What a solver offers, and the solvers by name."""

from typing import Protocol

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._problem import Prepared, Problem, Request, Solution
from marginpursuit.solvers.dual_ascent import DualSolver
from marginpursuit.solvers.gram import GramSolver
from marginpursuit.solvers.lbfgs import LbfgsSolver
from marginpursuit.solvers.newton import NewtonSolver
from marginpursuit.solvers.steepest import SteepestDescentSolver
from marginpursuit.solvers.stochastic import StochasticSolver

__all__ = [
    "CONCURRENT_SOLVERS",
    "FOLD_SOLVERS",
    "SOLVERS",
    "ConcurrentSolver",
    "FoldSolver",
    "Solver",
]


class Solver(Protocol):
    """What every solver offers."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""

    @property
    def supports_joint(self) -> bool:
        """Whether it fits several classes with a joint loss."""

    @property
    def depends_on_units(self) -> bool:
        """Whether its steps, and not only the penalty, depend on the units of the columns."""

    @property
    def reads_factored_rows(self) -> bool:
        """Whether it reads the features of a kernel as `FactoredRows`."""

    def supports(self, request: Request) -> str | None:
        """Return None, or the reason why the request is not supported."""

    def prepare(self, request: Request) -> Prepared:
        """Prepare the data, once for every loss and penalty of the request."""

    def solve(self, problem: Problem) -> Solution:
        """Minimise the objective of every task."""


class FoldSolver(Solver, Protocol):
    """A solver that fits many candidates to folds in shared passes, for a search."""

    @property
    def warm_starts(self) -> bool:
        """Whether a solve begins at the start of the problem, and not at zero."""

    @property
    def solves_paths(self) -> bool:
        """Whether tasks that differ in their scale are solved together, each as a warm start."""

    @property
    def shares_passes(self) -> bool:
        """Whether all tasks of a fold fit share each pass."""

    @property
    def bounds_gap(self) -> bool:
        """Whether fold fits stop by a bound on the suboptimality, and not by an estimate."""

    @property
    def merges_columns(self) -> bool:
        """Whether it merges sparse columns with a single non-zero."""

    @property
    def loose_stopping(self) -> tuple[int, float]:
        """Iterations and relative gap that suffice to compare candidates on a subsample."""

    def separates_folds(self, request: Request) -> bool:
        """Whether each fold is prepared alone."""

    def solve_folds(self, problem: Problem, tol: FloatArray) -> Solution:
        """Minimise the objective of every task, to a tolerance of its own."""


class ConcurrentSolver(FoldSolver, Protocol):
    """A solver without warm starts, which solves two problems in the same threads."""

    def solve_both(
        self, problem: Problem, other: Problem, other_tol: FloatArray
    ) -> tuple[Solution, Solution]:
        """Solve two problems over the same data, the second to a tolerance for each task."""


#: The solvers that solve two problems in the same threads, by name.
CONCURRENT_SOLVERS: dict[str, ConcurrentSolver] = {"dual": DualSolver()}

#: The solvers that a search may use, by name.
FOLD_SOLVERS: dict[str, FoldSolver] = {
    "newton": NewtonSolver(),
    "gram": GramSolver(),
    "lbfgs": LbfgsSolver(),
    **CONCURRENT_SOLVERS,
}

#: All solvers, by the name that the parameter `solver` of an estimator takes.
#:
#: >>> from marginpursuit.solvers import SOLVERS
#: >>> sorted(SOLVERS)
#: ['dual', 'gram', 'lbfgs', 'newton', 'steepest', 'stochastic']
SOLVERS: dict[str, Solver] = {
    **FOLD_SOLVERS,
    "steepest": SteepestDescentSolver(),
    "stochastic": StochasticSolver(),
}
