"""Joint losses of rows of scores on a CUDA device: a Triton kernel that reads the scores once.

A program evaluates one row: it reads the scores of all classes, and overwrites them by the
derivatives of the loss.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from marginpursuit._kernels._triton import _POLICY, _loss, _unit
from marginpursuit.losses import RHOS, JointLoss


def supports(joint: JointLoss, n_classes: int, max_classes: int = 16384) -> bool:
    """Whether the kernel has the loss, and a program has registers for all scores of a row."""
    return joint.loss.kernel_parameters is not None and n_classes <= max_classes


def joint_losses(scores: Any, codes: Any, weights: Any, joint: JointLoss) -> Any:
    """Replace scores by weighted derivatives; return the weighted loss of each row, in float32.

    Parameters
    ----------
    scores : tensor of float32 of shape (n_rows, n_classes)
        Scores, contiguous along a row; overwritten.
    codes : tensor of integers of shape (n_rows,)
        The class of each row.
    weights : tensor of float32 of shape (n_rows,)
        Weights of the rows.
    joint : JointLoss
        The loss. Its margin loss has kernel parameters.
    """
    n_rows, n_classes = scores.shape
    assert joint.loss.kernel_parameters is not None
    code, margin, scale, _ = joint.loss.kernel_parameters
    unit = _unit(joint.loss)
    values = torch.empty(n_rows, dtype=torch.float32, device=scores.device)
    block = triton.next_power_of_2(n_classes)
    with torch.cuda.device_of(scores):
        _joint[(n_rows,)](
            *(scores, codes, weights, values, n_classes, scores.stride(0)),
            *(codes.stride(0), weights.stride(0), joint.temperature),
            *(margin, min(scale / unit, _POLICY.max_scale), unit),
            KIND=tuple(RHOS)[code],
            BLOCK=block,
            num_warps=min(max(block // 256, 1), 16),
        )
    return values


@triton.jit  # type: ignore[untyped-decorator]
def _joint(  # type: ignore[no-untyped-def]  # pragma: no cover - runs on the device
    scores,
    codes,
    weights,
    values,
    n_classes,
    score_stride,
    code_stride,
    weight_stride,
    temperature,
    level,
    scale,
    unit,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    is_column = column < n_classes
    address = scores + row * score_stride + column
    score = tl.load(address, mask=is_column, other=float("-inf"))
    is_own_class = column == tl.load(codes + row * code_stride).to(tl.int32)
    own_score = tl.sum(tl.where(is_own_class, score, 0.0), axis=0)
    other_scores = tl.where(is_own_class, float("-inf"), score)
    largest = tl.max(other_scores, axis=0)
    powers = tl.exp((other_scores - largest) / temperature)
    total = tl.sum(powers, axis=0)
    # Residuals are in units of `unit`, such that their squares fit float32.
    residual = (level - (own_score - largest - temperature * tl.log(total))) / unit
    loss, influence = _loss(residual, scale, KIND)
    weight = tl.where(residual > 0, tl.load(weights + row * weight_stride), 0.0)
    factor = weight * influence * unit
    derivative = tl.where(is_own_class, -factor, factor * (powers / total))
    tl.store(address, derivative, mask=is_column)
    tl.store(values + row, weight * loss * unit * unit)
