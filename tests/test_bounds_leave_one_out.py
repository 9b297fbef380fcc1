"""The leave-one-out bound, against leaving observations out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginpursuit.bounds import (
    leave_one_out_bound,
)


def solve_dual(matrix, linear, box, held=None):
    """Minimise ½αᵀUα + uᵀα over the box by coordinate descent, with one variable fixed at zero."""
    alpha = np.zeros(len(linear))
    gradient = linear.copy()
    for _ in range(20_000):
        largest = 0.0
        for i in range(len(linear)):
            if i == held:
                continue
            new = min(max(alpha[i] - gradient[i] / matrix[i, i], 0.0), box)
            gradient += (new - alpha[i]) * matrix[:, i]
            largest = max(largest, abs(new - alpha[i]))
            alpha[i] = new
        if largest < 1e-13 * box:
            break
    return alpha


def ldm_dual(z, lambda_1, lambda_2):
    """Return U and u of the dual for rows z = y x, and the matrix that gives w."""
    n = len(z)
    quadratic = np.eye(z.shape[1]) + 2 * lambda_1 * np.cov(z.T, bias=True).reshape(2 * z.shape[1:])
    inverse = np.linalg.inv(quadratic)
    matrix = z @ inverse @ z.T
    return matrix, lambda_2 / n * matrix.sum(axis=1) - 1, inverse


def toy(seed, n, separation):
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return y[:, None] * (rng.normal(size=(n, 2)) + separation * y[:, None] * [1.0, 0.5])


@settings(max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(3, 12),
    st.floats(0.0, 2.0),
    st.sampled_from([0.0, 0.5, 4.0]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.5, 5.0, 50.0]),
)
def test_left_out_errors_are_below_the_bound(seed, n, separation, lambda_1, lambda_2, lambda_3):
    matrix, linear, _ = ldm_dual(toy(seed, n, separation), lambda_1, lambda_2)
    box = lambda_3 / n
    alpha = solve_dual(matrix, linear, box)
    result = leave_one_out_bound(alpha, np.diag(matrix), box, tolerance=1e-6)
    held = [solve_dual(matrix, linear, box, held=i) for i in range(n)]
    # The gradient of the dual at i is the margin of i less 1.
    margin = np.array([(matrix @ a + linear)[i] + 1 for i, a in enumerate(held)])
    assert np.mean(margin < -1e-6) <= result.counted
    assert result.counted <= result.bound + 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_bound_is_above_the_leave_one_out_error_of_a_small_problem(seed):
    lambda_1, lambda_2, lambda_3, n = 1.0, 0.5, 8.0, 24
    z = toy(seed, n, 1.0)
    matrix, linear, inverse = ldm_dual(z, lambda_1, lambda_2)
    alpha = solve_dual(matrix, linear, lambda_3 / n)
    w = inverse @ z.T @ (lambda_2 / n + alpha)
    primal = 0.5 * w @ w + lambda_1 * np.var(z @ w) - lambda_2 * np.mean(z @ w)
    primal += lambda_3 / n * np.maximum(1 - z @ w, 0).sum()
    dual = 0.5 * alpha @ matrix @ alpha + linear @ alpha
    constant = 0.5 * (lambda_2 / n) ** 2 * matrix.sum()
    assert primal == pytest.approx(
        -dual - constant, rel=1e-9
    )  # no duality gap: the dual is correct
    errors = 0
    for i in range(n):
        rest = np.delete(z, i, axis=0)
        matrix_i, linear_i, inverse_i = ldm_dual(rest, lambda_1, lambda_2)
        alpha_i = solve_dual(matrix_i, linear_i, lambda_3 / n)
        errors += z[i] @ inverse_i @ rest.T @ (lambda_2 / (n - 1) + alpha_i) <= 0
    result = leave_one_out_bound(alpha, np.diag(matrix), lambda_3 / n)
    assert errors / n <= result.counted <= result.bound < 1.5


def test_left_out_terms():
    result = leave_one_out_bound([0.0, 0.3, 0.5, 1.0, 1.0 - 1e-10], [9.0, 3.0, 2.0, 1.0, 7.0], 1.0)
    assert result.free == pytest.approx((0.9 + 1.0) / 5)
    assert result.boxed == 2 / 5
    assert result.bound == result.free + result.boxed
    assert result.counted == 3 / 5
    strict = leave_one_out_bound([1.0 - 1e-10], [7.0], 1.0, tolerance=0.0)
    assert strict.boxed == 0.0
    assert strict.free == pytest.approx(7.0)
    below = leave_one_out_bound([-1e-12], [7.0], 1.0)
    assert below.bound == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": [0.5, 1.1]}, r"alpha / box must be in .* got 1\.1 at index \(1,\)"),
        ({"alpha": [-0.1, 0.5]}, "alpha / box must be in"),
        ({"alpha": [0.5]}, r"got shapes \(1,\) and \(2,\)"),
        ({"alpha": [], "diagonal": []}, "of equal length of at least 1"),
        ({"alpha": [[0.5, 0.5]]}, "one-dimensional"),
        ({"diagonal": [1.0, -1.0]}, "diagonal must be in"),
        ({"box": 0.0}, "box must be positive"),
        ({"tolerance": -1.0}, "tolerance must be in"),
    ],
)
def test_left_out_bound_rejects_invalid_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        leave_one_out_bound(**({"alpha": [0.5, 1.0], "diagonal": [1.0, 1.0], "box": 1.0} | changes))


def test_fixing_at_zero_is_leaving_out_without_mean_and_variance_terms():
    z, box = toy(0, 10, 0.5), 0.8
    for lambda_1, lambda_2, same in [(0.0, 0.0, True), (1.0, 0.0, False), (0.0, 0.5, False)]:
        matrix, linear, _ = ldm_dual(z, lambda_1, lambda_2)
        gap = 0.0
        for i in range(10):
            held = matrix[i] @ solve_dual(matrix, linear, box, held=i) + linear[i] + 1
            rest = np.delete(z, i, axis=0)
            matrix_i, linear_i, inverse_i = ldm_dual(rest, lambda_1, lambda_2)
            alpha = solve_dual(matrix_i, linear_i, box)
            gap = max(gap, abs(z[i] @ inverse_i @ rest.T @ (lambda_2 / 9 + alpha) - held))
        assert (gap < 1e-9) == same


@pytest.mark.parametrize("lambda_1", [0.0, 1.0])
def test_left_out_bound_does_not_bound_the_risk_with_a_mean_term(lambda_1):
    """Two equally likely inputs at 120°, n = 2: on every sample the bound is 0, the risk is not.

    The mean term alone lifts the margins of a sample above 1, so that no dual variable is needed;
    but a sample that holds the same input twice puts the other one on the wrong side.
    """
    points, lambda_2, box = np.array([[1.0, 0.0], [-0.5, math.sqrt(0.75)]]), 50.0, 0.5
    risk = bound = counted = 0.0
    for sample in ([0, 0], [0, 1], [1, 0], [1, 1]):
        z = points[sample]
        matrix, linear, inverse = ldm_dual(z, lambda_1, lambda_2)
        alpha = solve_dual(matrix, linear, box)
        w = inverse @ z.T @ (lambda_2 / 2 + alpha)
        risk += np.mean(points @ w <= 0) / 4
        result = leave_one_out_bound(alpha, np.diag(matrix), box)
        bound, counted = bound + result.bound / 4, counted + result.counted / 4
    assert risk == 0.25
    assert bound == counted == 0.0


def test_tolerance_is_at_most_one_half():
    leave_one_out_bound([0.1, 0.2], [1.0, 1.0], 1.0, tolerance=0.5)
    with pytest.raises(ValueError, match="tolerance must be"):
        leave_one_out_bound([0.1, 0.2], [1.0, 1.0], 1.0, tolerance=0.6)
