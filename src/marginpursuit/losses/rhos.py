r"""The functions ρ from which margin losses are built, as values of one type.

Every ρ is even, convex and continuously differentiable, with ρ(u) ≈ u²/2 at zero and a curvature
ρ'' in [0, 1]. Its derivative ψ = ρ' is the *influence*; :math:`B = \sup\psi` bounds it.

==============  ==========================================  =======  ==========================
name            ρ(u)                                        B        ρ''(u) = 0 for
==============  ==========================================  =======  ==========================
catoni          u²/2 - u⁴/24 up to √2, then B\|u\| - 1/2    2√2/3    \|u\| ≥ √2
pseudo_huber    √(1 + u²) - 1                               1        –
log_cosh        log cosh u                                  1        –
huber           u²/2 up to 1, then \|u\| - 1/2              1        \|u\| > 1
square          u²/2                                        ∞        –
==============  ==========================================  =======  ==========================

Each formula is written once, for arrays of every library (NumPy, torch, the array API standard). It
takes a size r ≥ 0 and a scale s, and returns s²ρ(r/s), sψ(r/s) or ρ''(r/s). Factors are ordered
such that an intermediate result overflows or underflows only where the final result does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log
from typing import Any

import numpy as np

from marginpursuit._namespaces import namespace


def array_functions(values: Any) -> Any:
    """Return NumPy, or the namespace of an array of another library."""
    return np if isinstance(values, np.ndarray | np.generic) else namespace(values)


def at_most(xp: Any, values: Any, bound: Any) -> Any:
    """Return the smaller of values and a bound, which is a number or an array; NaN stays NaN."""
    return np.minimum(values, bound) if xp is np else xp.clip(values, max=bound)


def at_least(xp: Any, values: Any, bound: float) -> Any:
    """Return the larger of values and a bound; NaN stays NaN."""
    return np.maximum(values, bound) if xp is np else xp.clip(values, min=bound)


@dataclass(frozen=True, slots=True)
class Rho:
    r"""A function ρ with its influence ψ = ρ' and its curvature ρ''.

    The methods accept arrays of any library, return arrays of that library and do not check their
    arguments; value and influence of NaN are NaN. With a `scale` s they evaluate s²ρ(u/s), sψ(u/s)
    and ρ''(u/s), times a `weight`; scale and weight are numbers or arrays that broadcast with `u`.

    Attributes
    ----------
    name : str
        The key in :data:`RHOS`.
    kernel_code : int or None
        The number by which the compiled kernels know ρ; None if they do not.
    influence_bound : float
        B = sup ψ; infinite for the square.
    curvature_support : float
        The \|u\| beyond which ρ'' is zero; infinite if there is none.

    Examples
    --------
    >>> from marginpursuit.losses import RHOS
    >>> RHOS["huber"].value(3.0), RHOS["huber"].influence(-3.0)
    (np.float64(2.5), np.float64(-1.0))
    >>> RHOS["log_cosh"].curvature(0.0)
    np.float64(1.0)
    """

    name: str
    kernel_code: int | None
    influence_bound: float
    curvature_support: float
    scaled_value: Callable[[Any, Any, Any, Any], Any]  # of xp, size, scale, weight
    scaled_influence: Callable[[Any, Any, Any], Any]  # of xp, size, scale
    curvature_of_ratio: Callable[[Any, Any], Any]  # of xp, size / scale
    inverse: Callable[[Any, Any], Any]  # of xp, a value of the influence in [0, B]

    @np.errstate(all="ignore")
    def value(self, u: Any, scale: Any = 1.0, weight: Any = 1.0) -> Any:
        """Evaluate weight · s²ρ(u/s)."""
        xp, u = _with_functions(u)
        return _plain(xp, self.scaled_value(xp, xp.abs(u), scale, weight))

    @np.errstate(all="ignore")
    def influence(self, u: Any, scale: Any = 1.0, weight: Any = 1.0) -> Any:
        """Evaluate weight · sψ(u/s)."""
        xp, u = _with_functions(u)
        return _plain(xp, xp.copysign(weight * self.scaled_influence(xp, xp.abs(u), scale), u))

    @np.errstate(all="ignore")
    def curvature(self, u: Any, scale: Any = 1.0, weight: Any = 1.0) -> Any:
        """Evaluate weight · ρ''(u/s); at a jump of ρ'', the value from the side of zero."""
        xp, u = _with_functions(u)
        return _plain(xp, weight * self.curvature_of_ratio(xp, xp.abs(u) / scale))

    @np.errstate(all="ignore")
    def influence_inverse(self, c: Any) -> Any:
        r"""Invert the influence: the u of least size with ψ(u) = c, for \|c\| ≤ B."""
        xp, c = _with_functions(c)
        return _plain(xp, xp.copysign(self.inverse(xp, xp.abs(c)), c))


def _with_functions(values: Any) -> tuple[Any, Any]:
    if isinstance(values, np.ndarray):
        return np, values
    if hasattr(values, "__dlpack_device__"):
        return array_functions(values), values
    return np, np.asarray(values, dtype=np.float64)


def _plain(xp: Any, values: Any) -> Any:
    """Turn a NumPy array of no dimension into a scalar."""
    return values[()] if xp is np else values


#: The point √2 beyond which ψ is constant.
#:
#: >>> from marginpursuit.losses import TRUNCATION, curvature
#: >>> curvature([0.0, TRUNCATION, 2.0])
#: array([1., 0., 0.])
TRUNCATION = float(np.sqrt(2.0))

#: B = ψ(√2) = 2√2/3, the largest value of ψ; rounded up, so that it bounds ψ.
#:
#: >>> from marginpursuit.losses import INFLUENCE_BOUND, influence
#: >>> bool(influence(100.0) <= INFLUENCE_BOUND)
#: True
INFLUENCE_BOUND = 2.0 * TRUNCATION / 3.0

# The rounding errors of the two constants: √2 = TRUNCATION + TRUNCATION_REST and likewise for B, to
# about 32 digits. Differences such as √2 - u keep full relative precision with them.
TRUNCATION_REST = -9.667293313452913e-17
INFLUENCE_BOUND_REST = -1.0145605624385797e-16


def _catoni_value(xp: Any, size: Any, scale: Any, weight: Any) -> Any:
    ratio = at_most(xp, size / scale, TRUNCATION)
    inner = (weight * size) * (0.5 * size * (1.0 - ratio * ratio / 12.0))
    slope = INFLUENCE_BOUND + INFLUENCE_BOUND_REST  # B to nearest; INFLUENCE_BOUND is rounded up
    outer = scale * (weight * (slope * size - 0.5 * scale))
    return xp.where(size < scale * TRUNCATION, inner, outer)


def _catoni_influence(xp: Any, size: Any, scale: Any) -> Any:
    ratio = at_most(xp, size / scale, TRUNCATION)
    # Beyond s√2 the first argument is 2|r|/3, which exceeds the second, sB.
    return at_most(xp, size * (1.0 - ratio * ratio / 6.0), scale * INFLUENCE_BOUND)


def _catoni_curvature(xp: Any, ratio: Any) -> Any:
    # 1 - u²/2 cancels near √2; there (√2 - u)(√2 + u)/2 with the split constant is exact.
    factored = 0.5 * ((TRUNCATION - ratio) + TRUNCATION_REST) * (TRUNCATION + ratio)
    return xp.where(ratio <= 1.0, 1.0 - 0.5 * ratio * ratio, at_least(xp, factored, 0.0))


def _catoni_inverse(xp: Any, c: Any) -> Any:
    c = at_most(xp, c, INFLUENCE_BOUND)
    # Near B the arcsine loses half the digits; there the angle comes from the gap B - c, which
    # the split constant gives exactly: arcsin(z)/3 = π/6 - α with α = (2/3) arcsin(√((1 - z)/2)).
    gap = at_least(xp, (INFLUENCE_BOUND - c) + INFLUENCE_BOUND_REST, 0.0)
    angle = (2 / 3) * xp.asin(xp.sqrt(0.5 * gap / INFLUENCE_BOUND))
    near = TRUNCATION * (xp.cos(angle) - 3.0**0.5 * xp.sin(angle))
    # Elsewhere u = c + u³/6 removes the rounding error of the angle, subnormals included.
    rough = 2.0 * TRUNCATION * xp.sin(xp.asin(c / INFLUENCE_BOUND) / 3)
    return xp.where(c > 0.9 * INFLUENCE_BOUND, near, c + rough**3 / 6)


# At ratios u above the first number 1 + u² rounds to u². Below the second, log cosh u is
# u²/2 - u⁴/12 and tanh u is u - u³/3 to double precision.
_LARGE_RATIO, _SMALL_RATIO = 1e18, 1e-4


def _huber_value(xp: Any, size: Any, scale: Any, weight: Any) -> Any:
    inner = (weight * size) * (0.5 * size)
    return xp.where(size < scale, inner, scale * (weight * (size - 0.5 * scale)))


def _huber_influence(xp: Any, size: Any, scale: Any) -> Any:
    return at_most(xp, size, scale)


def _huber_curvature(xp: Any, ratio: Any) -> Any:
    return xp.where(ratio <= 1.0, xp.ones_like(ratio), 0.0)


def _pseudo_huber_value(xp: Any, size: Any, scale: Any, weight: Any) -> Any:
    # √(1 + u²) - 1 = u²/(1 + √(1 + u²)), which does not cancel.
    ratio = size / scale
    factor = size / (1.0 + _root_of_one_plus_square(xp, ratio))
    return (weight * size) * xp.where(ratio > _LARGE_RATIO, scale, factor)


def _pseudo_huber_influence(xp: Any, size: Any, scale: Any) -> Any:
    ratio = size / scale
    factor = size / _root_of_one_plus_square(xp, ratio)
    return at_most(xp, xp.where(ratio > _LARGE_RATIO, scale, factor), scale)


def _pseudo_huber_curvature(xp: Any, ratio: Any) -> Any:
    inverse = 1.0 / _root_of_one_plus_square(xp, ratio)
    return inverse * inverse * inverse


def _root_of_one_plus_square(xp: Any, ratio: Any) -> Any:
    return xp.sqrt(1.0 + ratio * ratio)


def _pseudo_huber_inverse(xp: Any, c: Any) -> Any:
    return c / xp.sqrt((1.0 - c) * (1.0 + c))


def _log_cosh_value(xp: Any, size: Any, scale: Any, weight: Any) -> Any:
    # Up to u = 1, log cosh u = log1p(sinh² u)/2, as u²/2 times a factor in (0, 1]; beyond,
    # u + log1p(e⁻²ᵘ) - log 2.
    ratio = size / scale
    square = ratio * ratio
    sinh = xp.sinh(at_most(xp, ratio, 1.0))
    factor = xp.where(ratio < _SMALL_RATIO, 1.0 - square / 6.0, xp.log1p(sinh * sinh) / square)
    inner = (weight * size) * (0.5 * size * factor)
    outer = scale * (weight * (size + scale * (xp.log1p(xp.exp(-2.0 * ratio)) - log(2.0))))
    return xp.where(ratio < 1.0, inner, outer)


def _log_cosh_influence(xp: Any, size: Any, scale: Any) -> Any:
    ratio = size / scale
    inner = size * (1.0 - ratio * ratio / 3.0)
    return xp.where(ratio < _SMALL_RATIO, inner, scale * xp.tanh(ratio))


def _log_cosh_curvature(xp: Any, ratio: Any) -> Any:
    inverse = 1.0 / xp.cosh(ratio)
    return inverse * inverse


def _log_cosh_inverse(xp: Any, c: Any) -> Any:
    return xp.atanh(c)


def _square_value(xp: Any, size: Any, scale: Any, weight: Any) -> Any:
    return (weight * size) * (0.5 * size)


def _square_influence(xp: Any, size: Any, scale: Any) -> Any:
    return size


def _square_curvature(xp: Any, ratio: Any) -> Any:
    return xp.ones_like(ratio)


def _identity(xp: Any, c: Any) -> Any:
    return c


#: u²/2 - u⁴/24 up to √2, then B|u| - 1/2: the ρ of the paper.
CATONI = Rho(
    name="catoni",
    kernel_code=0,
    influence_bound=INFLUENCE_BOUND,
    curvature_support=TRUNCATION,
    scaled_value=_catoni_value,
    scaled_influence=_catoni_influence,
    curvature_of_ratio=_catoni_curvature,
    inverse=_catoni_inverse,
)

#: √(1 + u²) - 1.
PSEUDO_HUBER = Rho(
    name="pseudo_huber",
    kernel_code=1,
    influence_bound=1.0,
    curvature_support=inf,
    scaled_value=_pseudo_huber_value,
    scaled_influence=_pseudo_huber_influence,
    curvature_of_ratio=_pseudo_huber_curvature,
    inverse=_pseudo_huber_inverse,
)

#: log cosh u.
LOG_COSH = Rho(
    name="log_cosh",
    kernel_code=2,
    influence_bound=1.0,
    curvature_support=inf,
    scaled_value=_log_cosh_value,
    scaled_influence=_log_cosh_influence,
    curvature_of_ratio=_log_cosh_curvature,
    inverse=_log_cosh_inverse,
)

#: u²/2 up to 1, then |u| - 1/2.
HUBER = Rho(
    name="huber",
    kernel_code=3,
    influence_bound=1.0,
    curvature_support=1.0,
    scaled_value=_huber_value,
    scaled_influence=_huber_influence,
    curvature_of_ratio=_huber_curvature,
    inverse=_identity,
)

#: u²/2.
SQUARE = Rho(
    name="square",
    kernel_code=4,
    influence_bound=inf,
    curvature_support=inf,
    scaled_value=_square_value,
    scaled_influence=_square_influence,
    curvature_of_ratio=_square_curvature,
    inverse=_identity,
)

#: The choices of ρ, by the name that the parameter `rho` of an estimator takes.
#:
#: >>> from marginpursuit.losses import RHOS
#: >>> list(RHOS)
#: ['catoni', 'pseudo_huber', 'log_cosh', 'huber', 'square']
RHOS: dict[str, Rho] = {rho.name: rho for rho in (CATONI, PSEUDO_HUBER, LOG_COSH, HUBER, SQUARE)}
