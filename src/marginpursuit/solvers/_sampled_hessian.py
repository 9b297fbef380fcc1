"""L-BFGS with the Hessian of a subsample of the rows as preconditioner.

The Gram matrix bounds the Hessian of one task from above. Where rows are many and a large part of
them has curvature, L-BFGS takes long to learn the difference, and the Hessian of a subsample is
cheaper than the Gram matrix of all rows. It is that at the minimiser of the subsample, which is
also the start.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear
from marginpursuit.solvers._compiled_lbfgs import lbfgs_for
from marginpursuit.solvers._problem import Problem, Solution
from marginpursuit.solvers.gram_plan import GramPlan
from marginpursuit.solvers.sampling import better_start, subsample


def minimise_by_sampled_hessian(problem: Problem, plan: GramPlan) -> Solution:
    """Fit a subsample, and then all rows with the Hessian of the subsample, which is kept.

    Later solves of the same `Prepared`, as those of half fits, have it as preconditioner too.
    """
    own, start = problem.policy.sampled_hessian, problem.start
    sample = subsample(problem, own.rows_per_column * problem.prepared.design.n_columns)
    if sample is not None:
        found = lbfgs_for(sample)(sample, max_iter=own.max_start_steps, tol=own.start_tol).linear
        preconditioner: Any = problem.prepared.preconditioner  # a `GramPreconditioner`
        preconditioner.adopt(_hessian(sample, found))
        start = better_start(problem, found)
    lbfgs = replace(problem.policy.lbfgs, certain_fraction=own.certain_fraction)
    return lbfgs_for(problem)(
        replace(problem, start=start, policy=replace(problem.policy, lbfgs=lbfgs)),
        n_confirmations=plan.n_confirmations,
        max_iter=plan.max_steps,
        tol=plan.tol,
    )


def _hessian(sample: Problem, linear: Linear) -> FloatArray:
    """Return the Hessian of a subsample at a point, plus a small multiple of its Gram matrix."""
    prepared, tasks = sample.prepared, sample.tasks.on_host()
    scores = to_numpy(prepared.design.scores(*linear, prepared.standardisation))[:, 0]
    curvature = tasks.weights[0] * tasks.losses[0].curvature(tasks.sign(0) * scores)
    with_hessian: Any = prepared.preconditioner.with_hessian(prepared.design.to_device(curvature))
    return np.asarray(with_hessian.matrix)
