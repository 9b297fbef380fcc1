"""How the solver "gram" combines its methods: a plan that can be tested."""

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from marginpursuit.design import ArrayDesign
from marginpursuit.losses import MarginLoss, has
from marginpursuit.solvers._problem import Problem, Request, Solution, Status
from marginpursuit.solvers.policy import Policy


@dataclass(frozen=True, slots=True)
class GramPlan:
    """How the solver "gram" combines L-BFGS with Newton's method."""

    uses_working_set: bool  # dual passes over rows of small margin first, where these are few
    fits_subsample: bool  # fit a subsample first; with few active rows continue by Newton
    max_steps: int  # of L-BFGS
    min_steps: int
    tol: float  # to which L-BFGS runs
    trusted_steps: int  # up to which the L-BFGS estimate of the gap is not verified
    trusts_estimate: bool  # whether it is trusted after any number of steps
    gap_weight: float  # of the proven gap in Newton's method from the fit to a subsample
    n_confirmations: int = 1  # consecutive estimates of L-BFGS that must meet the tolerance
    samples_hessian: bool = False  # whether the Hessian of a subsample preconditions L-BFGS

    def accepts(self, solution: Solution) -> bool:
        """Whether the L-BFGS solution needs no refinement."""
        is_trusted = self.trusts_estimate and solution.status is Status.CONVERGED
        is_short = solution.n_iter < self.trusted_steps
        return solution.is_proven or is_trusted or is_short


def plan_gram(problem: Problem) -> GramPlan:
    """Plan how the solver "gram" solves a problem.

    With an overconfidence near zero few rows have curvature, and the Gram matrix majorises the
    Hessian poorly. The tables of `tests/test_plan.py` list the cases.
    """
    policy, design = problem.policy, problem.prepared.design
    n_columns, n_tasks = design.n_columns, len(problem.tasks)
    if n_tasks >= policy.lbfgs.many_tasks:
        return _plan_many(problem)
    is_overdetermined = design.n_rows >= policy.overdetermined_ratio * n_columns
    overconfidences = [overconfidence_of(loss) for loss in problem.tasks.losses]
    is_curved = min(overconfidences) >= policy.min_overconfidence and all(
        relative_scale(loss) >= policy.min_relative_scale for loss in problem.tasks.losses
    )
    limit = policy.max_lbfgs_steps_overdetermined if is_overdetermined else policy.max_lbfgs_steps
    per_column = min(int(policy.max_lbfgs_steps_per_column * n_columns), problem.max_iter - limit)
    is_shared = n_tasks > 1 and not (is_overdetermined or is_curved)
    trusted = max(policy.trusted_steps, ceil(policy.trusted_steps_per_column * n_columns))
    fits_subsample = all(
        (n_tasks == 1, max(overconfidences) == 0.0, can_subsample(problem, policy))
    )
    planned = GramPlan(
        uses_working_set=fits_subsample and _has_dual(problem),
        fits_subsample=fits_subsample,
        max_steps=min(problem.max_iter, max(limit, per_column)),
        min_steps=policy.min_lbfgs_steps if is_overdetermined and not is_curved else 0,
        tol=problem.tol * (policy.shared_tol if is_shared else 1.0),
        trusted_steps=trusted if is_curved else 0,
        trusts_estimate=is_overdetermined,
        gap_weight=policy.gap_weight_overdetermined if is_overdetermined else 1.0,
    )
    return _with_sampled_hessian(planned, problem)


def _with_sampled_hessian(planned: GramPlan, problem: Problem) -> GramPlan:
    """Return the plan with the Hessian of a subsample, where there is one.

    The estimates of the gap then need no rate of decrease, which takes more steps.
    """
    if not has_sampled_hessian(problem):
        return planned
    n_confirmations = problem.policy.sampled_hessian.n_confirmations
    return replace(planned, min_steps=0, n_confirmations=n_confirmations, samples_hessian=True)


def _plan_many(problem: Problem) -> GramPlan:
    """Plan L-BFGS alone: a Newton step of each of many tasks takes longer than all shared steps."""
    return GramPlan(
        uses_working_set=False,
        fits_subsample=False,
        max_steps=problem.max_iter,
        min_steps=0,
        tol=problem.tol,
        trusted_steps=0,
        trusts_estimate=True,
        gap_weight=1.0,
        n_confirmations=problem.policy.lbfgs.final_confirmations,
    )


def _has_dual(problem: Problem) -> bool:
    """Whether dual passes for one task are possible and converge fast, without its start.

    The penalty is compared in the unit "standardised": Σ_j 1/u_j is then one. Dual passes begin at
    zero: a given start saves more time than they do, unless columns are many.
    """
    prepared, loss = problem.prepared, problem.tasks.losses[0]
    weights = prepared.penalty_weights[0, prepared.standardisation.varies]
    sum_of_inverses = np.sum(1.0 / weights) if np.all(weights > 0) else np.inf
    min_penalty = problem.policy.min_dual_penalty * sum_of_inverses
    is_fast = problem.alphas[0] * prepared.design.n_rows >= min_penalty
    is_possible = has(loss, "conjugate") and has(loss, "kernel_parameters")
    n_columns, least_columns = len(weights), problem.policy.working_set.min_columns_from_start
    needs_no_start = n_columns >= least_columns or not any(map(np.any, problem.start))
    return (
        is_fast and is_possible and needs_no_start and "dual_pass" in prepared.design.capabilities
    )


def can_subsample(source: Problem | Request, policy: Policy) -> bool:
    """Whether a subsample of the rows, dense and in memory, is informative about all of them."""
    design = source.prepared.design if isinstance(source, Problem) else source.design
    min_rows = policy.start_sampling * policy.min_start_rows_per_column * design.n_columns
    is_dense = "row_access" in design.capabilities and not design.is_sparse
    return is_dense and design.n_rows >= min_rows


def has_sampled_hessian(source: Problem | Request) -> bool:
    """Whether the Hessian of a subsample is cheap next to the passes that it saves."""
    if isinstance(source, Problem):
        design, losses, n_problems = source.prepared.design, source.tasks.losses, 1
    else:
        design, losses, n_problems = source.design, source.losses, source.n_problems
    policy = source.policy.sampled_hessian
    n_needed = policy.sampling_ratio * policy.rows_per_column * design.n_columns
    if "subset" not in design.capabilities or isinstance(design, ArrayDesign):
        return False
    is_large = design.n_columns >= policy.min_columns
    if design.is_sparse:
        is_large = design.n_stored >= policy.min_sparse_elements
    is_single = len(losses) == n_problems == 1
    return is_single and is_large and design.n_rows >= n_needed and has(losses[0], "curvature")


def relative_scale(loss: object) -> float:
    """Return the scale of a margin loss in units of its level; infinite for other losses."""
    return loss.scale / loss.margin if isinstance(loss, MarginLoss) else np.inf


def overconfidence_of(loss: object) -> float:
    """Return the weight of the curvature above the level; losses without a level have one."""
    return loss.overconfidence if isinstance(loss, MarginLoss) else 1.0
