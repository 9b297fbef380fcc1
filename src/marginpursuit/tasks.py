"""What is asked of the data: which rows, which class against the rest, with which loss."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.losses import MarginLoss

__all__ = ["Labels", "Tasks"]


@dataclass(frozen=True, slots=True)
class Labels:
    """Which class each row has, and the problems that this poses.

    A problem is named by its positive class; the rows of that class have sign +1, all others -1.
    Two classes are one problem, K > 2 classes are K problems, one against the rest.
    """

    codes: NDArray[np.intp]
    n_classes: int

    @property
    def positive_classes(self) -> NDArray[np.intp]:
        """The positive class of each problem."""
        return np.arange(1, 2) if self.n_classes == 2 else np.arange(self.n_classes)

    def take(self, rows: NDArray[np.intp] | slice) -> "Labels":
        """Return those of some rows."""
        return Labels(self.codes[rows], self.n_classes)

    def sign(self, problem: int) -> FloatArray:
        """Return y in {-1, +1} for one problem."""
        return np.where(self.codes == problem, 1.0, -1.0)


# Rows of a stretch, in the mean, that are too few to be cut for.
_SHORT_STRETCH = 256


class Stretches(NamedTuple):
    """Rows in an order in which those that a part leaves out lie together."""

    edges: NDArray[np.intp]  # (n_stretches + 1,)
    busy: NDArray[np.bool_]  # (n_parts, n_stretches), whether a part has any weight there

    @classmethod
    def of(cls, weights: FloatArray) -> "tuple[NDArray[np.intp], Stretches]":
        """Return an order of the rows and its stretches, for weights of shape (n_parts, n_rows)."""
        counted, n_rows = weights != 0, weights.shape[1]
        order = np.lexsort(np.packbits(counted, axis=0))
        ordered = counted[:, order]
        changes = np.flatnonzero(np.any(ordered[:, 1:] != ordered[:, :-1], axis=0))
        if _SHORT_STRETCH * len(changes) > n_rows:
            changes, order = changes[:0], np.arange(n_rows)
        edges = np.concatenate([[0], 1 + changes, [n_rows]])
        return order, cls(edges, np.logical_or.reduceat(ordered, edges[:-1], axis=1))


@dataclass(frozen=True)
class Tasks:
    """Tasks that share each read of the data; a task is one column of all coefficients.

    A task is one problem, on one part of the rows, with one loss. A part is a set of weights that
    sum to one: those of all rows, or zero for the rows that a fold holds out.
    """

    codes: NDArray[np.intp]  # (n_rows,), the class of each row
    weights: FloatArray  # (n_parts, n_rows)
    positive: NDArray[np.intp]  # (n_tasks,), the positive class of each task
    part: NDArray[np.intp]  # (n_tasks,), an index into the weights
    losses: tuple[MarginLoss, ...]  # (n_tasks,)
    stretches: Stretches | None = None  # where there is something to be left out

    @classmethod
    def of(cls, labels: Labels, weights: FloatArray, loss: MarginLoss) -> "Tasks":
        """Pose every problem once, on all rows."""
        positive = labels.positive_classes
        part = np.zeros(len(positive), dtype=np.intp)
        weights = weights[np.newaxis, :]
        return cls(labels.codes, weights, positive, part, (loss,) * len(positive))

    def __len__(self) -> int:
        return len(self.losses)

    @property
    def loss_parameters(self) -> FloatArray:
        """Margin, scale and overconfidence of each task, of shape (n_tasks, 3)."""
        return np.array([(x.margin, x.scale, x.overconfidence) for x in self.losses])

    def busy(self, first: int, last: int) -> Iterator[tuple[int, int, NDArray[np.intp]]]:
        """Cut rows [first, last) where others are left out, and yield the tasks of each cut."""
        if self.stretches is None:
            yield first, last, np.arange(len(self))
            return
        edges, busy = self.stretches
        cuts = np.clip(edges, first, last).tolist()
        for start, stop, parts in zip(cuts[:-1], cuts[1:], busy.T, strict=True):
            which = np.flatnonzero(parts[self.part])
            if start < stop and len(which):
                yield start, stop, which

    def take(self, which: NDArray[np.intp]) -> "Tasks":
        """Return some of the tasks."""
        if len(which) == len(self):
            return self
        losses = tuple(self.losses[k] for k in which)
        return replace(self, positive=self.positive[which], part=self.part[which], losses=losses)

    def with_loss(self, loss: MarginLoss) -> "Tasks":
        """Return the same tasks, all with another loss."""
        return replace(self, losses=(loss,) * len(self))

    def on_host(self) -> "Tasks":
        """Return the same tasks with labels and weights as NumPy arrays, wherever they are."""
        return replace(self, codes=to_numpy(self.codes), weights=to_numpy(self.weights))

    def sign(self, task: int) -> FloatArray:
        """Return y in {-1, +1} for one task; not to be written to."""
        if len(self) == 1:  # asked for in every sweep
            return self._only_sign
        return np.where(self.codes == self.positive[task], 1.0, -1.0)

    @cached_property
    def _only_sign(self) -> FloatArray:
        return np.where(self.codes == self.positive[0], 1.0, -1.0)
