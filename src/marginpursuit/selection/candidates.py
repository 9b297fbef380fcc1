"""The values that the search, its rungs and the fold fits exchange."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear


class Path(NamedTuple):
    """The candidates that differ by their scale alone."""

    alpha: float
    overconfidence: float


class Candidate(NamedTuple):
    """A setting of the hyper-parameters."""

    alpha: float
    overconfidence: float
    scale: float

    @property
    def path(self) -> Path:
        """The path that the candidate is on."""
        return Path(self.alpha, self.overconfidence)


class Fold(NamedTuple):
    """Increasing indices of the rows to fit and of the rows to score.

    On a subsample they are indices into two matrices: that of the fitted and that of the scored
    rows.
    """

    train: NDArray[np.intp]
    test: NDArray[np.intp]


class Stopping(NamedTuple):
    """When a fit stops: after `max_iter` iterations, or at a relative suboptimality of `tol`."""

    max_iter: int
    tol: float

    def loosened(self, other: "Stopping") -> "Stopping":
        """Return the rule with the smaller `max_iter` and the larger `tol` of the two."""
        return Stopping(min(self.max_iter, other.max_iter), max(self.tol, other.tol))


@dataclass(frozen=True)
class FitOptions:
    """Options that all fold fits have in common."""

    margin: float
    alpha_unit: str
    fit_intercept: bool
    solver: str  # "auto" or the user's choice
    n_threads: int
    are_penalised: bool = True  # whether the penalties of all candidates are positive
    rho: str = "catoni"  # of the loss
    #: Whether several classes have a joint loss where overconfidence is zero.
    is_joint: bool = False
    alpha_factor: float = 1.0  # by which penalties are multiplied, to fit a subsample
    n_samples: float = np.inf  # the number of all rows, in the unit "inflated" of the penalty


class FoldBatch(NamedTuple):
    """The fits of some candidates to a fold, and the scores h(x) of the rows that it holds out.

    `linear` has the columns of all candidates; it is None on a subsample.
    """

    candidates: list[Candidate]
    fold: int
    linear: Linear | None  # in the coordinates of the data
    scores: FloatArray  # (n_test, n_candidates, n_problems)
