"""Every loss in every kernel: to the last digits, at extreme scales, and for every layout."""

import mpmath as mp
import numpy as np
import pytest
from kernel_cases import (
    LAYOUTS,
    LEVELS,
    LOSSES,
    Problem,
    check,
    handle,
    random_loss,
    random_problem,
)
from oracles import exact_rho, ulps

from marginpursuit.losses import RHOS, MarginLoss

each_kind = pytest.mark.parametrize("kind", LOSSES)
each_level = pytest.mark.parametrize("level", ["numpy", *LEVELS])


def exact(kind, margin):
    """Return value and derivative at a margin, for level and scale 1."""
    if kind == "logistic":
        power = mp.exp(-abs(margin))
        slope = (1 if margin < 0 else power) / (1 + power)
        return mp.log1p(power) + max(-margin, 0), -slope
    if kind == "hinge":
        return max(1 - margin, 0), mp.mpf(-1 if margin < 1 else 0)
    value, influence, _ = exact_rho(kind, 1 - margin)
    return value, -influence


def swept(rows, loss, margin, n):
    """Return value and slope of n rows of weight 1/n, all with this margin."""
    problem = Problem(np.ones((8, 9)), np.ones(8), np.full(8, 1 / n), np.zeros(9), margin, loss)
    return problem.sweep(rows, 0, n)[:2]


@each_level
@each_kind
def test_right_to_the_last_digits(level, kind):
    """At margins whose residuals are exact: 1 - m, or -m for the logistic loss."""
    loss = LOSSES[kind] if kind == "logistic" else type(LOSSES[kind])()
    loss = MarginLoss(rho=kind) if kind in RHOS else loss
    rows = handle(np.ones((8, 9)), "C", level)
    sizes = np.concatenate([np.arange(0, 40) / 16, 2.0 ** np.arange(-30, 9.5, 0.5), [37.0, 700.0]])
    residuals = np.concatenate([sizes, -sizes])
    margins = (0.0 if kind == "logistic" else 1.0) - residuals
    if kind != "logistic":
        margins = margins[1.0 - margins == residuals]
    for margin in margins.tolist():
        value, slope = exact(kind, mp.mpf(margin))
        for n in (1, 8):
            found = swept(rows, loss, margin, n)
            assert ulps(found[0], value) <= 6, margin
            assert ulps(found[1], slope) <= 6, margin


@each_level
@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-10, 1.0, 1e10, 1e150, 1e300, 1.7e308])
def test_extreme_scales_follow_the_loss(level, rho, scale):
    ratios = [0.0, 1e-320, 1e-200, 1e-8, 1e-4, 0.5, 1.0, 1.5, 3.0, 300.0, 1e8, 1e200, np.inf]
    rows = handle(np.ones((8, 9)), "C", level)
    for above in (0.0, 0.5, 1.0):
        for margin in (1e-300, 1.0, 1e300):
            loss = MarginLoss(margin, scale, above, rho)
            with np.errstate(over="ignore", under="ignore"):
                points = np.array([margin + side * scale * r for r in ratios for side in (-1, 1)])
                truth = loss.value(points), loss.derivative(points)
            for m, value, slope in zip(points.tolist(), *truth, strict=True):
                for n in (1, 8):
                    found = swept(rows, loss, m, n)
                    np.testing.assert_allclose(found[0], value, rtol=4e-14, atol=1e-322)
                    np.testing.assert_allclose(found[1], slope, rtol=1e-14, atol=1e-322)


@each_level
@each_kind
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_type(level, kind, layout):
    rng = np.random.default_rng(5)
    for n, d, dtype in [(33, 5, "f8"), (40, 20, "f4"), (17, 70, "u1"), (21, 40, "f2")]:
        problem = random_problem(rng, n, d, dtype, random_loss(rng, (kind,)))
        check(problem, handle(problem.matrix, layout, level), 0, n, layout)


@each_level
@each_kind
def test_nan_and_infinite_margins(level, kind):
    rows, loss = handle(np.ones((8, 9)), "C", level), LOSSES[kind]
    for n in (1, 8):
        assert np.isnan(swept(rows, loss, np.nan, n)[0])
        assert swept(rows, loss, -np.inf, n)[0] == np.inf
        assert swept(rows, loss, -np.inf, n)[1] == loss.derivative(-np.inf)
        assert swept(rows, loss, np.inf, n)[1] == loss.derivative(np.inf)


def test_a_loss_without_kernel_is_refused():
    rows = handle(np.ones((8, 9)), "C", LEVELS[-1] if LEVELS else pytest.skip("not compiled"))
    with pytest.raises(TypeError, match=r"^object has no compiled kernel"):
        swept(rows, object(), 0.0, 1)
