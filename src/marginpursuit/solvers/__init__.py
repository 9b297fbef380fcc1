"""Solvers of the objective in `_problem`.

A solver states whether it `supports` a request, prepares the data once for every loss and penalty,
and takes a `Problem` to a `Solution`.

====================  =============================================================================
registered solvers    in `SOLVERS`, among which `plan` chooses: `newton`, `gram`, `lbfgs`,
                      `dual_ascent` with `_dual_passes`, `steepest`, `stochastic`; after "lbfgs"
                      and "dual" `_gram_continuation` may continue in "gram"
parts of "gram"       `gram_plan` chooses among them: `sampling`, `_row_space`, `_working_set`,
                      `_compiled_lbfgs`, `_numpy_lbfgs`, `_device_lbfgs`, `_sampled_hessian`,
                      `_joint_sampled_hessian`, `_float32`, `_refine` with the methods of Newton,
                      active sets and interior points
of other estimators   `distribution`, `coordinate_descent`, `kernel_descent`, `catoni_risk`,
                      `median_of_means`, `robust_gradient`, `sphere`, `intercept_search`
====================  =============================================================================
"""

# Names with "as" are for other layers of the package; `__all__` has the public ones.
from marginpursuit.solvers._float32 import float32_problem as float32_problem
from marginpursuit.solvers._gram_continuation import continue_with_gram as continue_with_gram
from marginpursuit.solvers._numpy_lbfgs import minimise as minimise
from marginpursuit.solvers._problem import INFLATION as INFLATION
from marginpursuit.solvers._problem import Prepared as Prepared
from marginpursuit.solvers._problem import Problem as Problem
from marginpursuit.solvers._problem import Progress as Progress
from marginpursuit.solvers._problem import Request as Request
from marginpursuit.solvers._problem import Solution as Solution
from marginpursuit.solvers._problem import Status as Status
from marginpursuit.solvers._problem import allows_float32 as allows_float32
from marginpursuit.solvers._problem import penalty_weights as penalty_weights
from marginpursuit.solvers.gram_plan import plan_gram as plan_gram
from marginpursuit.solvers.lbfgs import request_merge as request_merge
from marginpursuit.solvers.plan import Plan as Plan
from marginpursuit.solvers.plan import plan as plan
from marginpursuit.solvers.plan import steps_before_gram as steps_before_gram
from marginpursuit.solvers.policy import LbfgsPolicy as LbfgsPolicy
from marginpursuit.solvers.policy import Policy as Policy
from marginpursuit.solvers.policy import default_policy as default_policy
from marginpursuit.solvers.registry import CONCURRENT_SOLVERS as CONCURRENT_SOLVERS
from marginpursuit.solvers.registry import FOLD_SOLVERS as FOLD_SOLVERS
from marginpursuit.solvers.registry import SOLVERS
from marginpursuit.solvers.registry import ConcurrentSolver as ConcurrentSolver
from marginpursuit.solvers.registry import FoldSolver as FoldSolver
from marginpursuit.solvers.registry import Solver as Solver
from marginpursuit.solvers.steepest import DescentPath, margin_pursuit_descent
from marginpursuit.solvers.stochastic import StochasticPath, stochastic_margin_pursuit

__all__ = [
    "SOLVERS",
    "DescentPath",
    "StochasticPath",
    "margin_pursuit_descent",
    "stochastic_margin_pursuit",
]
