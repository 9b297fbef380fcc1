"""Every loss in the fused CUDA kernel, in the interpreter of Triton if there is no CUDA device."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from marginpursuit.losses import RHOS, HingeLoss, LogisticLoss, MarginLoss

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
_triton = pytest.importorskip("marginpursuit._kernels._triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

LOSSES = [
    *(MarginLoss(1.0, 0.7, 0.4, rho) for rho in RHOS),
    *(MarginLoss(2.0, 1e-3, 0.0, rho) for rho in RHOS),
    *(MarginLoss(1.0, 1e30, 1.0, rho) for rho in RHOS),
    LogisticLoss(),
    HingeLoss(0.8),
]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_sweep(loss, dtype):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 100, (67, 12)).astype(float)
    codes, weights = rng.integers(0, 3, 67), rng.random(67) / 67
    coef = rng.normal(size=12).astype(np.float32) / 100
    matrix = torch.asarray(rows, device=DEVICE).to(getattr(torch, dtype))
    there = [torch.asarray(x, device=DEVICE) for x in (codes.astype(np.uint8), weights)]
    found = _triton.sweep(matrix, there[0], 1, there[1], coef, 0.1, loss)
    sign = np.where(codes == 1, 1.0, -1.0)
    margins = sign * (rows @ coef.astype(float) + 0.1)
    factors = weights * sign * loss.derivative(margins)
    true = [*(factors @ rows), weights @ loss.value(margins), factors.sum()]
    size = np.append(np.abs(factors) @ np.abs(rows), [true[-2], np.abs(factors).sum()])
    assert_array_equal(np.abs(found - true) <= 1e-5 * size + 1e-12, True)
