"""Solvers: one file per algorithm, each registered in `SOLVERS`.

A solver states whether it `supports` a request, prepares the data once for every loss and penalty,
and takes a `Problem` to a `Solution`. `plan` chooses among them.
"""

from typing import Protocol, runtime_checkable

from marginpursuit._validation import FloatArray

# Names with "as" are for other layers of the package; `__all__` has the public ones.
from marginpursuit.solvers._fallback import continue_with_hessian as continue_with_hessian
from marginpursuit.solvers._float32 import float32_problem as float32_problem
from marginpursuit.solvers._problem import INFLATION as INFLATION
from marginpursuit.solvers._problem import UNITS as UNITS
from marginpursuit.solvers._problem import Prepared as Prepared
from marginpursuit.solvers._problem import Problem as Problem
from marginpursuit.solvers._problem import Progress as Progress
from marginpursuit.solvers._problem import Request as Request
from marginpursuit.solvers._problem import Solution as Solution
from marginpursuit.solvers._problem import Status as Status
from marginpursuit.solvers._problem import penalty_unit as penalty_unit
from marginpursuit.solvers._quasi_newton import minimise as minimise
from marginpursuit.solvers.dual_ascent import DualSolver
from marginpursuit.solvers.gram import GramSolver
from marginpursuit.solvers.lbfgs import LbfgsSolver
from marginpursuit.solvers.lbfgs import request_merge as request_merge
from marginpursuit.solvers.newton import NewtonSolver
from marginpursuit.solvers.plan import Plan as Plan
from marginpursuit.solvers.plan import plan as plan
from marginpursuit.solvers.plan import plan_gram as plan_gram
from marginpursuit.solvers.plan import steps_before_hessian as steps_before_hessian
from marginpursuit.solvers.policy import LbfgsPolicy as LbfgsPolicy
from marginpursuit.solvers.policy import Policy as Policy
from marginpursuit.solvers.policy import default_policy as default_policy
from marginpursuit.solvers.steepest import (
    DescentPath,
    SteepestDescentSolver,
    margin_pursuit_descent,
)
from marginpursuit.solvers.stochastic import (
    StochasticPath,
    StochasticSolver,
    stochastic_margin_pursuit,
)

__all__ = [
    "SOLVERS",
    "DescentPath",
    "StochasticPath",
    "margin_pursuit_descent",
    "stochastic_margin_pursuit",
]


class Solver(Protocol):
    """What every solver offers."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""

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
    def loose_stopping(self) -> tuple[int, float]:
        """Iterations and relative gap that suffice to compare candidates on a subsample."""

    def separates_folds(self, request: Request) -> bool:
        """Whether each fold is prepared alone."""

    def solve_folds(self, problem: Problem, tol: FloatArray) -> Solution:
        """Minimise the objective of every task, to a tolerance of its own."""


@runtime_checkable
class ConcurrentSolver(FoldSolver, Protocol):
    """A solver without warm starts, which solves two problems in the same threads."""

    def solve_both(
        self, problem: Problem, other: Problem, other_tol: FloatArray
    ) -> tuple[Solution, Solution]:
        """Solve two problems over the same data, the second to a tolerance for each task."""


_FOLD_SOLVERS: tuple[FoldSolver, ...] = (
    NewtonSolver(),
    GramSolver(),
    LbfgsSolver(),
    DualSolver(),
)
_OTHER_SOLVERS: tuple[Solver, ...] = (SteepestDescentSolver(), StochasticSolver())

#: The solvers that a search may use, by name.
FOLD_SOLVERS: dict[str, FoldSolver] = {solver.name: solver for solver in _FOLD_SOLVERS}

#: All solvers, by the name that the parameter `solver` of an estimator takes.
#:
#: >>> from marginpursuit.solvers import SOLVERS
#: >>> sorted(SOLVERS)
#: ['dual', 'gram', 'lbfgs', 'newton', 'steepest', 'stochastic']
SOLVERS: dict[str, Solver] = {s.name: s for s in (*_FOLD_SOLVERS, *_OTHER_SOLVERS)}
