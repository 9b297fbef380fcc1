r"""Problems that share each pass over the data.

A *task* is one column of all coefficients: one positive class against the rest, with the sample
weights of one fold, and one loss. Several classes, folds and candidates are tasks of one pass. A
*joint task* has one column for each class, and a loss of all their scores. Where a row has any
number of labels, a task is one label.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from marginpursuit._kernels import is_positive
from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.losses import JointLoss, MarginLoss

__all__ = ["JointTasks", "LabelSets", "LabelTasks", "Labels", "RowRanges", "Tasks", "value_at_zero"]


@dataclass(frozen=True, slots=True)
class Labels:
    """The class of each row, and the binary problems of one class against the rest.

    A binary problem is named by its positive class, whose rows have y = +1; all others have
    y = -1. Two classes give one binary problem, K > 2 classes give K.
    """

    codes: NDArray[np.intp]
    n_classes: int

    @property
    def positive_classes(self) -> NDArray[np.intp]:
        """The positive class of each binary problem."""
        return np.arange(1, 2) if self.n_classes == 2 else np.arange(self.n_classes)

    @property
    def strata(self) -> NDArray[np.intp]:
        """The group of each row within which rows are split and subsampled: its class."""
        return self.codes

    @property
    def n_strata(self) -> int:
        """The number of these groups."""
        return self.n_classes

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.codes.shape[-1])

    def take(self, rows: NDArray[np.intp] | slice) -> Self:
        """Return the labels of some rows."""
        return replace(self, codes=self.codes[..., rows])

    def is_positive(self, problem: int) -> NDArray[np.bool_]:
        """Return whether y = +1, for one binary problem."""
        return np.asarray(self.codes == problem)

    def sign(self, problem: int) -> FloatArray:
        """Return y in {-1, +1} for one binary problem."""
        return np.where(self.is_positive(problem), 1.0, -1.0)


@dataclass(frozen=True, slots=True)
class LabelSets(Labels):
    """Any number of labels of each row; each label is a binary problem.

    `codes` has shape (n_codes, n_rows): bit k of code j states whether a row has the label
    62 j + k. `n_classes` is the number of labels. All rows are one stratum.
    """

    labels_per_code: ClassVar[int] = 62

    factors: FloatArray | None = None  # (2, n_labels), of weights of rows without and with a label

    @classmethod
    def of(cls, indicator: Any) -> "LabelSets":
        """Return the labels that an indicator matrix, (n_rows, n_labels), has non-zero entries for.

        The matrix is a NumPy array or a SciPy sparse matrix that slices columns.
        """
        n_rows, n_labels = indicator.shape
        size = cls.labels_per_code
        codes = np.zeros((-(-n_labels // size), n_rows), dtype=np.intp)
        for label in range(n_labels):
            column = indicator[:, [label]]
            column = column if isinstance(column, np.ndarray) else column.toarray()
            codes[label // size] |= (column[:, 0] != 0).astype(np.intp) << label % size
        return cls(codes, n_labels)

    @property
    def positive_classes(self) -> NDArray[np.intp]:
        """The labels."""
        return np.arange(self.n_classes)

    @property
    def strata(self) -> NDArray[np.intp]:
        """One group of all rows."""
        return np.zeros(self.codes.shape[1], dtype=np.intp)

    @property
    def n_strata(self) -> int:
        """The number of groups: one."""
        return 1

    def is_positive(self, problem: int) -> NDArray[np.bool_]:
        """Return whether rows have a label."""
        code, bit = divmod(problem, self.labels_per_code)
        return is_positive(self.codes[code], ~bit)

    def indicator(self) -> NDArray[np.bool_]:
        """Return whether each row has each label, of shape (n_rows, n_labels)."""
        return self.has(self.codes, self.positive_classes).T

    def only(self, labels: NDArray[np.intp]) -> "LabelSets":
        """Return some of the labels, numbered from zero on."""
        factors = None if self.factors is None else self.factors[:, labels]
        return replace(LabelSets.of(self.has(self.codes, labels).T), factors=factors)

    def weights(self, of_rows: FloatArray) -> FloatArray:
        """Return the weights of the rows for each label, which sum to one.

        The shape is (n_labels, n_rows); (1, n_rows) where all labels have those of the rows. A
        label whose rows all have a factor of zero has those of the rows.
        """
        if self.factors is None:
            return of_rows[np.newaxis, :]
        has_label = self.has(self.codes, self.positive_classes)
        without, with_label = self.factors[:, :, np.newaxis]
        weights = np.where(has_label, with_label, without) * of_rows
        totals = weights.sum(axis=1)
        weights[totals == 0] = of_rows
        return np.asarray(weights / np.where(totals > 0, totals, of_rows.sum())[:, np.newaxis])

    @classmethod
    def has(cls, codes: NDArray[np.intp], labels: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether rows with these codes have each of some labels, (n_labels, n_rows)."""
        code, bit = np.divmod(labels, cls.labels_per_code)
        return (codes[code] >> bit[:, np.newaxis] & 1).astype(bool)


@lru_cache(maxsize=1024)
def value_at_zero(loss: Any, n_classes: int = 2) -> float:
    """Return the loss of a row where all scores are zero; equal losses recur in every fit."""
    if isinstance(loss, JointLoss):
        return float(loss.loss.value(loss.zero_margin(n_classes)))
    return float(loss.value(0.0))


@lru_cache(maxsize=1024)
def _mean_curvature(loss: JointLoss, n_classes: int) -> float:
    """Return the mean curvature of a joint loss; a search asks 150 times for four losses."""
    return loss.mean_curvature(n_classes)


class RowRanges(NamedTuple):
    """Ranges of rows in an order in which the rows that a fold holds out are contiguous.

    A sweep skips the tasks of a fold in ranges where all weights of the fold are zero.
    """

    edges: NDArray[np.intp]  # (n_ranges + 1,)
    is_used: NDArray[np.bool_]  # (n_folds, n_ranges), whether a fold has non-zero weights there

    @classmethod
    def of(
        cls, weights: FloatArray, min_mean_rows: int = 256
    ) -> "tuple[NDArray[np.intp], RowRanges]":
        """Return an order of the rows and its ranges, for weights of shape (n_folds, n_rows).

        Ranges of fewer rows in the mean than `min_mean_rows` cost more calls than they save: the
        order is then that of the data, and there is one range.
        """
        nonzero, n_rows = weights != 0, weights.shape[1]
        order = np.lexsort(np.packbits(nonzero, axis=0))
        ordered = nonzero[:, order]
        changes = np.flatnonzero(np.any(ordered[:, 1:] != ordered[:, :-1], axis=0))
        if min_mean_rows * len(changes) > n_rows:
            changes, order = changes[:0], np.arange(n_rows)
        edges = np.concatenate([[0], 1 + changes, [n_rows]])
        return order, cls(edges, np.logical_or.reduceat(ordered, edges[:-1], axis=1))


@dataclass(frozen=True)
class Tasks:
    """Tasks that share each pass over the data.

    The sample weights of a fold sum to one and are zero for the rows that it holds out. A fit
    without folds has one set of weights.
    """

    codes: NDArray[np.intp]  # (n_rows,), the class of each row
    weights: FloatArray  # (n_folds, n_rows)
    positive: NDArray[np.intp]  # (n_tasks,), the positive class of each task
    fold: NDArray[np.intp]  # (n_tasks,), the row of `weights` that a task uses
    losses: tuple[Any, ...]  # (n_tasks,)
    ranges: RowRanges | None = None  # None: every task uses all rows
    #: Whether the kernels evaluate the losses: all are of one kind that they know.
    has_compiled_losses: bool = field(init=False, compare=False)
    #: Code, margin, scale and overconfidence of each loss, of shape (n_tasks, 4), for kernels.
    loss_parameters: FloatArray = field(init=False, compare=False)
    _signs: dict[int, FloatArray] = field(init=False, compare=False, default_factory=dict)

    #: Tasks up to which the signs of each are kept.
    max_cached_signs: ClassVar[int] = 3

    def __post_init__(self) -> None:
        # Many tasks share one loss, whose parameters are asked for once.
        unique = {id(loss): loss for loss in self.losses}
        known = {key: getattr(loss, "kernel_parameters", None) for key, loss in unique.items()}
        found = [known[id(loss)] for loss in self.losses]
        codes = {None if parameters is None else parameters[0] for parameters in found}
        is_known = len(codes) == 1 and None not in codes
        object.__setattr__(self, "has_compiled_losses", is_known)
        parameters = np.array(found, dtype=np.float64) if is_known else np.empty((0, 4))
        object.__setattr__(self, "loss_parameters", parameters)

    @classmethod
    def of(cls, labels: Labels, weights: FloatArray, loss: MarginLoss) -> "Tasks":
        """Return one task for each binary problem, on all rows."""
        positive, losses = labels.positive_classes, (loss,) * len(labels.positive_classes)
        if isinstance(labels, LabelSets):
            weights = labels.weights(weights)
            fold = np.arange(len(positive)) % len(weights)
            return LabelTasks(labels.codes, weights, positive, fold, losses)
        fold = np.zeros(len(positive), dtype=np.intp)
        return cls(labels.codes, weights[np.newaxis, :], positive, fold, losses)

    def __len__(self) -> int:
        return len(self.losses)

    @property
    def columns_per_task(self) -> int:
        """Consecutive columns of the coefficients that belong to one task."""
        return 1

    def curvature(self) -> FloatArray:
        """Return the multiple of the Gram matrix that approximates the Hessian of each task."""
        return np.ones(len(self))

    def values_at_zero(self) -> FloatArray:
        """Return the loss of each task where all scores are zero; many tasks share a loss."""
        distinct = {id(loss): loss for loss in self.losses}
        values = {key: value_at_zero(loss) for key, loss in distinct.items()}
        return np.array([values[id(loss)] for loss in self.losses])

    def used_ranges(self, first: int, last: int) -> Iterator[tuple[int, int, NDArray[np.intp]]]:
        """Yield the ranges within rows [first, last), each with the tasks that use it."""
        if self.ranges is None:
            yield first, last, np.arange(len(self))
            return
        cuts = np.clip(self.ranges.edges, first, last).tolist()
        for start, stop, folds in zip(cuts[:-1], cuts[1:], self.ranges.is_used.T, strict=True):
            which = np.flatnonzero(folds[self.fold])
            if start < stop and len(which):
                yield start, stop, which

    def code_table(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Return codes of shape (n_codes, n_rows), and what kernels compare them with.

        For each task these are a row of the codes and a number
        (:func:`~marginpursuit._kernels.is_positive`).
        """
        return self.codes[None, :], np.zeros(len(self), dtype=np.intp), self.positive

    def by_codes(
        self, which: NDArray[np.intp]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]]:
        """Yield groups of these tasks that have the same codes.

        Each has indices of its tasks, one code per row, and what these are compared with.
        """
        yield which, self.codes, self.positive[which]

    def take(self, which: NDArray[np.intp]) -> Self:
        """Return some of the tasks."""
        if len(which) == len(self):
            return self
        losses = tuple(self.losses[k] for k in which)
        return replace(self, positive=self.positive[which], fold=self.fold[which], losses=losses)

    def on_host(self) -> Self:
        """Return the same tasks with labels and weights copied from their device to NumPy."""
        return replace(self, codes=to_numpy(self.codes), weights=to_numpy(self.weights))

    def sign(self, task: int) -> FloatArray:
        """Return y in {-1, +1} for one task; of few tasks, an array that later calls return too."""
        positive = int(self.positive[task])
        if len(self.losses) > self.max_cached_signs:
            return np.where(self.codes == positive, 1.0, -1.0)
        if positive not in self._signs:  # every sweep of a few tasks uses it
            self._signs[positive] = np.where(self.codes == positive, 1.0, -1.0)
        return self._signs[positive]


@dataclass(frozen=True)
class LabelTasks(Tasks):
    """Tasks of rows with any number of labels: `positive` is the label of each task.

    `codes` are those of :class:`LabelSets`. Labels with weights of classes have a fold each.
    """

    def code_table(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Return the codes, and of each task the code and the complement of the bit."""
        code, bit = np.divmod(self.positive, LabelSets.labels_per_code)
        return self.codes, code, ~bit

    def by_codes(
        self, which: NDArray[np.intp]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]]:
        """Yield groups of these tasks whose labels are bits of the same code."""
        codes, code, positive = self.code_table()
        for number in range(len(codes)):
            own = which[code[which] == number]
            # Rows that were selected by indices have strided codes; kernels read contiguous ones.
            if len(own):
                yield own, np.ascontiguousarray(codes[number]), positive[own]

    def sign(self, task: int) -> FloatArray:
        """Return y in {-1, +1} for one task."""
        ((_, codes, positive),) = self.by_codes(np.array([task]))
        return np.where(is_positive(codes, int(positive[0])), 1.0, -1.0)


@dataclass(frozen=True)
class JointTasks(Tasks):
    """Tasks with a joint loss of the scores of all classes.

    Task j has the columns j K to (j + 1) K - 1 of the coefficients, one for each class. There is no
    positive class: `positive` is zero.
    """

    n_classes: int = 0

    @classmethod
    def of(cls, labels: Labels, weights: FloatArray, loss: JointLoss) -> "JointTasks":  # type: ignore[override]
        """Return one task for all classes, on all rows."""
        zero = np.zeros(1, dtype=np.intp)
        return cls(labels.codes, weights[None, :], zero, zero, (loss,), n_classes=labels.n_classes)

    @property
    def columns_per_task(self) -> int:
        """The number of classes."""
        return self.n_classes

    def curvature(self) -> FloatArray:
        """Return the multiple of the Gram matrix that approximates the mean diagonal block."""
        return np.array([_mean_curvature(loss, self.n_classes) for loss in self.losses])

    def values_at_zero(self) -> FloatArray:
        """Return the loss of each task where all scores are zero."""
        return np.array([value_at_zero(loss, self.n_classes) for loss in self.losses])

    def sign(self, task: int) -> FloatArray:
        """Raise a TypeError: a joint task has no positive class."""
        raise TypeError("a joint task has no sign; use a solver that supports joint losses")
