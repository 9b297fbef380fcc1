"""The choices of ρ besides Catoni's: Huber, pseudo-Huber, log-cosh and the square."""

from math import inf, log
from typing import Any

from marginpursuit.losses.rhos import Rho, at_most

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
