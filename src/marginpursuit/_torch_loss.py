"""The margin loss as a module of PyTorch; imported by `marginpursuit.interop.torch_loss`."""

from typing import Any

import torch

from marginpursuit.losses import JointLoss, MarginLoss


class _Value(torch.autograd.Function):  # type: ignore[misc]
    """φ of margins, with φ' as its derivative."""

    @staticmethod
    def forward(ctx: Any, margins: Any, loss: MarginLoss) -> Any:
        ctx.save_for_backward(margins)
        ctx.loss = loss
        return loss.value_and_derivative(margins, torch.ones_like(margins))[0]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (margins,) = ctx.saved_tensors
        return grad * _Derivative.apply(margins, ctx.loss), None


class _Derivative(torch.autograd.Function):  # type: ignore[misc]
    """φ' of margins, with φ'' as its derivative."""

    @staticmethod
    def forward(ctx: Any, margins: Any, loss: MarginLoss) -> Any:
        ctx.save_for_backward(margins)
        ctx.loss = loss
        return loss.value_and_derivative(margins, torch.ones_like(margins))[1]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (margins,) = ctx.saved_tensors
        loss = ctx.loss
        residual = loss.margin - margins
        curvature = loss.rho_function.curvature(residual, loss.scale)
        return grad * torch.where(residual < 0, loss.overconfidence * curvature, curvature), None


class TorchMarginLoss(torch.nn.Module):  # type: ignore[misc]
    """The loss of `marginpursuit.interop.torch_loss`."""

    def __init__(self, loss: MarginLoss, reduction: str) -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f'reduction must be "mean", "sum" or "none"; got {reduction!r}')
        self.loss, self.reduction = loss, reduction

    def forward(self, scores: Any, target: Any, weight: Any = None) -> Any:
        """Return the loss of scores (n,), (n, 1) or (n, K) and targets (n,)."""
        if target.shape != scores.shape[:1]:
            raise ValueError(
                f"target must have shape ({len(scores)},), one class for each row of scores; got "
                f"{tuple(target.shape)}"
            )
        wide = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
        values = _Value.apply(self._margins(wide, target), self.loss)
        if weight is not None:
            values = values * weight
        if self.reduction == "none":
            return values
        total = values.sum()
        if self.reduction == "sum":
            return total
        return total / (len(values) if weight is None else weight.sum())

    def _margins(self, scores: Any, target: Any) -> Any:
        if scores.ndim == 1 or scores.shape[1] == 1:
            return torch.where(target > 0, 1.0, -1.0).to(scores.dtype) * scores.reshape(-1)
        temperature = JointLoss.at_level(self.loss).temperature  # rejects a positive overconfidence
        own = torch.nn.functional.one_hot(target.long(), scores.shape[1]).bool()
        others = scores.masked_fill(own, -torch.inf)
        return scores[own] - temperature * torch.logsumexp(others / temperature, dim=1)

    def extra_repr(self) -> str:
        """Return the parameters, for `print`."""
        loss = self.loss
        return (
            f"margin={loss.margin:g}, scale={loss.scale:g}, overconfidence={loss.overconfidence:g}"
        )
