r"""The leave-one-out bound of the large margin distribution machine (Zhang and Zhou)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import between, real, scalar
from marginpursuit.bounds._parts import Parts, positive_number

__all__ = ["LeaveOneOutBound", "leave_one_out_bound"]


@dataclass(frozen=True, repr=False, slots=True)
class LeaveOneOutBound(Parts):
    """The parts of the leave-one-out bound, as `leave_one_out_bound` returns them.

    Attributes
    ----------
    free : float
        (1/n) Σ αᵢUᵢᵢ over the dual variables strictly inside the box.
    boxed : float
        (1/n) times the number of dual variables at the upper end of the box.
    bound : float
        The sum of these two, the bound of the paper. It says nothing from 1 on.
    counted : float
        The share of observations that can be wrong when left out: those at the upper end of the
        box, and those inside with αᵢUᵢᵢ ≥ 1. Not above `bound`, but for rounding.
    """

    free: float
    boxed: float
    bound: float
    counted: float


def leave_one_out_bound(
    alpha: ArrayLike, diagonal: ArrayLike, box: float, *, tolerance: float = 1e-8
) -> LeaveOneOutBound:
    r"""Bound the leave-one-out error of the machine by its dual solution.

    The dual minimises ½αᵀUα + uᵀα over 0 ≤ αᵢ ≤ C = λ₃/n, and its gradient at i is yᵢh(xᵢ) - 1.
    The bound is

    .. math:: \frac1n \Big( \sum_{0 < \alpha_i < C} \alpha_i U_{ii} + |\{i: \alpha_i = C\}| \Big).

    The paper quotes it as one on the expected error, which is false where λ₂ > 0 (see the further
    findings in the errata). What it does bound, for any sample, is the share of observations that
    are wrong when their own αᵢ is held at zero. That leaves out observation i but for the mean and
    variance terms of the objective, which still hold it; without those (λ₁ = λ₂ = 0) it is
    leave-one-out itself. The reason: if i is wrong at the solution held at αᵢ = 0, a move of 1/Uᵢᵢ
    in αᵢ from there lowers the objective by at least 1/(2Uᵢᵢ), whereas holding a free αᵢ at zero
    costs at most αᵢ²Uᵢᵢ/2; hence αᵢUᵢᵢ ≥ 1.

    Parameters
    ----------
    alpha : array_like of shape (n,)
        The dual solution, in [0, C] up to the tolerance.
    diagonal : array_like of shape (n,)
        The diagonal of U, not negative.
    box : float
        C > 0, the upper end of the box.
    tolerance : float, default=1e-8
        Share of the box within which a dual variable counts as being at its end, since solvers
        rarely reach it exactly.

    Returns
    -------
    LeaveOneOutBound
        The bound and its parts.

    Examples
    --------
    >>> from marginpursuit.bounds import leave_one_out_bound
    >>> leave_one_out_bound([0.0, 0.2, 0.5, 0.5], [1.0, 2.0, 3.0, 1.0], box=0.5)
    LeaveOneOutBound
      free     0.1
      boxed    0.5
      bound    0.6
      counted  0.5
    """
    values, diag = real("alpha", alpha), between("diagonal", diagonal, 0.0, np.inf)
    if values.ndim != 1 or values.size == 0 or diag.shape != values.shape:
        raise ValueError(
            "alpha and diagonal must be one-dimensional, of one length of at least 1;"
            f" got shapes {values.shape} and {diag.shape}"
        )
    tolerance = scalar("tolerance", between("tolerance", tolerance, 0.0, 0.5))
    share = between("alpha / box", values / positive_number("box", box), -tolerance, 1 + tolerance)
    at_end = share >= 1.0 - tolerance
    product = np.where(at_end, 0.0, np.maximum(values, 0.0) * diag)
    free, boxed = float(product.mean()), float(at_end.mean())
    # What rounding took from a product of 1 must not hide an error.
    wrong = at_end | (product >= 1.0 - tolerance)
    return LeaveOneOutBound(free, boxed, bound=free + boxed, counted=float(wrong.mean()))
