"""The fused CUDA kernel of joint losses, in the interpreter of Triton without a CUDA device."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from marginpursuit.losses import RHOS, JointLoss, MarginLoss

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
kernel = pytest.importorskip("marginpursuit._kernels._triton_joint")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

LOSSES = [
    *(JointLoss(MarginLoss(1.0, 0.7, 0.0, rho), 0.3) for rho in RHOS),
    JointLoss(MarginLoss(2.0, 1e-3, 0.0), 0.05),
    JointLoss(MarginLoss(1.0, 1e6, 0.0), 3.0),
]


@pytest.mark.parametrize("joint", LOSSES, ids=str)
@pytest.mark.parametrize("n_classes", [2, 3, 37])
def test_values_and_derivatives_are_those_of_the_loss(joint, n_classes):
    rng = np.random.default_rng(n_classes)
    scores = 2 * rng.normal(size=(29, n_classes))
    codes, weights = rng.integers(0, n_classes, 29), rng.random(29)
    wide = torch.zeros((29, n_classes + 3), dtype=torch.float32, device=DEVICE)
    own = wide[:, 1 : n_classes + 1]
    own += torch.asarray(scores, dtype=torch.float32, device=DEVICE)
    there = [torch.asarray(x, device=DEVICE) for x in (codes, weights.astype(np.float32))]
    assert kernel.supports(joint, n_classes)
    found = kernel.joint_losses(own, *there, joint)
    value, derivative = joint.value_and_gradient(scores, codes, weights)
    assert_allclose(found.cpu(), value, rtol=2e-5, atol=1e-5)
    assert_allclose(own.cpu(), derivative, rtol=2e-4, atol=1e-5)
    assert not wide[:, 0].any()
    assert not wide[:, n_classes + 1 :].any()


def test_too_many_classes_are_refused():
    assert not kernel.supports(LOSSES[0], 10**6)
