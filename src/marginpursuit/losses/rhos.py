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
