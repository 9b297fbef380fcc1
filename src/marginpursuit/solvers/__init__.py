"""Solvers: one file per algorithm, each registered in `SOLVERS`.

A solver states whether it `supports` a request, prepares the data once for every loss and penalty,
and takes a `Problem` to a `Solution`. `plan` chooses among them.
"""

from typing import Protocol

from marginpursuit.solvers._penalty import UNITS, penalty_unit
from marginpursuit.solvers._problem import (
    Prepared,
    Problem,
    Progress,
    Request,
    Solution,
    Status,
)
from marginpursuit.solvers._quasi_newton import minimise
from marginpursuit.solvers.dual_ascent import DualSolver
from marginpursuit.solvers.gram import GramSolver
from marginpursuit.solvers.lbfgs import LbfgsSolver
from marginpursuit.solvers.plan import Plan, plan, plan_gram
from marginpursuit.solvers.policy import LbfgsPolicy, Policy
from marginpursuit.solvers.steepest import SteepestDescentSolver
from marginpursuit.solvers.stochastic import (
    StochasticPath,
    StochasticSolver,
    stochastic_margin_pursuit,
)

__all__ = [
    "SOLVERS",
    "UNITS",
    "DualSolver",
    "LbfgsPolicy",
    "Plan",
    "Policy",
    "Prepared",
    "Problem",
    "Progress",
    "Request",
    "Solution",
    "Solver",
    "Status",
    "StochasticPath",
    "minimise",
    "penalty_unit",
    "plan",
    "plan_gram",
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


_ALL: tuple[Solver, ...] = (
    GramSolver(),
    LbfgsSolver(),
    DualSolver(),
    SteepestDescentSolver(),
    StochasticSolver(),
)

#: All solvers by name.
SOLVERS: dict[str, Solver] = {solver.name: solver for solver in _ALL}
