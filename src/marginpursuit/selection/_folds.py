"""Many settings on the folds of a cross-validation, in shared reads of the data.

A *setting* is a penalty, an overconfidence and a scale. A *line* is a setting without its scale:
along a line the scales are walked from the largest, where the loss is nearly quadratic, to the
smallest, each from the fits before; scales that are not asked for are walked all the same, in fewer
steps. (A fit to fewer rows is no better start than none: it is far out where the classes can all
but be told apart, and the way back is long.) All lines, folds and classes are tasks of the same
sweeps, as many at a time as memory permits.

Sparse rows with many columns are visited one by one instead, in the dual: no scale is walked, and
every task begins with forces of zero. There the tolerance of a fit is a tenth of the gap between
primal and dual objective, which bounds how far it is off, but for what changes during a pass; fits
of the last round that are slow to meet it are taken to the tolerance in the primal.

Where the bound of the Hessian proves to be poor, the Hessian at the fits of the last scale takes
its place, one for all lines and folds of an overconfidence: the last round of digit5 then takes 45
sweeps, and 86 without it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import (
    Design,
    Linear,
    MemoryDesign,
    MergedDesign,
    design_for,
    loaded,
    row_elements,
    take_rows,
)
from marginpursuit.losses import MarginLoss
from marginpursuit.selection._settings import Effort, Fold, FoldOptions, Judged, Setting
from marginpursuit.solvers import SOLVERS, Prepared, Problem, Solution, choose_solver, minimise
from marginpursuit.solvers.dual_ascent import has_dual, prepare_dual, solve_dual
from marginpursuit.tasks import Labels, Stretches, Tasks

# Bytes that the state of all tasks that are solved together may take, and arrays of that state;
# also those of the scores that are held at a time.
_MOST_BYTES = 1 << 28
_STATE_ARRAYS = 24
_DUAL_ARRAYS = 4  # where rows are visited

# Tolerances from here on up are met by sums of products in float32, which holds scores where the
# margin is in this range.
_FEW_DIGITS = 1e-4
_CONDENSED_MARGINS = 1e-20, 1e20

# In the space of the rows each fold and penalty has a factorisation, for the tasks of all classes.
# Sparse rows are visited so quickly that with more rows than this it is not worth its while: 2,500
# rows of 5 classes of news20 take 21 s by visits and 180 s with it. Where they can only be swept it
# is, with many classes: 3,533 rows take 15 s without and 47 s with it for one class, and longer
# without it for 20.
_FEW_ROWS = 1024
_MANY_PROBLEMS = 8

# The number of steps from which on the bound of the Hessian is poor, and how many sweeps the
# Hessian itself may take. (A Gram matrix takes as long as a sweep for as many tasks as there are
# columns.) Sweeps of fewer elements take no time.
_SLOW = 8
_WORTH_BENDING = 16
_FEWEST_ELEMENTS = 1 << 16

# Tasks whose mean Hessian stands for that of all.
_BENT_BY = 12

# The effort that is enough to drop settings, and to begin at the next scale. Steps without a Gram
# matrix get less far: after 25, scores of one class of news20 were up to 4 points short.
_ROUGH = {"gram": Effort(12, 1e-2), "lbfgs": Effort(75, 1e-2), "dual": Effort(20, 2.5e-2)}

# The gap between primal and dual objective, in tolerances, at which visits to rows end: the first
# bounds how far the second can still move. On news20, predictions for held-out rows hardly change
# from a gap of 5 % on, which takes 20 passes or so; at 0.1 % it would be 400.
_GAP = 10.0

# Passes over the rows, times the tolerance, that are taken at most: 200 with the usual tolerance.
# Small penalties may take a thousand where rows are hardly more than columns, and look better than
# their minimisers before: on reuters, held-out errors of 2.2 % instead of 2.4 %. Fits that count go
# on in the primal, where the first estimates of the gap are a tenth of it.
_PASSES = 0.2
_FEWEST_STEPS = 40


class _Unit(NamedTuple):
    """All classes of a line on one part of the rows of a batch."""

    line: tuple[float, float]  # penalty and overconfidence
    part: int


@dataclass(frozen=True)
class _Batch:
    """Folds whose fits share reads of one design."""

    prepared: Prepared
    reader: Design  # of the rows to judge by
    to_reader: Callable[[Linear], Linear]  # from the prepared to the reader, as that came
    codes: Any  # like the weights, where the rows are
    weights: Any  # (n_folds, n_rows of the design)
    stretches: Stretches | None
    folds: list[int]
    tests: NDArray[np.bool_]  # (n_folds, n_rows of all), which rows a fold holds out


class FoldFits:
    """Fits of settings to folds.

    With fewer rows than columns every fold has a space of rows, and so reads, of its own.
    """

    def __init__(
        self,
        matrix: Any,  # of rows to fit
        judged: Any,  # matrix of rows to judge by, the same where all rows are fitted
        labels: Labels,
        weights: FloatArray,  # (n_folds, n_rows)
        folds: Sequence[Fold],
        options: FoldOptions,
        effort: Effort,
        *,
        rough: bool = False,
    ) -> None:
        self.n_passes = 0.0
        self._labels, self._folds, self._options = labels, folds, options
        self._stack = ExitStack()
        n_rows, n_columns = matrix.shape
        self._solver = options.solver
        if options.solver == "auto":
            self._solver = self._choose(self._open(matrix))
        self._walks = self._solver != "dual"
        self._rough = effort.at_most(_ROUGH[self._solver])
        self._effort, self._is_rough = self._rough if rough else effort, rough
        in_rows = self._solver == "gram" and n_rows < n_columns
        if in_rows and 8 * n_rows * row_elements(matrix) <= _MOST_BYTES:
            is_same = judged is matrix
            matrix = loaded(matrix)  # every coefficient vector takes a read
            judged = matrix if is_same else judged
        self._reader = self._open(judged)
        self._judging = self._reader.n_rows / n_rows  # reads of the rows to fit, by size
        groups = [[k] for k in range(len(folds))] if in_rows else [list(range(len(folds)))]
        self._batches = [self._batch(matrix, weights, group, in_rows) for group in groups]

    def __enter__(self) -> "FoldFits":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def judge(self, settings: Collection[Setting], scales: Sequence[float]) -> Iterator[Judged]:
        """Fit every setting to every fold and yield the scores of the rows it has not seen.

        `scales` are those that may be walked.
        """
        smallest: dict[tuple[float, float], float] = {}
        for setting in sorted(settings, reverse=True):
            smallest[setting[:2]] = setting.scale
        for batch in self._batches:
            for units in self._chunks(batch, sorted(smallest)):
                start: dict[_Unit, Linear] = {}
                is_slow = False
                for scale in sorted(scales, reverse=True):
                    asked = [unit for unit in units if Setting(*unit.line, scale) in settings]
                    here = asked
                    if self._walks:
                        here = [unit for unit in units if smallest[unit.line] <= scale]
                    efforts = {
                        unit: self._effort if unit in asked else self._rough for unit in here
                    }
                    groups = _by_overconfidence(here) if is_slow else [here]
                    for group in filter(None, groups):
                        n_steps = self._solve(batch, group, scale, efforts, start, bend=is_slow)
                        is_slow |= n_steps >= _SLOW and self._may_bend(batch)
                    yield from self._held_out(batch, asked, scale, start)

    def _choose(self, design: Design) -> str:
        """Choose as a single fit does, but for sparse rows, which hardly share a factorisation."""
        chosen, is_large = choose_solver(design), design.n_rows > _FEW_ROWS
        is_wide = is_large and design.n_columns > design.n_rows
        visits = self._options.are_penalised and has_dual(design, self._options.unit)
        if visits and (is_wide or chosen == "lbfgs"):
            return "dual"
        few = len(self._labels.positive_classes) < _MANY_PROBLEMS
        if is_wide and few and design.is_sparse and isinstance(design, MemoryDesign):
            return "lbfgs"
        return chosen

    def _open(self, matrix: Any) -> Design:
        return self._stack.enter_context(design_for(matrix, n_threads=self._options.n_threads))

    def _batch(self, matrix: Any, weights: FloatArray, folds: list[int], alone: bool) -> _Batch:
        codes = self._labels.codes
        if alone:
            train = self._folds[folds[0]].train
            matrix, codes = take_rows(matrix, train), codes[train]
            weights = np.ascontiguousarray(weights[folds][:, train])
        design, order, stretches = self._open(matrix), None, None
        least, most = _CONDENSED_MARGINS
        is_held = least <= self._options.margin <= most
        if self._walks and self._effort.tol >= _FEW_DIGITS and is_held:
            order, stretches = Stretches.of(weights)
        prepare = SOLVERS[self._solver].prepare if self._walks else prepare_dual
        prepared = prepare(
            *(design, weights, self._options.unit),
            fit_intercept=self._options.fit_intercept,
            order=order,
        )
        self.n_passes += design.n_passes
        if prepared.order is None:
            stretches = None
        else:
            self._stack.enter_context(prepared.design)
            codes, weights = codes[prepared.order], np.ascontiguousarray(weights[:, order])
        reader, to_reader = self._reader, prepared.to_data
        if isinstance(prepared.design, MergedDesign) and isinstance(reader, MemoryDesign):
            # Of the columns of all rows, a sample has few.
            reader = self._stack.enter_context(prepared.design.rotated(reader.matrix))
            to_reader = prepared.design.to_data
        tests = np.zeros((len(folds), reader.n_rows), dtype=bool)
        for flags, fold in zip(tests, folds, strict=True):
            flags[self._folds[fold].test] = True
        place = prepared.design.place
        return _Batch(
            *(prepared, reader, to_reader, place(codes), place(weights), stretches, folds, tests)
        )

    def _chunks(self, batch: _Batch, lines: list[tuple[float, float]]) -> Iterator[list[_Unit]]:
        """Yield as many units as are solved together; rows are visited for those of one part."""
        units = [_Unit(line, part) for line, part in product(lines, range(len(batch.folds)))]
        if not self._walks:
            units.sort(key=lambda unit: unit.part)
        n_arrays = _STATE_ARRAYS if self._walks else _DUAL_ARRAYS
        task_bytes = 8 * n_arrays * batch.prepared.design.n_columns
        step = max(1, _MOST_BYTES // (task_bytes * len(self._labels.positive_classes)))
        for first in range(0, len(units), step):
            yield units[first : first + step]

    def _solve(
        self,
        batch: _Batch,
        units: list[_Unit],
        scale: float,
        efforts: dict[_Unit, Effort],
        start: dict[_Unit, Linear],
        *,
        bend: bool,
    ) -> int:
        """Fit units at one scale from where they start, and set where they start from next.

        Returns the number of steps.
        """
        problems, design = self._labels.positive_classes, batch.prepared.design
        losses = [MarginLoss(self._options.margin, scale, unit.line[1]) for unit in units]
        tasks = Tasks(
            batch.codes,
            batch.weights,
            np.tile(problems, len(units)),
            np.repeat([unit.part for unit in units], len(problems)),
            tuple(loss for loss in losses for _ in problems),
            batch.stretches,
        )
        nothing = np.zeros((design.n_columns, len(problems))), np.zeros(len(problems))
        starts = [start.get(unit, nothing) for unit in units]
        problem = Problem(
            batch.prepared,
            tasks,
            self._options.factor * np.repeat([unit.line[0] for unit in units], len(problems)),
            (np.hstack([s[0] for s in starts]), np.concatenate([s[1] for s in starts])),
            max(efforts[unit].max_iter for unit in units),
            min(efforts[unit].tol for unit in units),
            report=lambda progress: None,  # fits are many: they are counted, not followed
        )
        if bend:
            problem = replace(problem, prepared=self._bent(problem))
        before = design.n_passes
        # One small estimate of the gap may only mean that the last scale was a good start.
        tols = np.repeat([efforts[unit].tol for unit in units], len(problems))
        if self._walks:
            solution = minimise(problem, times=2, tols=tols)
        else:
            solution = self._visited(problem, tols)
        coef, intercept = solution.linear
        self.n_passes += design.n_passes - before
        for unit, span in zip(units, self._spans(len(units)), strict=True):
            start[unit] = coef[:, span], intercept[span]
        return solution.n_iter

    def _visited(self, problem: Problem, tols: FloatArray) -> Solution:
        """Fit in the dual, and where passes do not suffice and a fit is to count, in the primal.

        Values and gaps are those of the last pass.
        """
        most = max(self._rough.max_iter, int(_PASSES / problem.tol))
        few = replace(problem, max_iter=min(problem.max_iter, most))
        solution = solve_dual(few, _GAP * tols)
        coef, intercept = solution.linear
        slow = np.flatnonzero(solution.gap > _GAP * tols)
        step = max(1, _MOST_BYTES // (8 * _STATE_ARRAYS * len(coef)))
        for first in range(0, 0 if self._is_rough else len(slow), step):
            some = slow[first : first + step]
            rest = replace(
                problem,
                tasks=problem.tasks.take(some),
                alphas=problem.alphas[some],
                start=(coef[:, some], intercept[some]),
            )
            found = minimise(rest, times=5, fewest=_FEWEST_STEPS, tols=tols[some])
            coef[:, some], intercept[some] = found.linear
        return solution

    def _may_bend(self, batch: _Batch) -> bool:
        """Whether tasks of one problem, not to be fitted roughly, may share a Hessian of rows."""
        design, is_rough = batch.prepared.design, self._effort == self._rough
        is_at_hand = isinstance(design, MemoryDesign) and design.n_stored >= _FEWEST_ELEMENTS
        is_one_problem = len(self._labels.positive_classes) == 1
        return (
            batch.prepared.with_hessian is not None
            and is_at_hand
            and is_one_problem
            and not is_rough
        )

    def _bent(self, problem: Problem) -> Prepared:
        """Return the prepared of the mean Hessian where tasks start, if it is worth its while."""
        prepared, (coef, intercept) = problem.prepared, problem.start
        design = prepared.design
        few = np.arange(0, len(problem.tasks), -(-len(problem.tasks) // _BENT_BY))
        tasks, curvature = problem.tasks.take(few), np.zeros(design.n_rows)
        scores = design.scores(coef[:, few], intercept[few])
        self.n_passes += 1
        for k, loss in enumerate(tasks.losses):
            bend = loss.curvature(tasks.sign(k) * scores[:, k])
            curvature += tasks.weights[tasks.part[k]] * bend / len(tasks)
        taken = np.count_nonzero(curvature) * design.n_columns
        if (
            prepared.with_hessian is None
            or taken > _WORTH_BENDING * len(problem.tasks) * design.n_rows
        ):
            return prepared
        self.n_passes += 2
        return replace(prepared.with_hessian(curvature), design=design)

    def _held_out(
        self, batch: _Batch, units: list[_Unit], scale: float, fits: dict[_Unit, Linear]
    ) -> Iterator[Judged]:
        """Yield what units give the rows they have not seen, in one read of as many as fit."""
        if not units:
            return
        parts = [fits[unit] for unit in units]
        own = np.hstack([coef for coef, _ in parts]), np.concatenate([part[1] for part in parts])
        coef, intercept = batch.to_reader(own)
        spans, n_problems = self._spans(len(units)), len(self._labels.positive_classes)
        most_rows = int(batch.tests.sum(axis=1).max())
        step = max(1, _MOST_BYTES // (8 * n_problems * max(1, most_rows)))
        for first in range(0, len(units), step):
            group = list(zip(units, spans, strict=True))[first : first + step]
            tasks = slice(group[0][1].start, group[-1][1].stop)
            part = np.repeat([unit.part for unit, _ in group], n_problems)
            scores = batch.reader.part_scores(coef[:, tasks], intercept[tasks], batch.tests, part)
            self.n_passes += self._judging
            ahead = [iter(self._spans(len(units))) for _ in batch.folds]
            for unit, span in group:
                unseen = np.ascontiguousarray(scores[unit.part][:, next(ahead[unit.part])])
                linear: Linear | None = (coef[:, span], intercept[span])
                if batch.reader is not self._reader:
                    linear = None if self._is_rough else batch.prepared.to_data(fits[unit])
                yield Judged(Setting(*unit.line, scale), batch.folds[unit.part], linear, unseen)

    def _spans(self, n_units: int) -> list[slice]:
        """Return which tasks belong to each unit."""
        n_problems = len(self._labels.positive_classes)
        return [slice(k * n_problems, (k + 1) * n_problems) for k in range(n_units)]


def _by_overconfidence(units: list[_Unit]) -> list[list[_Unit]]:
    values = sorted({unit.line[1] for unit in units})
    return [[unit for unit in units if unit.line[1] == value] for value in values]
