"""Independent ways to a result that several test files share."""

import inspect

import mpmath


def polynomial_roots(coefficients, *, digits=60):
    """Return the complex roots of a polynomial, highest power first, by mpmath."""
    with mpmath.workdps(digits):
        exact = [mpmath.mpf(c) for c in coefficients]
        if "asc" in inspect.signature(mpmath.polyroots).parameters:  # mpmath 1.4 and newer
            return mpmath.polyroots(exact[::-1], maxsteps=500, extraprec=400, asc=True)
        return mpmath.polyroots(exact, maxsteps=500, extraprec=400)
