"""Solvers: a `Problem` goes in, a `Solution` comes out; one file per algorithm.

A solver is a pair of functions. `prepare` makes the coordinates in which it works from the data,
once; `solve` then minimises for one loss, as often as needed.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from marginpursuit.design import Design
from marginpursuit.solvers._penalty import UNITS, penalty_unit
from marginpursuit.solvers._problem import Prepared, Problem, Progress, Solution, Status
from marginpursuit.solvers._quasi_newton import minimise
from marginpursuit.solvers.gram import prepare_gram, solve_gram
from marginpursuit.solvers.lbfgs import prepare_lbfgs, solve_lbfgs
from marginpursuit.solvers.steepest import prepare_steepest, solve_steepest
from marginpursuit.solvers.stochastic import (
    StochasticPath,
    prepare_stochastic,
    solve_stochastic,
    stochastic_margin_pursuit,
)

__all__ = [
    "SOLVERS",
    "UNITS",
    "Prepared",
    "Problem",
    "Progress",
    "Solution",
    "Solver",
    "Status",
    "StochasticPath",
    "choose_solver",
    "minimise",
    "penalty_unit",
    "stochastic_margin_pursuit",
]


class Solver(NamedTuple):
    """How a solver prepares the data, also for losses without overconfidence, and solves."""

    prepare: Callable[..., Prepared]
    solve: Callable[[Problem], Solution]
    prepare_one_sided: Callable[..., Prepared] | None = None

    def preparation(self, overconfidence: float) -> Callable[..., Prepared]:
        """Return how to prepare for losses with this overconfidence."""
        return self.prepare_one_sided or self.prepare if overconfidence == 0 else self.prepare


SOLVERS = {
    "gram": Solver(prepare_gram, solve_gram, partial(prepare_gram, waits=True)),
    "lbfgs": Solver(prepare_lbfgs, solve_lbfgs),
    "steepest": Solver(prepare_steepest, solve_steepest),
    "stochastic": Solver(prepare_stochastic, solve_stochastic),
}

# The Gram matrix costs about d/20 sweeps (n/20 in the space of rows, once), and saves more than a
# hundred where columns are correlated.
_MOST_GRAM_COLUMNS = 2048
_MOST_GRAM_ROWS = 4096


def choose_solver(design: Design) -> str:
    """Choose what ``solver="auto"`` means for these data.

    ============================================  =======
    data                                          solver
    ============================================  =======
    at most 2048 columns                          gram
    at most 4096 rows, fewer than columns         gram, in the space of the rows
    otherwise                                     lbfgs
    ============================================  =======
    """
    few_columns = design.n_columns <= _MOST_GRAM_COLUMNS
    few_rows = design.n_rows < design.n_columns and design.n_rows <= _MOST_GRAM_ROWS
    return "gram" if few_columns or few_rows else "lbfgs"
