"""Direct solvers of the margin distribution machines: each step factorises an n_columns² matrix.

- The hinge of LDM is not smooth: the interior-point method.
- The piecewise quadratic loss of ODM has a continuous derivative: Newton's method, which takes few
  steps, since a step is exact as long as no row changes to another piece. Without variance and mean
  term Q is the identity, and the duality gap of w with the dual variables -ℓ_i'(m_i) is ½‖∇F(w)‖².
"""

import numpy as np
from scipy.linalg import cho_solve

from marginpursuit.solvers._damped_newton import DampedNewton
from marginpursuit.solvers._interior_point import InteriorPoint
from marginpursuit.solvers._machine import (
    AugmentedRows,
    ConjugateHinge,
    DualPoint,
    MachineFit,
    MachineTask,
    MarginDistributionProblem,
    TermLosses,
)
from marginpursuit.solvers._problem import Progress, Status

__all__ = ["solve_interior_point", "solve_newton"]


def solve_interior_point(machine: MarginDistributionProblem, rows: AugmentedRows) -> MachineFit:
    """Minimise the objective of LDM, whose terms are linear between 0 and `upper`.

    The coefficient of the constant column, if any, is last.
    """
    upper = machine.terms.upper
    task = MachineTask(machine, rows, ConjugateHinge(), upper)
    interior = InteriorPoint(task, task.start)
    status, gap, iteration = Status.MAX_ITER, np.inf, 0
    while iteration < machine.max_iter and status is Status.MAX_ITER:
        interior.step()
        iteration += 1
        gap = interior.gap / machine.reference(interior.value - task.lower_bound)
        machine.report(Progress(iteration, rows.n_passes, interior.value, gap))
        if gap <= machine.tol:
            status = Status.CONVERGED
        elif interior.stalled:
            status = Status.ROUNDING
    inverse = cho_solve(task.factor, np.eye(rows.n_columns))
    dual = DualPoint(upper * interior.dual[0], upper, rows.quadratic(inverse))
    return MachineFit(interior.point, interior.value, gap, status, iteration, dual)


def solve_newton(machine: MarginDistributionProblem, rows: AugmentedRows) -> MachineFit:
    """Minimise the objective of ODM, with quadratic terms and without variance and mean.

    The coefficient of the constant column, if any, is last.
    """
    task = MachineTask(machine, rows, TermLosses(machine.terms), np.ones(rows.n_rows))
    newton = DampedNewton(task, task.start)
    status, last, iteration = Status.MAX_ITER, np.inf, 0
    while True:
        newton.find_direction()
        gap = 0.5 * float(newton.gradient @ newton.gradient) / machine.reference(newton.value)
        machine.report(Progress(iteration, rows.n_passes, newton.value, gap))
        if gap <= machine.tol:
            status = Status.CONVERGED
        elif newton.stalled or newton.value >= last:
            status = Status.ROUNDING
        if status is not Status.MAX_ITER or iteration == machine.max_iter:
            return MachineFit(newton.point, newton.value, gap, status, iteration)
        last = newton.value
        newton.step()
        iteration += 1
