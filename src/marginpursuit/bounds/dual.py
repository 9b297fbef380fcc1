r"""The leave-one-out bound of the large margin distribution machine (Zhang and Zhou)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import between, real, scalar
from marginpursuit.bounds._parts import Parts, positive_number

__all__ = ["LeaveOneOutBound", "leave_one_out_bound"]


@dataclass(frozen=True, repr=False, slots=True)
class LeaveOneOutBound(Parts):
    """The terms of the leave-one-out bound; see `leave_one_out_bound`.

    Attributes
    ----------
    free : float
        (1/n) Σ αᵢUᵢᵢ over the dual variables strictly inside the box.
    boxed : float
        (1/n) times the number of dual variables at the upper end of the box.
    bound : float
        The sum of these two, the bound of the paper; vacuous from 1 on.
    counted : float
        The fraction of observations that can be misclassified when left out: those at the upper end
        of the box, and those inside with αᵢUᵢᵢ ≥ 1. At most `bound`, up to rounding.

    Examples
    --------
    >>> from marginpursuit.bounds import leave_one_out_bound
    >>> bound = leave_one_out_bound([0.0, 0.2, 0.5, 0.5], [1.0, 2.0, 3.0, 1.0], box=0.5)
    >>> bound.boxed  # two of four dual variables are at the end of the box
    0.5
    """

    free: float
    boxed: float
    bound: float
    counted: float


def leave_one_out_bound(
    alpha: ArrayLike, diagonal: ArrayLike, box: float, *, tolerance: float = 1e-8
) -> LeaveOneOutBound:
    r"""Bound the leave-one-out error of LDM by its dual solution.

    The dual minimises ½αᵀUα + uᵀα over 0 ≤ αᵢ ≤ C = λ₃/n, and its gradient at i is yᵢh(xᵢ) - 1.
    The bound is

    .. math:: \frac1n \Big( \sum_{0 < \alpha_i < C} \alpha_i U_{ii} + |\{i: \alpha_i = C\}| \Big).

    The paper quotes it as a bound on the expected error, which is false if λ₂ > 0 (see the further
    findings in the errata). For any sample it bounds the fraction of observations that are
    misclassified when their own αᵢ is fixed at zero. This removes observation i from the loss, but
    not from the mean and variance terms of the objective; without these (λ₁ = λ₂ = 0) it is the
    leave-one-out error. Proof: if i is misclassified at the solution with αᵢ = 0, a step of 1/Uᵢᵢ
    in αᵢ decreases the objective by at least 1/(2Uᵢᵢ), whereas fixing a free αᵢ at zero increases
    it by at most αᵢ²Uᵢᵢ/2; hence αᵢUᵢᵢ ≥ 1.

    Parameters
    ----------
    alpha : array_like of shape (n,)
        The dual solution, in [0, C] up to the tolerance.
    diagonal : array_like of shape (n,)
        The diagonal of U, non-negative.
    box : float
        C > 0, the upper end of the box.
    tolerance : float, default=1e-8
        A dual variable counts as at its upper end if αᵢ ≥ (1 - tolerance) C, since solvers stop
        close to it.

    Returns
    -------
    LeaveOneOutBound
        The bound and its terms.

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
            "alpha and diagonal must be one-dimensional, of equal length of at least 1;"
            f" got shapes {values.shape} and {diag.shape}"
        )
    tolerance = scalar("tolerance", between("tolerance", tolerance, 0.0, 0.5))
    ratio = between("alpha / box", values / positive_number("box", box), -tolerance, 1 + tolerance)
    at_end = ratio >= 1.0 - tolerance
    product = np.where(at_end, 0.0, np.maximum(values, 0.0) * diag)
    free, boxed = float(product.mean()), float(at_end.mean())
    # With the tolerance, a product rounded to just below 1 still counts.
    wrong = at_end | (product >= 1.0 - tolerance)
    return LeaveOneOutBound(free, boxed, bound=free + boxed, counted=float(wrong.mean()))
