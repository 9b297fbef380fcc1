"""Fits of candidates to folds, in shared passes over the data.

Candidates that differ by their scale alone form a *path*. A path is fitted from the largest scale,
where the loss is nearly quadratic, to its smallest, and each fit warm-starts the next. Scales of
the grid that a path lacks are fitted too, with a loose stopping rule. (A fit to a subsample is a
poor start: where the classes are nearly separable its coefficients are too large, and need many
iterations to shrink.) All paths, folds and classes are tasks of the same sweeps, as many at a time
as memory permits. The solver "newton" fits the candidates of all scales in one solve, without
further scales.

In the dual there are no warm starts: every task begins with dual variables of zero, and the
candidates of a fold are solved together, whatever their scales. Dual ascent stops at a relative
duality gap of ten times `tol`. The gap is an upper bound of the suboptimality, up to the changes
during a pass and rows that are not active. Fits to all rows that have not met it continue in the
primal.

Where the Gram matrix is a poor preconditioner, the Hessian at the fits of the previous scale
replaces it, one for all paths and folds with the same overconfidence.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.selection.candidates import Candidate, FoldBatch, Path, Stopping
from marginpursuit.selection.fold_data import FitPlan, FoldData, FoldGroup, prepare_groups
from marginpursuit.solvers import Prepared, Problem, Solution, minimise
from marginpursuit.tasks import JointTasks, LabelSets, LabelTasks, Tasks


class FoldPath(NamedTuple):
    """A path on one fold: one task for each one-vs-rest problem, or one joint task.

    Either has one column of coefficients for each class, or one column for two classes.
    """

    path: Path
    fold: int  # an index into the folds of the group


class FoldCandidate(NamedTuple):
    """A candidate on one fold, with the tasks of its path."""

    candidate: Candidate
    path: FoldPath

    @property
    def fold(self) -> int:
        """The fold, an index into those of the group."""
        return self.path.fold


#: The latest fit of each path on each fold, in the coordinates of the prepared data.
Fits: TypeAlias = dict[FoldPath, Linear]


class FoldFits:
    """Fits of candidates to folds; `n_passes` counts passes over the rows to fit."""

    def __init__(self, data: FoldData, plan: FitPlan) -> None:
        self._plan, self._policy, self._solver = plan, plan.policy, plan.solver
        self._labels, self._positive_classes = data.labels, data.labels.positive_classes
        self._n_problems = len(self._positive_classes)
        with ExitStack() as stack:  # closes what is open where the preparation fails
            self._groups = prepare_groups(data, plan, stack)
            self._stack = stack.pop_all()
        self.n_passes: float = sum(group.n_passes for group in self._groups)
        self._passes_per_scoring = self._groups[0].reader.n_rows / data.fitted.shape[0]

    def __enter__(self) -> "FoldFits":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def held_out(
        self, candidates: Collection[Candidate], scales: Sequence[float]
    ) -> Iterator[FoldBatch]:
        """Fit every candidate to every fold and yield the scores of the held-out rows.

        `scales` are those of the grid, along which fits are warm-started.
        """
        for group in self._groups:
            if self._solver.solves_paths:
                yield from self._in_one_solve(group, candidates)
            elif self._solver.warm_starts:
                yield from self._along_paths(group, candidates, scales)
            else:
                yield from self._in_the_dual(group, candidates)

    @contextmanager
    def _counted(self, group: FoldGroup) -> Iterator[None]:
        """Add the passes that a solve takes over the rows of a group to `n_passes`."""
        before = group.prepared.design.n_passes
        yield
        self.n_passes += group.prepared.design.n_passes - before

    def _in_the_dual(
        self, group: FoldGroup, candidates: Collection[Candidate]
    ) -> Iterator[FoldBatch]:
        """Fit the candidates fold by fold, as many at a time as memory permits."""
        folds = range(len(group.folds))
        members = [
            FoldCandidate(candidate, FoldPath(candidate.path, fold))
            for fold in folds
            for candidate in sorted(candidates)
        ]
        n_coefficients = group.prepared.design.n_columns * self._n_problems
        size = self._plan.max_tasks_in_memory(self._policy.dual_state_arrays * n_coefficients)
        for first in range(0, len(members), size):
            batch = members[first : first + size]
            # No name keeps the coefficients during the next solve.
            yield from self._scored(group, batch, self._fit_dual(group, batch))

    def _fit_dual(self, group: FoldGroup, members: list[FoldCandidate]) -> Linear:
        """Fit members of a group by dual ascent from zero."""
        start = group.prepared.zeros(len(members) * self._n_problems)
        problem = self._problem(group, members, start, self._plan.stopping)
        tols = np.full(len(problem.tasks), problem.tol)
        with self._counted(group):
            return self._solve_dual(problem, tols).linear

    def _in_one_solve(
        self, group: FoldGroup, candidates: Collection[Candidate]
    ) -> Iterator[FoldBatch]:
        """Fit all scales of paths together, as many paths at a time as memory permits."""
        by_path: dict[Path, list[Candidate]] = {}
        for candidate in sorted(candidates, reverse=True):
            by_path.setdefault(candidate.path, []).append(candidate)
        paths = [FoldPath(*each) for each in product(sorted(by_path), range(len(group.folds)))]
        n_coefficients = group.prepared.design.n_columns * self._n_problems
        n_floats = (
            self._policy.primal_state_arrays * n_coefficients * max(map(len, by_path.values()))
        )
        size = self._plan.max_tasks_in_memory(n_floats)
        for first in range(0, len(paths), size):
            part = paths[first : first + size]
            members = [
                FoldCandidate(candidate, path) for path in part for candidate in by_path[path.path]
            ]
            for batch in self._batches(members):
                start = group.prepared.zeros(len(batch) * self._n_problems)
                problem, tols = self._problem_and_tols(
                    group, batch, start, [self._plan.stopping] * len(batch)
                )
                with self._counted(group):
                    solution = self._solver.solve_folds(problem, tols)
                yield from self._scored(group, batch, solution.linear)

    def _along_paths(
        self, group: FoldGroup, candidates: Collection[Candidate], scales: Sequence[float]
    ) -> Iterator[FoldBatch]:
        """Fit paths from the largest scale on, as many at a time as memory permits."""
        smallest: dict[Path, float] = {}
        for candidate in sorted(candidates, reverse=True):
            smallest[candidate.path] = candidate.scale
        paths = [FoldPath(*each) for each in product(sorted(smallest), range(len(group.folds)))]
        n_coefficients = group.prepared.design.n_columns * self._n_problems
        size = self._plan.max_tasks_in_memory(self._policy.primal_state_arrays * n_coefficients)
        for first in range(0, len(paths), size):
            fits: Fits = {}
            is_slow = False
            unscored: list[FoldCandidate] = []
            linear: list[Linear] = []
            for scale in sorted(scales, reverse=True):
                fitted = [p for p in paths[first : first + size] if smallest[p.path] <= scale]
                members = [FoldCandidate(Candidate(*p.path, scale), p) for p in fitted]
                scored = [member for member in members if member.candidate in candidates]
                stopping = dict.fromkeys(members, self._plan.loose)
                stopping |= dict.fromkeys(scored, self._plan.stopping)
                n_iter = self._fit_scale(group, stopping, fits, with_hessian=is_slow)
                is_slow |= n_iter >= self._policy.slow_iterations and self._may_take_hessian(group)
                unscored += scored
                linear += [fits[member.path] for member in scored]
                # The fits to a subsample are scored together: their held-out rows are copied.
                if unscored and (self._plan.is_final or scale == min(scales)):
                    yield from self._scored(group, unscored, _joined(linear))
                    unscored, linear = [], []

    def _fit_scale(
        self,
        group: FoldGroup,
        stopping: Mapping[FoldCandidate, Stopping],
        fits: Fits,
        *,
        with_hessian: bool,
    ) -> int:
        """Fit members of a group, which have the same scale, and replace the fits of their paths.

        Returns the largest number of iterations.
        """
        n_iter = 0
        zero = group.prepared.zeros(self._n_problems)
        for members in self._batches(list(stopping), are_separate=with_hessian):
            start = _joined([fits.get(member.path, zero) for member in members])
            rules = [stopping[member] for member in members]
            problem, tols = self._problem_and_tols(group, members, start, rules)
            if with_hessian:
                problem = replace(problem, prepared=self._with_hessian(problem))
            with self._counted(group):
                solution = self._solver.solve_folds(problem, tols)
            coef, intercept = solution.linear
            for member, tasks in zip(members, self._task_slices(len(members)), strict=True):
                fits[member.path] = coef[:, tasks], intercept[tasks]
            n_iter = max(n_iter, solution.n_iter)
        return n_iter

    def _batches(
        self, members: list[FoldCandidate], *, are_separate: bool = False
    ) -> list[list[FoldCandidate]]:
        """Return the groups of members that are solved together.

        With a joint loss, or with a Hessian (`are_separate`), a group has one overconfidence;
        otherwise all members are one group.
        """
        if not (are_separate or self._plan.options.is_joint):
            return [members] if members else []
        values = sorted({member.candidate.overconfidence for member in members})
        return [[m for m in members if m.candidate.overconfidence == value] for value in values]

    def _problem_and_tols(
        self,
        group: FoldGroup,
        members: list[FoldCandidate],
        start: Linear,
        stopping: Sequence[Stopping],
    ) -> tuple[Problem, FloatArray]:
        """Return the problem of members, each with its own stopping rule, and the tolerances."""
        strictest = Stopping(max(x.max_iter for x in stopping), min(x.tol for x in stopping))
        problem = self._problem(group, members, start, strictest)
        n_tasks = len(problem.tasks) // len(members)
        return problem, np.repeat([x.tol for x in stopping], n_tasks)

    def _problem(
        self, group: FoldGroup, members: list[FoldCandidate], start: Linear, stopping: Stopping
    ) -> Problem:
        """Return the problem of several candidates and folds.

        With joint tasks all members have the same overconfidence.
        """
        tasks = self._tasks(group, members)
        alphas = [member.candidate.alpha for member in members]
        return Problem(
            group.prepared,
            tasks,
            self._plan.options.alpha_factor * np.repeat(alphas, len(tasks) // len(members)),
            start,
            *stopping,
            policy=self._policy.solvers,
        )

    def _tasks(self, group: FoldGroup, members: list[FoldCandidate]) -> Tasks:
        """Return the tasks of several candidates and folds, joint ones where possible."""
        n_problems, options = self._n_problems, self._plan.options
        kinds = [(member.candidate.scale, member.candidate.overconfidence) for member in members]
        is_joint = options.is_joint and members[0].candidate.overconfidence == 0
        loss_of: dict[Any, Any] = {}
        for scale_and_tau in set(kinds):
            loss = MarginLoss(options.margin, *scale_and_tau, options.rho)
            loss_of[scale_and_tau] = JointLoss.at_level(loss) if is_joint else loss
        losses = [loss_of[kind] for kind in kinds]
        folds = np.array([member.fold for member in members], dtype=np.intp)
        if is_joint:
            return JointTasks(
                group.codes,
                group.weights,
                positive=np.zeros_like(folds),
                fold=folds,
                losses=tuple(losses),
                ranges=group.ranges,
                n_classes=n_problems,
            )
        kind = LabelTasks if isinstance(self._labels, LabelSets) else Tasks
        fold = np.repeat(folds, n_problems)
        if isinstance(self._labels, LabelSets) and self._labels.factors is not None:
            fold = n_problems * fold + np.tile(np.arange(n_problems), len(members))
        return kind(
            group.codes,
            group.weights,
            positive=np.tile(self._positive_classes, len(members)),
            fold=fold,
            losses=tuple(loss for loss in losses for _ in range(n_problems)),
            ranges=group.ranges,
        )

    def _solve_dual(self, problem: Problem, tols: FloatArray) -> Solution:
        """Solve by dual ascent; fits to all rows that it leaves unfinished, in the primal.

        Values and gaps of the solution are those of the last dual pass.
        """
        policy, allowed = self._policy, self._policy.dual_gap_ratio * tols
        max_passes = max(self._plan.loose.max_iter, int(policy.dual_passes / problem.tol))
        limited = replace(problem, max_iter=min(problem.max_iter, max_passes))
        solution = self._solver.solve_folds(limited, allowed)
        if not self._plan.is_final:
            return solution
        coef, intercept = solution.linear
        unfinished = np.flatnonzero(solution.gap > allowed)
        size = self._plan.max_tasks_in_memory(policy.primal_state_arrays * len(coef))
        for first in range(0, len(unfinished), size):
            which = unfinished[first : first + size]
            primal = minimise(
                replace(problem, start=solution.linear).take(which),
                n_confirmations=policy.primal_confirmations,
                min_iter=policy.min_primal_iterations,
                tol=tols[which],
            )
            coef[:, which], intercept[which] = primal.linear
        return solution

    def _may_take_hessian(self, group: FoldGroup) -> bool:
        """Whether the tasks, of one problem and not loosely fitted, may share a Hessian."""
        design = group.prepared.design
        return (
            group.prepared.preconditioner.allows_hessian
            and "row_access" in design.capabilities
            and design.n_stored >= self._policy.min_hessian_elements
            and self._n_problems == 1
            and self._plan.stopping != self._plan.loose
        )

    def _with_hessian(self, problem: Problem) -> Prepared:
        """Return the data prepared with the mean Hessian at the start, if that is cheap enough."""
        prepared, (coef, intercept) = problem.prepared, problem.start
        design, policy = prepared.design, self._policy
        sampled = np.arange(0, len(problem.tasks), -(-len(problem.tasks) // policy.hessian_tasks))
        tasks, curvature = problem.tasks.take(sampled), np.zeros(design.n_rows)
        scores = design.scores(coef[:, sampled], intercept[sampled], prepared.standardisation)
        self.n_passes += 1
        for k, loss in enumerate(tasks.losses):
            of_task = loss.curvature(tasks.sign(k) * scores[:, k])
            curvature += tasks.weights[tasks.fold[k]] * of_task / len(tasks)
        # Products divided by n_columns, of the Hessian and of a sweep.
        hessian_products = np.count_nonzero(curvature) * design.n_columns
        sweep_products = len(problem.tasks) * design.n_rows
        is_cheap = hessian_products <= policy.max_hessian_sweeps * sweep_products
        if not is_cheap:
            return prepared
        self.n_passes += 2
        preconditioner = prepared.preconditioner.with_hessian(curvature)
        return replace(prepared, preconditioner=preconditioner)

    def _scored(
        self, group: FoldGroup, members: list[FoldCandidate], linear: Linear
    ) -> Iterator[FoldBatch]:
        """Yield the scores of the held-out rows, in one pass for as many fits as memory permits.

        `linear` has the coefficients of all members, in their order.
        """
        max_rows = max(1, int(group.tests.sum(axis=1).max()))
        size = self._plan.max_tasks_in_memory(self._n_problems * max_rows)
        for first in range(0, len(members), size):
            batch = members[first : first + size]
            tasks = slice(first * self._n_problems, (first + len(batch)) * self._n_problems)
            part = linear[0][:, tasks], linear[1][tasks]
            coef, intercept = group.prepared.to_data(part)
            of_member = np.array([member.fold for member in batch])
            fold = np.repeat(of_member, self._n_problems)
            scores = group.reader.held_out_scores(coef, intercept, group.tests, fold)
            self.n_passes += self._passes_per_scoring
            for k, (number, held_out) in enumerate(zip(group.folds, scores, strict=True)):
                candidates = [batch[j].candidate for j in np.flatnonzero(of_member == k)]
                if candidates:
                    in_fold = fold == k
                    yield FoldBatch(
                        candidates,
                        number,
                        (coef[:, in_fold], intercept[in_fold]) if self._keeps_fits else None,
                        held_out.reshape(len(held_out), len(candidates), self._n_problems),
                    )

    @property
    def _keeps_fits(self) -> bool:
        """Whether fits to all rows may warm-start the refit."""
        return self._plan.is_final and self._solver.warm_starts

    def _task_slices(self, n_members: int) -> list[slice]:
        """Return the tasks of each member of a batch."""
        n = self._n_problems
        return [slice(k * n, (k + 1) * n) for k in range(n_members)]


def _joined(parts: Sequence[Linear]) -> Linear:
    return np.hstack([coef for coef, _ in parts]), np.concatenate([b for _, b in parts])
