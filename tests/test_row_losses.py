"""Losses of the rows of one task in chunks, against the formulas of `losses`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from marginpursuit._threads import Threads
from marginpursuit.losses import LogisticLoss, MarginLoss
from marginpursuit.solvers._row_losses import RowLosses

LOSSES = [
    *(MarginLoss(1.3, 0.4, tau, rho) for tau in (0.0, 0.3) for rho in ("catoni", "huber")),
    *(MarginLoss(0.7, 2.0, 1.0, rho) for rho in ("pseudo_huber", "log_cosh", "square")),
    LogisticLoss(),
]


def rows(loss, n_rows, threads=None, chunk_rows=8):
    rng = np.random.default_rng(n_rows)
    sign, weights = rng.choice([-1.0, 1.0], n_rows), rng.uniform(0.1, 2.0, n_rows)
    scores, change = rng.normal(scale=2.0, size=(2, n_rows))
    return RowLosses(loss, sign, weights, threads or Threads(), chunk_rows), (
        *(sign, weights),
        *(scores, change),
    )


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("n_rows", [0, 1, 8, 21])
def test_against_the_formulas(loss, n_rows):
    own, (sign, weights, scores, change) = rows(loss, n_rows)
    margins = sign * (scores - 0.3 * change)
    value, slope = own.line(scores, change, -0.3)
    assert_allclose(value, weights @ loss.value(margins), rtol=1e-13)
    expected = (weights * sign * change) @ loss.derivative(margins)
    assert_allclose(slope, expected, rtol=1e-12, atol=1e-14)
    value, dual = own.value_and_dual(scores)
    assert_allclose(value, weights @ loss.value(sign * scores), rtol=1e-13)
    assert_allclose(dual, -loss.derivative(sign * scores), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_curvature_is_a_divided_difference_of_the_derivative(loss):
    own, (sign, _, scores, change) = rows(loss, 50)
    width = np.abs(change) * (np.arange(50) % 2)  # half of the widths are below the least one
    used = np.maximum(width, 1e-2)
    above, below = (loss.derivative(sign * scores + h) for h in (used, -used))
    found = own.curvature(scores, width, 1e-2)
    assert_allclose(found, np.maximum(above - below, 0) / (2 * used), rtol=1e-9, atol=1e-12)
    assert np.all(found >= 0)


def test_the_number_of_threads_changes_nothing():
    with Threads(3) as threads:
        several, arrays = rows(MarginLoss(), 1000, threads)
        single, _ = rows(MarginLoss(), 1000)
        scores, change = arrays[2:]
        assert several.line(scores, change, 0.7) == single.line(scores, change, 0.7)
        assert_array_equal(
            several.curvature(scores, change, 0.1), single.curvature(scores, change, 0.1)
        )
        for found, expected in zip(
            several.value_and_dual(scores), single.value_and_dual(scores), strict=True
        ):
            assert_array_equal(found, expected)


def test_weights_that_underflow():
    """The product of weight and width is zero; the row counts for nothing."""
    own = RowLosses(MarginLoss(), np.ones(2), np.array([1.0, 5e-324]), Threads())
    curvature = own.curvature(np.full(2, 0.5), np.zeros(2), 1e-6)
    assert np.all(np.isfinite(curvature))
    assert np.all(np.isfinite(own.value_and_dual(np.full(2, 0.5))[1]))
