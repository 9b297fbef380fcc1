"""Many settings on the folds of a cross-validation, in shared reads of the data.

A *setting* is a penalty, an overconfidence and a scale. A *line* is a setting without its scale:
along a line the scales are walked from the largest, where the loss is nearly quadratic, to the
smallest, each from the fits before. All lines, folds and classes are tasks of the same sweeps, as
many at a time as memory permits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Linear, design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Geometry, Problem, choose_solver, minimise
from marginpursuit.tasks import Labels, Tasks

# Bytes that the state of all tasks that are solved together may take, and arrays of that state.
_MOST_BYTES = 1 << 28
_STATE_ARRAYS = 24


class Setting(NamedTuple):
    """What is chosen by cross-validation."""

    alpha: float
    overconfidence: float
    scale: float


class Fold(NamedTuple):
    """Rows to fit and rows to judge by, both in rising order."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]


class Effort(NamedTuple):
    """How long to go on with a fit."""

    max_iter: int
    tol: float


class Judged(NamedTuple):
    """The fit of a setting to a fold, and the scores h(x) it gives the rows it has not seen."""

    setting: Setting
    fold: int
    linear: Linear  # for the data as it came
    scores: FloatArray  # (n_test, n_problems)


@dataclass(frozen=True)
class FoldOptions:
    """What all fits have in common."""

    margin: float
    unit: str  # of penalties
    fit_intercept: bool
    solver: str
    n_threads: int
    factor: float = 1.0  # that penalties are multiplied by


class _Unit(NamedTuple):
    """All classes of a line on one part of the rows of a batch."""

    line: tuple[float, float]  # penalty and overconfidence
    part: int


@dataclass(frozen=True)
class _Batch:
    """Folds whose fits share reads of one design."""

    geometry: Geometry
    codes: NDArray[np.intp]
    weights: FloatArray  # (n_folds, n_rows of the design)
    folds: list[int]


class FoldFits:
    """Fits of settings to folds.

    With fewer rows than columns every fold has a space of rows, and so reads, of its own.
    """

    def __init__(
        self,
        matrix: Any,
        labels: Labels,
        weights: FloatArray,  # (n_folds, n_rows)
        folds: Sequence[Fold],
        options: FoldOptions,
    ) -> None:
        self.n_reads = 0
        self._labels, self._folds, self._options = labels, folds, options
        self._stack = ExitStack()
        self._reader = self._open(matrix)
        self._solver = choose_solver(self._reader) if options.solver == "auto" else options.solver
        in_rows = self._solver == "gram" and matrix.shape[0] < matrix.shape[1]
        groups = [[k] for k in range(len(folds))] if in_rows else [list(range(len(folds)))]
        self._batches = [self._batch(matrix, weights, group, in_rows) for group in groups]

    def __enter__(self) -> "FoldFits":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def judge(
        self,
        settings: Sequence[Setting],
        effort: Effort,
        known: Mapping[tuple[Setting, int], Linear],
    ) -> Iterator[Judged]:
        """Fit every setting to every fold and yield the scores of the rows it has not seen.

        `known` are fits to begin with, for the data as it came, by setting and fold.
        """
        lines = sorted({setting[:2] for setting in settings})
        scales = sorted({setting.scale for setting in settings}, reverse=True)
        for batch in self._batches:
            for units in self._chunks(batch, lines):
                start: dict[_Unit, Linear] = {}
                for scale in scales:
                    here = [unit for unit in units if Setting(*unit.line, scale) in settings]
                    if not here:
                        continue
                    for unit in here:
                        fit = known.get((Setting(*unit.line, scale), batch.folds[unit.part]))
                        if fit is not None:
                            start[unit] = batch.geometry.from_data(fit)
                    fits = self._solve(batch, here, scale, effort, start)
                    yield from self._held_out(batch, here, scale, fits)

    def _open(self, matrix: Any) -> Design:
        return self._stack.enter_context(design_for(matrix, n_threads=self._options.n_threads))

    def _batch(self, matrix: Any, weights: FloatArray, folds: list[int], alone: bool) -> _Batch:
        rows = self._folds[folds[0]].train if alone else slice(None)
        parts = np.ascontiguousarray(weights[folds][:, rows])
        design = self._open(matrix[rows] if alone else matrix)
        geometry = SOLVERS[self._solver].prepare(
            design, parts, self._options.unit, fit_intercept=self._options.fit_intercept
        )
        self.n_reads += design.n_reads
        return _Batch(geometry, self._labels.codes[rows], parts, folds)

    def _chunks(self, batch: _Batch, lines: list[tuple[float, float]]) -> Iterator[list[_Unit]]:
        """Yield as many units as are solved together."""
        units = [_Unit(line, part) for line, part in product(lines, range(len(batch.folds)))]
        task_bytes = 8 * _STATE_ARRAYS * batch.geometry.design.n_columns
        step = max(1, _MOST_BYTES // (task_bytes * len(self._labels.problems)))
        for first in range(0, len(units), step):
            yield units[first : first + step]

    def _solve(
        self,
        batch: _Batch,
        units: list[_Unit],
        scale: float,
        effort: Effort,
        start: dict[_Unit, Linear],
    ) -> Linear:
        """Fit units at one scale from where they start, and set where they start from next."""
        problems, design = self._labels.problems, batch.geometry.design
        losses = [MarginLoss(self._options.margin, scale, unit.line[1]) for unit in units]
        tasks = Tasks(
            batch.codes,
            batch.weights,
            np.tile(problems, len(units)),
            np.repeat([unit.part for unit in units], len(problems)),
            tuple(loss for loss in losses for _ in problems),
        )
        nothing = np.zeros((design.n_columns, len(problems))), np.zeros(len(problems))
        starts = [start.get(unit, nothing) for unit in units]
        problem = Problem(
            batch.geometry,
            tasks,
            self._options.factor * np.repeat([unit.line[0] for unit in units], len(problems)),
            (np.hstack([s[0] for s in starts]), np.concatenate([s[1] for s in starts])),
            effort.max_iter,
            effort.tol,
            report=lambda progress: None,  # fits are many: they are counted, not followed
        )
        before = design.n_reads
        # One small estimate of the gap may only mean that the last scale was a good start.
        coef, intercept = minimise(problem, times=2).linear
        self.n_reads += design.n_reads - before
        for unit, span in zip(units, self._spans(len(units)), strict=True):
            start[unit] = coef[:, span], intercept[span]
        return coef, intercept

    def _held_out(
        self, batch: _Batch, units: list[_Unit], scale: float, fits: Linear
    ) -> Iterator[Judged]:
        coef, intercept = batch.geometry.to_data(fits)
        folds, spans = [batch.folds[unit.part] for unit in units], self._spans(len(units))
        tests = [self._folds[fold].test for fold in folds]
        judged = [np.empty((len(test), len(self._labels.problems))) for test in tests]
        for rows, scores in self._reader.score_chunks(coef, intercept):
            for test, span, kept in zip(tests, spans, judged, strict=True):
                first, last = np.searchsorted(test, [rows.start, rows.stop])
                kept[first:last] = scores[test[first:last] - rows.start, span]
        self.n_reads += 1
        for unit, fold, span, kept in zip(units, folds, spans, judged, strict=True):
            yield Judged(Setting(*unit.line, scale), fold, (coef[:, span], intercept[span]), kept)

    def _spans(self, n_units: int) -> list[slice]:
        """Return which tasks belong to each unit."""
        n_problems = len(self._labels.problems)
        return [slice(k * n_problems, (k + 1) * n_problems) for k in range(n_units)]
