r"""The margin bound of Koltchinskii and Panchenko (2002) for linear rules."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray, real
from marginpursuit.bounds._parts import Parts, failure_probability, given, positive_number
from marginpursuit.bounds.constants import DataConstants

__all__ = ["MarginBound", "margin_bound"]


@dataclass(frozen=True, repr=False, slots=True)
class MarginBound(Parts):
    """The terms of the margin bound; see `margin_bound`.

    Attributes
    ----------
    confidence : float
        The probability 1 - δ with which the bound holds.
    level : float
        The margin level γ.
    margin_error : float
        The fraction of margins below γ.
    complexity : float
        (4/γ) √(mean‖x‖²/n).
    uniformity : float
        3 √(log log₂(2r/γ)/n), the price of a γ that is chosen from the data.
    deviation : float
        3 √(log(4/δ)/(2n)).
    bound : float
        The sum of the four: a bound on P{y⟨w, x⟩ ≤ 0}; vacuous from 1 on.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.bounds import margin_bound
    >>> bound = margin_bound(np.linspace(-0.1, 1.0, 20_000), second_moment=1.0)
    >>> round(bound.level, 3), round(bound.bound, 3)
    (0.179, 0.467)
    """

    confidence: float
    level: float
    margin_error: float
    complexity: float
    uniformity: float
    deviation: float
    bound: float


@np.errstate(over="ignore")  # of the complexity at tiny levels, which are not the best
def margin_bound(
    margin: ArrayLike | None = None,
    second_moment: float | None = None,
    delta: float = 0.05,
    *,
    level: float | None = None,
    largest_level: float = 1.0,
    constants: DataConstants | None = None,
) -> MarginBound:
    r"""Bound the error of a linear rule by the fraction of its margins below a level.

    With probability at least 1 - δ over n observations, for all w with ‖w‖ = 1 and all levels γ in
    (0, r],

    .. math::

        P\{y\langle w, x\rangle \le 0\} \le \frac1n \sum_i 1\{m_i < \gamma\}
            + \frac4\gamma \sqrt{\frac{\mathrm{mean}\|x\|^2}{n}}
            + 3\sqrt{\frac{\log\log_2(2r/\gamma)}{n}} + 3\sqrt{\frac{\log(4/\delta)}{2n}}.

    The form is that of Koltchinskii and Panchenko [1]_, which the paper quotes in its introduction.
    The constants follow the proof of Theorem 5.9 of Mohri, Rostamizadeh and Talwalkar [2]_ for the
    empirical Rademacher complexity of {⟨w, ·⟩: ‖w‖ ≤ 1}, which is at most √(mean‖x‖²/n): the ramp
    min{1, (1 - m/γ)₊} lies between 1{m ≤ 0} and 1{m < γ}, takes values in [0, 1] and is
    1/γ-Lipschitz. For a fixed γ, with probability 1 - 2exp(-2nε²), its mean exceeds the mean over
    the sample by at most twice its empirical complexity, which contraction bounds by 1/γ times that
    of the class, plus 3ε. At γₖ = r/2ᵏ take ε + √(log k/n) for ε. The probabilities of failure sum
    to at most 4exp(-2nε²) = δ, and the γₖ next below a γ has 1/γₖ ≤ 2/γ and k ≤ log₂(2r/γ).

    Only the ramp is bounded, so x need not be. w may depend on the data: the bound is for all w.
    With an intercept, x has a constant column.

    Parameters
    ----------
    margin : array_like of shape (n,)
        Margins yᵢ⟨w, xᵢ⟩ for ‖w‖ = 1; divide those of another w by ‖w‖.
    second_moment : float
        The mean of the ‖xᵢ‖² over the same observations.
    delta : float, default=0.05
        δ in (0, 1).
    level : float, optional
        γ, in (0, r]; by default that with the smallest bound.
    largest_level : float, default=1.0
        r > 0, to be chosen before the data are seen; it enters in its iterated logarithm only.
    constants : DataConstants, optional
        Constants of a data set, for the arguments that are not given: the margins of w*/‖w*‖.

    Returns
    -------
    MarginBound
        The bound and its terms.

    References
    ----------
    .. [1] V. Koltchinskii and D. Panchenko, "Empirical margin distributions and bounding the
       generalization error of combined classifiers", Annals of Statistics 30, 2002.
    .. [2] M. Mohri, A. Rostamizadeh and A. Talwalkar, "Foundations of Machine Learning", 2nd
       edition, MIT Press, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.bounds import margin_bound
    >>> margin_bound(np.linspace(-0.1, 1.0, 20_000), second_moment=1.0)
    MarginBound
      confidence    0.95
      level         0.178589
      margin_error  0.25325
      complexity    0.158376
      uniformity    0.0237033
      deviation     0.0313999
      bound         0.46673
    """
    margins = np.ravel(real("margin", given("margin", margin, constants, "unit_margins")))
    moment = positive_number("second_moment", given("second_moment", second_moment, constants))
    if not margins.size:
        raise ValueError("margin must have at least one value; it is empty")
    delta = failure_probability(delta)
    top = positive_number("largest_level", largest_level)
    n = margins.size
    levels = _candidates(margins, top) if level is None else np.array([_level(level, top)])
    errors = np.searchsorted(np.sort(margins), levels) / n  # margins strictly below the level
    complexities = 4.0 / levels * math.sqrt(moment / n)
    uniformities = 3.0 * np.sqrt(np.log(np.log2(2.0 * top / levels)) / n)
    best = int(np.argmin(errors + complexities + uniformities))
    deviation = 3.0 * math.sqrt(math.log(4.0 / delta) / (2.0 * n))
    error, complexity, uniformity = (
        float(terms[best]) for terms in (errors, complexities, uniformities)
    )
    return MarginBound(
        confidence=1.0 - delta,
        level=float(levels[best]),
        margin_error=error,
        complexity=complexity,
        uniformity=uniformity,
        deviation=deviation,
        bound=error + complexity + uniformity + deviation,
    )


def _candidates(margins: FloatArray, largest: float) -> FloatArray:
    """Return the levels among which the smallest bound is: the margins in (0, r], and r.

    Between two successive margins the fraction below the level is constant, and the other terms
    decrease.
    """
    inner = np.unique(margins[(margins > 0) & (margins < largest)])
    return np.append(inner, largest)


def _level(level: float, largest: float) -> float:
    number = positive_number("level", level)
    if number > largest:
        raise ValueError(f"level must be at most largest_level = {largest:g}; got {number:g}")
    return number
