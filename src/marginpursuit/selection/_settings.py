"""What is searched, and what fits to folds are asked for and answer."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear


class Setting(NamedTuple):
    """What is chosen by cross-validation."""

    alpha: float
    overconfidence: float
    scale: float


class Fold(NamedTuple):
    """Rows to fit and rows to judge by, both in rising order, perhaps of different matrices."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]


class Effort(NamedTuple):
    """How long to go on with a fit."""

    max_iter: int
    tol: float

    def at_most(self, other: "Effort") -> "Effort":
        """Return no more effort than another."""
        return Effort(min(self.max_iter, other.max_iter), max(self.tol, other.tol))


class Judged(NamedTuple):
    """The fit of a setting to a fold, and the scores h(x) it gives the rows it has not seen."""

    setting: Setting
    fold: int
    linear: Linear | None  # for the data as it came; of a rough fit, if it was had in passing
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
    are_penalised: bool = True  # whether all penalties are positive
