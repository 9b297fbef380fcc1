"""Independent ways to a result: roots, losses and functions ρ in 50-digit arithmetic."""

import inspect

import mpmath as mp
import numpy as np

ROOT2 = mp.sqrt(2)
BOUND = 2 * ROOT2 / 3
LARGEST = float(np.finfo(float).max)
EPS = float(np.finfo(float).eps)


def _catoni(u):
    if u > ROOT2:
        return BOUND * u - mp.mpf(1) / 2, BOUND, mp.mpf(0)
    return u**2 / 2 - u**4 / 24, u - u**3 / 6, 1 - u**2 / 2


def _pseudo_huber(u):
    root = mp.sqrt(1 + u * u)
    return u * u / (1 + root), u / root, root**-3


def _log_cosh(u):
    if u < mp.mpf("1e-12"):  # cosh u - 1 would lose all of its 50 digits
        return u**2 / 2 - u**4 / 12, u - u**3 / 3, 1 - u**2
    power = mp.exp(-2 * u)
    return u + mp.log1p(power) - mp.log(2), mp.tanh(u), 4 * power / (1 + power) ** 2


def _huber(u):
    return (u * u / 2, u, mp.mpf(1)) if u <= 1 else (u - mp.mpf(1) / 2, mp.mpf(1), mp.mpf(0))


def _square(u):
    return u * u / 2, u, mp.mpf(1)


#: ρ, ψ and ρ'' at u >= 0, by the name of ρ: the definitions, word for word.
EXACT_RHOS = {
    "catoni": _catoni,
    "pseudo_huber": _pseudo_huber,
    "log_cosh": _log_cosh,
    "huber": _huber,
    "square": _square,
}


def exact_rho(name, u):
    """Return ρ, ψ and ρ'' at any u."""
    u = mp.mpf(u)
    value, influence, curvature = EXACT_RHOS[name](abs(u))
    return value, mp.sign(u) * influence, curvature


def exact_margin_loss(loss, margin):
    """Return value, derivative and curvature of a MarginLoss at a margin."""
    residual, scale = mp.mpf(loss.margin) - mp.mpf(margin), mp.mpf(loss.scale)
    weight = mp.mpf(loss.overconfidence) if residual < 0 else 1
    value, influence, curvature = exact_rho(loss.rho, residual / scale)
    return weight * scale**2 * value, -weight * scale * influence, weight * curvature


def ulps(actual, exact):
    """Count the units in the last place between `actual` and the 50-digit `exact`."""
    kind = np.asarray(actual).dtype.type
    if abs(exact) > float(np.finfo(kind).max):
        return 0.0 if actual == mp.sign(exact) * mp.inf else np.inf
    unit_in_last_place = np.spacing(abs(kind(float(exact))))
    return float(abs(mp.mpf(float(actual)) - exact) / mp.mpf(float(unit_in_last_place)))


def neighbours(x, n=40):
    """Return `x` and the `n` floats on either side of it."""
    bits = np.array(x, np.float64).view(np.int64)
    return (bits + np.arange(-n, n + 1)).view(np.float64)


def with_signs(*pieces):
    """Return all numbers and their negatives."""
    points = np.concatenate([np.ravel(piece) for piece in pieces])
    return np.concatenate([points, -points])


def polynomial_roots(coefficients, *, digits=60):
    """Return the complex roots of a polynomial, highest power first, by mpmath."""
    with mp.workdps(digits):
        exact = [mp.mpf(c) for c in coefficients]
        if "asc" in inspect.signature(mp.polyroots).parameters:  # mpmath 1.4 and newer
            return mp.polyroots(exact[::-1], maxsteps=500, extraprec=400, asc=True)
        return mp.polyroots(exact, maxsteps=500, extraprec=400)
