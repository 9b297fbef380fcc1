r"""The bound of Brownlees, Joly and Lugosi (2015) for minimisers of a Catoni estimate of the risk.

The *form* of the bound is proved. The values of its universal constants are unknown: they are
arguments here, 1 by default, and the bound holds up to these constants.
"""

import math
from dataclasses import dataclass

from marginpursuit._validation import count
from marginpursuit.bounds._parts import (
    Parts,
    failure_probability,
    given,
    nonnegative_number,
    positive_number,
)
from marginpursuit.bounds.constants import DataConstants

__all__ = [
    "CatoniRiskBound",
    "LinearComplexity",
    "catoni_risk_bound",
    "linear_complexity",
]


@dataclass(frozen=True, repr=False, slots=True)
class CatoniRiskBound(Parts):
    """The terms of the bound of Brownlees, Joly and Lugosi; see `catoni_risk_bound`.

    Attributes
    ----------
    confidence : float
        The probability 1 - δ with which the bound holds.
    deviation : float
        c₁ σ √(log(3/δ)/n), the error at one fixed candidate.
    complexity_2 : float
        c₂ log(2/δ) η₂/√n.
    complexity_inf : float
        c₂ log(2/δ) η∞/n.
    bound : float
        The sum of the three: a bound on the excess hinge risk over the class, up to the constants.
    deviation_constant, complexity_constant : float
        c₁ and c₂, as assumed.

    Examples
    --------
    >>> from marginpursuit.bounds import catoni_risk_bound
    >>> bound = catoni_risk_bound(10_000, 0.05, 7.0, 28.0)
    >>> bound.bound == bound.deviation + bound.complexity_2 + bound.complexity_inf
    True
    """

    confidence: float
    deviation: float
    complexity_2: float
    complexity_inf: float
    bound: float
    deviation_constant: float
    complexity_constant: float


def catoni_risk_bound(
    n: int | None = None,
    delta: float = 0.05,
    eta_2: float | None = None,
    eta_inf: float | None = None,
    *,
    deviation: float = 1.0,
    deviation_constant: float = 1.0,
    complexity_constant: float = 1.0,
    constants: DataConstants | None = None,
) -> CatoniRiskBound:
    r"""Bound the excess hinge risk of a minimiser of the Catoni estimate, up to constants.

    For s and n large enough, with probability at least 1 - δ,

    .. math::

        E\varphi(y\,\hat h(x)) - \inf_{h \in H} E\varphi(y\,h(x)) \le
            c_1 \sigma \sqrt{\frac{\log(3/\delta)}{n}}
            + c_2 \log\frac2\delta \left(\frac{\eta_2}{\sqrt n} + \frac{\eta_\infty}{n}\right),

    where σ bounds the standard deviation of the losses over the class. The paper writes O(·) for
    c₁σ and c₂. The values of c₁ and c₂ are unknown: with the default 1 the terms can be compared
    with each other and over n, δ and d, but the sum is not a guarantee.

    Parameters
    ----------
    n : int
        Number of observations.
    delta : float, default=0.05
        δ in (0, 1).
    eta_2, eta_inf : float
        The complexities of the class in the L₂ and L∞ distances, non-negative; for linear
        scores those of `linear_complexity`.
    deviation : float, default=1.0
        σ, non-negative.
    deviation_constant, complexity_constant : float, default=1.0
        The universal constants c₁ and c₂: placeholders.
    constants : DataConstants, optional
        Constants of a data set, for the arguments that are not given; the complexities are those
        of `linear_complexity`.

    Returns
    -------
    CatoniRiskBound
        The bound and its terms.

    Examples
    --------
    >>> from marginpursuit.bounds import catoni_risk_bound, linear_complexity
    >>> eta = linear_complexity(10, 1.0)
    >>> catoni_risk_bound(10_000, 0.05, eta.eta_2, eta.eta_inf)
    CatoniRiskBound
      confidence           0.95
      deviation            0.0202345
      complexity_2         0.262644
      complexity_inf       0.0103692
      bound                0.293248
      deviation_constant   1
      complexity_constant  1
    """
    n = count("n", given("n", n, constants))
    delta = failure_probability(delta)
    complexity = None if constants is None else linear_complexity(constants=constants)
    eta_2 = given("eta_2", eta_2, complexity)
    eta_inf = given("eta_inf", eta_inf, complexity)
    sigma = nonnegative_number("deviation", deviation)
    c_1 = positive_number("deviation_constant", deviation_constant)
    c_2 = positive_number("complexity_constant", complexity_constant)
    weight = c_2 * math.log(2.0 / delta)
    pointwise = c_1 * sigma * math.sqrt(math.log(3.0 / delta) / n)
    complexity_2 = weight * nonnegative_number("eta_2", eta_2) / math.sqrt(n)
    complexity_inf = weight * nonnegative_number("eta_inf", eta_inf) / n
    return CatoniRiskBound(
        confidence=1.0 - delta,
        deviation=pointwise,
        complexity_2=complexity_2,
        complexity_inf=complexity_inf,
        bound=pointwise + complexity_2 + complexity_inf,
        deviation_constant=c_1,
        complexity_constant=c_2,
    )


@dataclass(frozen=True, repr=False, slots=True)
class LinearComplexity(Parts):
    """The complexities of linear scores with bounded inputs; see `linear_complexity`.

    Attributes
    ----------
    diameter_2, diameter_inf : float
        The diameter of the class in the L₂ and the L∞ distance.
    eta_2, eta_inf : float
        The complexities: entropy integrals, times their constant.
    entropy_constant : float
        The constant, as assumed.

    Examples
    --------
    >>> from marginpursuit.bounds import linear_complexity
    >>> complexity = linear_complexity(10, 1.0)
    >>> complexity.eta_2 < complexity.eta_inf
    True
    """

    diameter_2: float
    diameter_inf: float
    eta_2: float
    eta_inf: float
    entropy_constant: float


def linear_complexity(
    dimension: int | None = None,
    input_bound: float | None = None,
    *,
    second_moment: float | None = None,
    radius: float | None = None,
    entropy_constant: float = 1.0,
    constants: DataConstants | None = None,
) -> LinearComplexity:
    r"""Bound the complexities of the linear scores ⟨w, x⟩ with ‖w‖ ≤ r and ‖x‖ ≤ B_X.

    The distances between two scores are at most ‖w - w'‖√E‖x‖² in L₂ and ‖w - w'‖B_X in L∞, and a
    ball of diameter Δ in d dimensions is covered by (3Δ/(2ε))^d balls of radius ε ≤ Δ, so that the
    entropy integrals are, with Δ₂ = 2r√E‖x‖², Δ∞ = 2rB_X and L = log(3/2),

    .. math::

        \int_0^{\Delta_\infty} \log N\,d\epsilon &\le (1 + L)\, d\, \Delta_\infty, \\
        \int_0^{\Delta_2} \sqrt{\log N}\,d\epsilon &\le
            \left(\sqrt L + \tfrac34 \sqrt\pi\, \mathrm{erfc} \sqrt L\right) \sqrt d\, \Delta_2.

    These are proved; the universal constant between an entropy integral and η is a placeholder.
    Both hold for the hinge losses of the scores as well, the hinge being 1-Lipschitz. In the sum
    of the bound η₂/√n dominates, of order √d; the paper's summary has the larger d B_X/√n.

    Parameters
    ----------
    dimension : int
        Dimension d of w.
    input_bound : float
        B_X > 0, with ‖x‖ ≤ B_X almost surely.
    second_moment : float, optional
        E‖x‖², at most B_X²; by default B_X².
    radius : float, optional
        The radius r of the ball that holds w; by default 1, or that of W of the constants.
    entropy_constant : float, default=1.0
        The universal constant, the same for both: a placeholder.
    constants : DataConstants, optional
        Constants of a data set, for the arguments that are not given.

    Returns
    -------
    LinearComplexity
        The complexities and the diameters.

    Examples
    --------
    >>> from marginpursuit.bounds import linear_complexity
    >>> linear_complexity(10, 1.0)
    LinearComplexity
      diameter_2        2
      diameter_inf      2
      eta_2             7.11989
      eta_inf           28.1093
      entropy_constant  1
    """
    dimension = count("dimension", given("dimension", dimension, constants))
    largest = positive_number("input_bound", given("input_bound", input_bound, constants))
    if constants is not None and second_moment is None:
        second_moment = min(constants.second_moment, largest * largest)
    if radius is None:
        radius = 1.0 if constants is None else 0.5 * constants.diameter
    rms = largest
    if second_moment is not None:
        rms = math.sqrt(positive_number("second_moment", second_moment))
        if rms > largest:
            raise ValueError(
                f"second_moment must be at most input_bound squared, {largest * largest:g};"
                f" got {second_moment:g}"
            )
    radius = positive_number("radius", radius)
    constant = positive_number("entropy_constant", entropy_constant)
    log_ratio = math.log(1.5)
    root = math.sqrt(log_ratio)
    mean_root = root + 0.75 * math.sqrt(math.pi) * math.erfc(root)
    diameter_2, diameter_inf = 2.0 * radius * rms, 2.0 * radius * largest
    return LinearComplexity(
        diameter_2=diameter_2,
        diameter_inf=diameter_inf,
        eta_2=constant * mean_root * math.sqrt(dimension) * diameter_2,
        eta_inf=constant * (1.0 + log_ratio) * dimension * diameter_inf,
        entropy_constant=constant,
    )
