"""Solvers: a `Problem` goes in, a `Solution` comes out; one file per algorithm.

A solver is a pair of functions. `prepare` makes the coordinates in which it works from the data,
once; `solve` then minimises for one loss, as often as needed.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from marginpursuit.design import Design
from marginpursuit.solvers._penalty import UNITS, penalty_unit
from marginpursuit.solvers._problem import Geometry, Problem, Progress, Solution, Status
from marginpursuit.solvers._quasi_newton import minimise
from marginpursuit.solvers.gram import gram_geometry, solve_gram
from marginpursuit.solvers.lbfgs import diagonal_geometry, solve_lbfgs
from marginpursuit.solvers.steepest import raw_geometry, solve_steepest
from marginpursuit.solvers.stochastic import (
    StochasticPath,
    solve_stochastic,
    stochastic_geometry,
    stochastic_margin_pursuit,
)

__all__ = [
    "SOLVERS",
    "UNITS",
    "Geometry",
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

    prepare: Callable[..., Geometry]
    solve: Callable[[Problem], Solution]
    prepare_one_sided: Callable[..., Geometry] | None = None

    def preparation(self, overconfidence: float) -> Callable[..., Geometry]:
        """Return how to prepare for losses with this overconfidence."""
        return self.prepare_one_sided or self.prepare if overconfidence == 0 else self.prepare


SOLVERS = {
    "gram": Solver(gram_geometry, solve_gram, partial(gram_geometry, waits=True)),
    "lbfgs": Solver(diagonal_geometry, solve_lbfgs),
    "steepest": Solver(raw_geometry, solve_steepest),
    "stochastic": Solver(stochastic_geometry, solve_stochastic),
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
