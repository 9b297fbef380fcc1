"""The solver for data with many rows and many columns, usually sparse.

No matrix of the size of the Gram matrix is computed: its diagonal, which is one for standardised
columns, preconditions L-BFGS. Sparse columns with one non-zero are merged first, where the penalty
is rotation-invariant.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from marginpursuit._validation import FloatArray
from marginpursuit.design import (
    ColumnRotation,
    Linear,
    MemoryDesign,
    Standardisation,
    merge_columns,
)
from marginpursuit.solvers._numpy_lbfgs import minimise
from marginpursuit.solvers._problem import (
    ROTATION_INVARIANT,
    Prepared,
    Problem,
    Request,
    Solution,
    mean_penalty_weights,
    mean_weights,
    request_penalty_weights,
)
from marginpursuit.solvers.preconditioners import DiagonalPreconditioner

__all__ = ["LbfgsSolver"]


class LbfgsSolver:
    """L-BFGS preconditioned by the diagonal of the Gram matrix."""

    name: ClassVar[str] = "lbfgs"
    supports_joint: ClassVar[bool] = True
    depends_on_units: ClassVar[bool] = False
    warm_starts: ClassVar[bool] = True
    solves_paths: ClassVar[bool] = False
    shares_passes: ClassVar[bool] = True
    bounds_gap: ClassVar[bool] = False
    merges_columns: ClassVar[bool] = True
    reads_factored_rows: ClassVar[bool] = True
    # After 25 iterations the scores of one class of news20 were up to 4 points too low.
    loose_stopping: ClassVar[tuple[int, float]] = (75, 1e-2)

    def supports(self, request: Request) -> str | None:
        """Return None, or why the request is not supported."""
        return request.lacks("curvature_bound")

    def prepare(self, request: Request) -> Prepared:
        """Standardise the columns, merged where possible."""
        request, rotation = merge_request(request)
        design = request.design
        weights, fold_ratio = mean_weights(request)
        standardisation = design.standardisation(weights, centred=request.fit_intercept)
        penalty_weights = request_penalty_weights(request, standardisation)
        mean = mean_penalty_weights(penalty_weights)
        preconditioner = DiagonalPreconditioner(fold_ratio, mean, request.fit_intercept)
        transform = (
            standardisation if rotation is None else MergedColumns(standardisation, rotation)
        )
        prepared = Prepared(
            design=design,
            standardisation=standardisation,
            fit_intercept=request.fit_intercept,
            penalty_weights=penalty_weights,
            preconditioner=preconditioner,
            transform=transform,
        )
        if request.order is None:
            return prepared
        copy = design.float32_copy(request.order, standardisation)
        if copy is None:
            return prepared
        identity = Standardisation.identity(design.n_columns)
        return replace(prepared, design=copy, standardisation=identity, order=request.order)

    def separates_folds(self, request: Request) -> bool:
        """Return False: folds share the design matrix."""
        return False

    def solve_folds(self, problem: Problem, tol: FloatArray) -> Solution:
        """Minimise the objective of every task by L-BFGS."""
        n_confirmations = problem.policy.lbfgs.fold_confirmations
        return minimise(problem, n_confirmations=n_confirmations, tol=tol)

    def solve(self, problem: Problem) -> Solution:
        """Minimise by L-BFGS."""
        return minimise(problem, n_confirmations=problem.policy.lbfgs.final_confirmations)


@dataclass(frozen=True, slots=True)
class MergedColumns:
    """Standardisation of merged columns."""

    standardisation: Standardisation
    rotation: ColumnRotation

    def to_data(self, linear: Linear) -> Linear:
        """Translate a model to one for all columns as they are."""
        return self.rotation.to_data(self.standardisation.to_data(linear))

    def from_data(self, linear: Linear) -> Linear:
        """Translate a model for all columns, up to what merged columns can represent."""
        return self.standardisation.from_data(self.rotation.from_data(linear))


def merge_request(request: Request) -> tuple[Request, ColumnRotation | None]:
    """Return the request for merged columns, and their rotation; None where nothing is merged.

    Merging is lossless and saves time where it is done.
    A search merges the columns of all rows once, before its first rung.
    """
    merge = None if request.is_search else request_merge(request)
    if merge is None:
        return request, None
    matrix, rotation = merge
    assert isinstance(request.design, MemoryDesign)
    return replace(request, design=request.design.with_matrix(matrix), order=None), rotation


def request_merge(request: Request) -> tuple[Any, ColumnRotation] | None:
    """Return the rows with merged columns, and their rotation; None where it saves no time."""
    design = request.design
    is_invariant = request.alpha_unit in ROTATION_INVARIANT
    if not (is_invariant and design.is_sparse and "row_access" in design.capabilities):
        return None
    assert isinstance(design, MemoryDesign)
    return merge_columns(design.matrix, design.policy)
