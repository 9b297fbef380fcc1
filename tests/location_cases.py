"""The equation of the location estimate in 50-digit arithmetic, and samples for its tests."""

import mpmath as mp
import numpy as np
from hypothesis import strategies as st

ROOT2 = mp.sqrt(2)
BOUND = 2 * ROOT2 / 3
EPSILON = np.finfo(float).eps


def equation(theta, x, scale, weight=None):
    """Sum w ψ((θ - x)/s) with 50 digits; the saturated values are counted, so that they cancel."""
    balance = total = mp.mpf(0)
    truncation = mp.mpf(float(scale)) * ROOT2
    for value, w in zip(x, np.ones(len(x)) if weight is None else weight, strict=True):
        distance, w = theta - mp.mpf(float(value)), mp.mpf(float(w))
        if abs(distance) >= truncation:
            balance += w * mp.sign(distance)
        else:
            u = distance / mp.mpf(float(scale))
            total += w * (u - u**3 / 6)
    return BOUND * balance + total


def reference(x, scale, weight=None):
    """The root, by bisection; the middle of the roots where there is more than one."""
    used = np.asarray(x, dtype=float)[np.ones(len(x)) > 0 if weight is None else weight > 0]
    least, most = mp.mpf(float(used.min())), mp.mpf(float(used.max()))

    def edge(below):
        low, high = least, most
        for _ in range(130):
            middle = (low + high) / 2
            low, high = (middle, high) if below(middle) else (low, middle)
        return (low + high) / 2

    first = edge(lambda t: equation(t, x, scale, weight) < 0)
    if equation(first + (most - least) * mp.mpf(2) ** -120, x, scale, weight) != 0:
        return first
    return (first + edge(lambda t: equation(t, x, scale, weight) <= 0)) / 2


def rounding(theta, x, scale):
    """Half a unit in the last place of θ, and a few of the smaller of scale and spread."""
    return 0.5001 * np.spacing(abs(float(theta))) + 4 * EPSILON * min(float(scale), np.ptp(x))


def assert_solves(theta, x, scale, weight=None):
    """The exact sum changes sign within rounding of θ."""
    x = np.asarray(x, dtype=float)
    used = x if weight is None else x[np.asarray(weight) > 0]
    error = mp.mpf(rounding(theta, used, scale))
    theta = mp.mpf(float(theta))
    assert (
        equation(theta - error, x, scale, weight) <= 0 <= equation(theta + error, x, scale, weight)
    )


SAMPLES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "ties": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "skew": lambda rng, n: np.exp(4.0 * rng.standard_normal(n)),
    "far": lambda rng, n: 1e6 + rng.standard_normal(n),
    "outlier": lambda rng, n: np.append(rng.standard_normal(n - 1), 1e9),
}
WEIGHTS = {
    "none": lambda rng, n: None,
    "real": lambda rng, n: rng.gamma(0.5, size=n),
    "whole": lambda rng, n: np.append(rng.integers(0, 4, n - 1), 1.0),
}

values = st.floats(-100.0, 100.0, allow_subnormal=False) | st.integers(-3, 3).map(float)
samples = st.lists(values, min_size=1, max_size=9).map(np.array)
scales = st.floats(-6.0, 6.0).map(lambda e: 10.0**e)
