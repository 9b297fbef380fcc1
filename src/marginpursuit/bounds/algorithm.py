r"""The risk bound of Algorithm 1, gradient descent on the loss of margin pursuit.

The paper's lemma on the mean of sub-Gaussian vectors uses a random direction in an inequality for
fixed directions, and is false (E13); `subgaussian_mean_radius` is the correct statement. The
theorem that depends on it, `algorithm_risk_bound`, holds with a slightly larger constant and with
the diameter of the parameter set, which the paper omits (E12).
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
from marginpursuit.calibration import psi_inverse
from marginpursuit.losses import INFLUENCE_BOUND, MarginLoss

__all__ = ["AlgorithmRiskBound", "algorithm_risk_bound", "subgaussian_mean_radius"]


@dataclass(frozen=True, repr=False, slots=True)
class AlgorithmRiskBound(Parts):
    """The terms of the risk bound of Algorithm 1; see `algorithm_risk_bound`.

    Attributes
    ----------
    confidence : float
        The probability 1 - 2δ with which the bound holds.
    admissible_step : float
        The largest admissible step size, 2/(κ + v).
    rate : float
        β = 2κv/(κ + v): a step reduces the squared distance to w* by the factor 1 - αβ.
    log_cover : float
        The logarithm of the number of balls that cover W.
    epsilon_star : float
        ε*: √n times the error of the gradient at a centre of the cover, including the scale.
    epsilon_star_printed : float
        The value printed in the paper, which is too small (E12, E13).
    optimisation : float
        (1 - αβ)^T v ‖w₀ - w*‖².
    statistical : float
        4v/(β²n) · ((1 + δ)v + ε*)².
    surrogate : float
        The sum of these two, a bound on R_φ(w_T) - R_φ(w*).
    approximation : float
        The given R_φ(w*) - inf R_φ over all measurable scores (E18).
    misclassification : float
        The bound on the excess risk over the Bayes rule; 1 if vacuous.
    vacuous : bool
        Whether the bound is vacuous: surrogate + approximation ≥ Ψ(1).

    Examples
    --------
    >>> from marginpursuit.bounds import algorithm_risk_bound
    >>> bound = algorithm_risk_bound(
    ...     10**7, 5, 0.05, margin=1.0, scale=2.0, second_moment=5.0, strong_convexity=0.8,
    ...     step=0.3, iterations=100, initial_distance=1.0, diameter=4.0, sub_gaussian=0.5,
    ... )
    >>> bound.optimisation < bound.statistical, bound.vacuous
    (True, False)
    """

    confidence: float
    admissible_step: float
    rate: float
    log_cover: float
    epsilon_star: float
    epsilon_star_printed: float
    optimisation: float
    statistical: float
    surrogate: float
    approximation: float
    misclassification: float
    vacuous: bool


def algorithm_risk_bound(
    n: int | None = None,
    dimension: int | None = None,
    delta: float = 0.05,
    *,
    iterations: int,
    margin: float | None = None,
    scale: float | None = None,
    second_moment: float | None = None,
    strong_convexity: float | None = None,
    step: float | None = None,
    initial_distance: float | None = None,
    diameter: float | None = None,
    sub_gaussian: float | None = None,
    spectral_moment: float | None = None,
    approximation: float = 0.0,
    constants: DataConstants | None = None,
) -> AlgorithmRiskBound:
    r"""Bound the excess risk of Algorithm 1 after T steps on n observations.

    The theorem of the paper with corrected constants. It assumes

    * A0: W convex and compact, of diameter Δ; the iterates are assumed to stay in it, since the
      algorithm does not project (E17);
    * A1, A2: the surrogate risk R_φ is κ-strongly convex on W, and R_φ'(w*) = 0 for a w* in W;
    * A3: b(w) = ψ((γ - y⟨w, x⟩)/s) y x, with the s that the paper omits (E15), has
      E exp⟨a, b - Eb⟩ ≤ exp(c⟨a, Σa⟩) for every a and every w in W, Σ being its covariance.

    Write v = E‖x‖², B = 2√2/3 and ε = δ/√n.

    *One step.* R_φ is C² with Hessian between κ and v on W, so a step α ≤ 2/(κ + v) along the true
    gradient reduces the squared distance to w* by 1 - αβ, β = 2κv/(κ + v).

    *The error of the gradient.* N ≤ (1 + Δ/ε)^d ≤ (3Δ/2ε)^d balls of radius ε ≤ Δ/2, centred in W,
    cover it, by the isodiametric inequality: log N = d log(3Δ√n/(2δ)), with the diameter (E12). At
    a centre the error is s‖b̄ - Eb‖ with tr Σ ≤ E‖b‖² ≤ B²v: by `subgaussian_mean_radius` at
    t = log(N/δ) and a union bound over the centres (E14), it is at most ε*/√n at all of them with
    probability 1 - δ, for

    .. math:: \varepsilon^* = sB \sqrt{2cv\,(1 + 2\sqrt t + 2t)},

    where the paper has :math:`2sB\sqrt{cvt}` (E13). This uses ‖Σ‖ ≤ tr Σ. With ‖Σ‖ ≤ B²λ for a
    given λ = ‖E xxᵀ‖ the terms in t have λ in place of v: 2cv(1 + 2√t + 2t) becomes
    2c(v + 2√(vλt) + 2λt) (E35). From a centre to a point of its ball, the empirical gradient
    changes by at most ε mean‖xᵢ‖² (E15), which is at most εv/δ with probability 1 - δ by Markov's
    inequality, and the true one by εv. So on all of W the error is at most
    e = ((1 + δ)v + ε*)/√n.

    *The sum.* Over the steps the errors add up to at most αe/(1 - √(1 - αβ)) ≤ 2e/β, and
    R_φ(w) - R_φ(w*) ≤ (v/2)‖w - w*‖² with (a + b)² ≤ 2a² + 2b² gives the two terms (E16).

    Ψ⁻¹ applies to the excess over all measurable scores, not over linear scores (E18); their
    difference is the argument `approximation`.

    Parameters
    ----------
    n : int
        Number of observations.
    dimension : int
        Dimension d of w.
    delta : float, default=0.05
        δ in (0, 1/2); the bound holds with probability 1 - 2δ.
    iterations : int
        T ≥ 0.
    margin : float
        The level γ > 0 of the loss.
    scale : float
        The scale s > 0 of the loss.
    second_moment : float
        An upper bound on v = E‖x‖²; a second moment, not a variance (E30).
    strong_convexity : float
        κ, in (0, v]; at most v/d if W has an interior.
    step : float, optional
        α, in (0, 2/(κ + v)]; by default 2/(κ + v).
    initial_distance : float
        An upper bound on ‖w₀ - w*‖; at most the diameter.
    diameter : float
        Δ, the largest distance within W.
    sub_gaussian : float
        The c of A3, at least 1/2, a lower bound for every distribution.
    spectral_moment : float, optional
        An upper bound on λ = ‖E xxᵀ‖, the largest second moment in one direction, at least v/d; by
        default v, as in the paper (E35).
    approximation : float, default=0.0
        An upper bound on R_φ(w*) - inf R_φ over all measurable scores.
    constants : DataConstants, optional
        Constants of a data set (:func:`estimate_constants`), for the arguments that are not given.
        The bound then holds up to the errors of their estimation.

    Returns
    -------
    AlgorithmRiskBound
        The bound and its terms.

    Examples
    --------
    >>> from marginpursuit.bounds import algorithm_risk_bound
    >>> algorithm_risk_bound(
    ...     10**7, 5, 0.05, margin=1.0, scale=2.0, second_moment=5.0, strong_convexity=0.8,
    ...     step=0.3, iterations=100, initial_distance=1.0, diameter=4.0, sub_gaussian=0.5,
    ... )
    AlgorithmRiskBound
      confidence            0.9
      admissible_step       0.344828
      rate                  1.37931
      log_cover             64.2327
      epsilon_star          51.9582
      epsilon_star_printed  46.3022
      optimisation          3.192e-23
      statistical           0.00344051
      surrogate             0.00344051
      approximation         0
      misclassification     0.0809881
      vacuous               False
    """
    n = count("n", given("n", n, constants))
    dimension = count("dimension", given("dimension", dimension, constants))
    iterations = count("iterations", iterations, least=0)
    delta = failure_probability(delta, high=0.5)
    loss = MarginLoss(given("margin", margin, constants), given("scale", scale, constants))
    moment = positive_number("second_moment", given("second_moment", second_moment, constants))
    convexity = given("strong_convexity", strong_convexity, constants)
    kappa = positive_number("strong_convexity", convexity)
    _at_most("strong_convexity", kappa, moment, "second_moment, which bounds the Hessian")
    admissible_step = 2.0 / (kappa + moment)
    alpha = admissible_step if step is None else positive_number("step", step)
    _at_most("step", alpha, admissible_step, "2 / (strong_convexity + second_moment)")
    width = positive_number("diameter", given("diameter", diameter, constants))
    start = given("initial_distance", initial_distance, constants)
    distance = nonnegative_number("initial_distance", start)
    _at_most("initial_distance", distance, width, "diameter of the set that holds both points")
    constant = _sub_gaussian(given("sub_gaussian", sub_gaussian, constants))
    if spectral_moment is None:
        spectral_moment = moment if constants is None else constants.spectral_moment
    largest = positive_number("spectral_moment", spectral_moment)
    _at_most("spectral_moment", largest, moment, "second_moment, the trace")
    approximation = nonnegative_number("approximation", approximation)

    rate = 2.0 * kappa * (moment / (kappa + moment))
    optimisation = _power_of_complement(alpha * rate, iterations) * moment * distance * distance

    # Radii above Δ/2 are replaced by Δ/2, which covers no more; hence the minimum of 3.
    log_cover = dimension * math.log(max(1.5 * width * math.sqrt(n) / delta, 3.0))
    trace = INFLUENCE_BOUND * INFLUENCE_BOUND * moment
    spectral = INFLUENCE_BOUND * INFLUENCE_BOUND * largest
    epsilon_star = loss.scale * _mean_radius(log_cover - math.log(delta), trace, spectral, constant)
    # The cover as printed, without the diameter, and the mean as printed, without the trace.
    log_printed = dimension * math.log(1.5 * math.sqrt(n) / delta) - math.log(delta)
    epsilon_star_printed = 2.0 * loss.scale * math.sqrt(constant * trace * log_printed)
    error = ((1.0 + delta) * moment + epsilon_star) / rate
    statistical = 4.0 * moment / n * error * error

    surrogate = optimisation + statistical
    vacuous = bool(surrogate + approximation >= loss.value(0.0))  # Ψ(1) = s²ρ(γ/s) = φ(0)
    misclassification = 1.0
    if not vacuous:
        excess = surrogate + approximation
        misclassification = float(psi_inverse(excess, loss.margin, loss.scale))
    return AlgorithmRiskBound(
        confidence=1.0 - 2.0 * delta,
        admissible_step=admissible_step,
        rate=rate,
        log_cover=log_cover,
        epsilon_star=epsilon_star,
        epsilon_star_printed=epsilon_star_printed,
        optimisation=optimisation,
        statistical=statistical,
        surrogate=surrogate,
        approximation=approximation,
        misclassification=misclassification,
        vacuous=vacuous,
    )


def subgaussian_mean_radius(
    n: int,
    delta: float,
    *,
    trace: float,
    spectral: float | None = None,
    sub_gaussian: float = 0.5,
) -> float:
    r"""Bound the norm of the centred mean of n sub-Gaussian vectors, with probability 1 - δ.

    For independent z with E exp⟨a, z - Ez⟩ ≤ exp(c⟨a, Σa⟩) for every a, and t = log(1/δ),

    .. math::

        \|\bar z - Ez\|^2 \le \frac{2c}{n}
            \left(\mathrm{tr}\,\Sigma + 2\sqrt{\mathrm{tr}(\Sigma^2)\,t} + 2\|\Sigma\|\,t\right)

    (Hsu, Kakade and Zhang 2012, Theorem 1, for Σ^(-1/2)(z̄ - Ez), whose variance proxy is 2c/n),
    with tr(Σ²) ≤ tr Σ ‖Σ‖. The paper's lemma lacks the first two terms and is false without them:
    the direction of z̄ - Ez is random, not fixed (E13).

    Parameters
    ----------
    n : int
        Number of vectors.
    delta : float
        δ in (0, 1).
    trace : float
        An upper bound on tr Σ, the expected squared distance from the mean.
    spectral : float, optional
        An upper bound on ‖Σ‖, the largest variance in one direction; by default the trace.
    sub_gaussian : float, default=0.5
        The constant c, at least 1/2, which is the value for Gaussian vectors.

    Returns
    -------
    float
        The radius.

    Examples
    --------
    >>> from marginpursuit.bounds import subgaussian_mean_radius
    >>> round(subgaussian_mean_radius(1, 0.05, trace=100.0, spectral=1.0), 3)
    11.858
    """
    n, delta = count("n", n), failure_probability(delta)
    trace = positive_number("trace", trace)
    largest = trace if spectral is None else positive_number("spectral", spectral)
    _at_most("spectral", largest, trace, "trace")
    radius = _mean_radius(-math.log(delta), trace, largest, _sub_gaussian(sub_gaussian))
    return radius / math.sqrt(n)


def _mean_radius(t: float, trace: float, spectral: float, constant: float) -> float:
    """Return the radius for one vector; t = log(1/δ), also for δ below the smallest float."""
    spread = trace + 2.0 * math.sqrt(trace * t) * math.sqrt(spectral) + 2.0 * spectral * t
    return math.sqrt(2.0 * constant * spread)


def _power_of_complement(x: float, exponent: int) -> float:
    """Return (1 - x)^exponent for x in [0, 1] up to rounding, accurate for small x."""
    return math.exp(exponent * math.log1p(-x)) if x < 1.0 else float(exponent == 0)


def _sub_gaussian(value: float) -> float:
    constant = positive_number("sub_gaussian", value)
    if constant < 0.5:  # the second-order terms of E exp⟨a, z⟩ ≤ exp(c⟨a, Σa⟩) at a = 0
        raise ValueError(
            f"sub_gaussian must be at least 0.5, as for every distribution; got {constant:g}"
        )
    return constant


def _at_most(name: str, value: float, limit: float, what: str) -> None:
    if value > limit:
        raise ValueError(f"{name} must be at most {limit!r}, the {what}; got {value!r}")
