"""A linear classifier as a module of PyTorch, and back; imported by `to_torch` and `from_torch`."""

from collections import OrderedDict
from typing import Any

import numpy as np
import torch

from marginpursuit._namespaces import to_numpy
from marginpursuit.classifiers._shared import ExactLink
from marginpursuit.export._linear_model import LinearModel
from marginpursuit.losses import JointLoss, MarginLoss


class LinkModule(torch.nn.Module):  # type: ignore[misc]
    """The link of a fitted classifier: scores, (n, n_problems), to probabilities, (n, n_classes).

    Without a link, the scores. `classes` are those of the columns of the result.
    """

    def __init__(self, model: LinearModel) -> None:
        super().__init__()
        self.link, self.has_label_sets = model.link, model.has_label_sets
        self.classes = model.classes.tolist()
        self.feature_names = model.feature_names

    def forward(self, scores: Any) -> Any:
        """Return the probabilities, computed in float64, in the dtype of the scores."""
        if self.link is None:
            return scores
        return self.link.probabilities(scores).to(scores.dtype)

    def extra_repr(self) -> str:
        """Return the link, for `print`."""
        return f"{len(self.classes)} classes, {self.link}"


def module_of(model: LinearModel, dtype: Any) -> Any:
    """Return a module of the layers `linear` and `link`."""
    linear = torch.nn.Linear(model.n_features, model.n_problems, dtype=dtype or torch.float64)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(model.coef.copy()))
        linear.bias.copy_(torch.from_numpy(model.intercept.copy()))
    return torch.nn.Sequential(OrderedDict(linear=linear, link=LinkModule(model)))


def model_of(module: Any, classes: Any, loss: MarginLoss) -> LinearModel:
    """Return the numbers of a module of `module_of`, or of a layer trained with a loss."""
    link = getattr(module, "link", None)
    linear = getattr(module, "linear", module)
    if not isinstance(linear, torch.nn.Linear):
        raise TypeError(
            f"got a module of type {type(module).__name__}; expected torch.nn.Linear, or a module "
            "that to_torch returned"
        )
    coef = to_numpy(linear.weight).astype(np.float64)
    bias = np.zeros(len(coef)) if linear.bias is None else to_numpy(linear.bias).astype(np.float64)
    if isinstance(link, LinkModule):
        labels = np.array(link.classes if classes is None else classes)
        return LinearModel(coef, bias, labels, link.has_label_sets, link.link, link.feature_names)
    if len(coef) == 2:  # the loss of two classes depends on the difference of their scores
        coef, bias = coef[1:] - coef[:1], bias[1:] - bias[:1]
    n_classes = max(2, len(coef))
    exact = ExactLink(loss if n_classes == 2 else JointLoss.at_level(loss))
    labels = np.arange(n_classes) if classes is None else np.array(classes)
    return LinearModel(coef, bias, labels, False, exact, None)
