"""H⁻ and Ψ̃ of Bartlett, Jordan and McAuliffe, by brute force."""

import numpy as np
import pytest

from marginpursuit import calibration
from marginpursuit.calibration import (
    conditional_risk,
    conditional_risk_minus,
    psi_tilde,
    psi_transform,
)
from marginpursuit.losses import MarginLoss


@pytest.mark.parametrize(("margin", "scale"), [(0.4, 1.0), (1.3, 1.0), (3.0, 0.7)])
def test_risk_of_the_wrong_sign_and_its_gap_are_those_of_bartlett(margin, scale):
    """H⁻ by brute force over scores of the wrong sign; Ψ̃ is convex, so it is its biconjugate Ψ."""
    loss = MarginLoss(margin, scale)
    grid = np.linspace(0, 3 * margin, 3001)
    for eta in (0.0, 0.2, 0.5, 0.9, 1.0):
        wrong = -grid if eta > 0.5 else grid
        wrong = np.append(grid, -grid) if eta == 0.5 else wrong
        risks = eta * loss.value(wrong) + (1 - eta) * loss.value(-wrong)
        assert conditional_risk_minus(eta, margin, scale) == pytest.approx(risks.min(), rel=1e-9)
    theta = np.linspace(-1, 1, 201)
    gap = conditional_risk_minus((1 + theta) / 2, margin, scale) - conditional_risk(
        (1 + theta) / 2, margin, scale
    )
    np.testing.assert_allclose(psi_tilde(theta, margin, scale), gap, atol=1e-12)
    assert np.all(np.diff(gap, 2) >= -1e-12)
    np.testing.assert_array_equal(
        psi_tilde(theta, margin, scale), psi_transform(theta, margin, scale)
    )


@pytest.mark.parametrize(
    "name",
    [
        *("conditional_risk", "conditional_risk_minus", "optimal_score", "probability"),
        *("psi_inverse", "psi_tilde", "psi_transform"),
    ],
)
def test_level_and_scale_are_one_by_default(name):
    function = getattr(calibration, name)
    for value in (0.2, 0.3):
        assert function(value) == function(value, 1.0) == function(value, 1.0, 1.0)


@pytest.mark.parametrize("eta", [-0.1, 1.5])
def test_risk_of_the_wrong_sign_needs_a_probability(eta):
    with pytest.raises(ValueError, match="eta"):
        calibration.conditional_risk_minus(eta)
