"""The learners of the experiments: each returns its coefficients at a series of checkpoints."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers import MarginPursuitClassifier, PegasosClassifier
from marginpursuit.location import consistent_quantile_scale, quantile_scale
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import stochastic_margin_pursuit

__all__ = ["LEARNERS", "CoefficientPath", "Rescaling", "Task"]


@dataclass(frozen=True)
class Rescaling:
    """One interpretation of the paper's one-time change of the scale, which its text leaves open.

    Attributes
    ----------
    rule : {"printed", "consistent"}
        The scale as printed, or in the unit of the margins (E20).
    step : {"over scale", "plain"}
        Step size after the change: 1/(s√λ(1+t)) as before it, whose 1/s cancels the s of the
        gradient; or 1/(√λ(1+t)).
    clock : {"on", "restart"}
        Whether the step counter t continues or restarts at 0.
    after : float
        Epoch of the change.
    """

    rule: Literal["printed", "consistent"] = "printed"
    step: Literal["over scale", "plain"] = "over scale"
    clock: Literal["on", "restart"] = "on"
    after: float = 5.0

    def __str__(self) -> str:
        step = "step 1/(s√λt)" if self.step == "over scale" else "step 1/(√λt)"
        clock = "t continues" if self.clock == "on" else "t restarts"
        return f"s {self.rule}, {step}, {clock}, after {self.after:g} epochs"


@dataclass(frozen=True, eq=False)
class Task:
    """The input of a learner: training rows and the configuration of the fit."""

    X: FloatArray
    y: FloatArray
    trial: int
    penalty: float
    epochs: int
    rescaling: Rescaling | None
    halved: bool = True
    margin: float = 1.0
    overconfidence: float = 1.0

    @property
    def checkpoints(self) -> NDArray[np.intp]:
        """Gradient counts of up to 40 checkpoints, log-spaced from 0.1 epochs to the last one."""
        n = len(self.y)
        counts = np.geomspace(0.1 * n, self.epochs * n, 40)
        return np.unique(np.rint(counts).astype(np.intp))

    @property
    def random(self) -> np.random.Generator:
        """A generator that is the same for all fits of a trial: same start, same draws."""
        return np.random.default_rng([self.trial, 1])


@dataclass(frozen=True, eq=False)
class CoefficientPath:
    """Coefficients after given numbers of gradients."""

    gradients: NDArray[np.intp]  # (k,)
    coef: FloatArray  # (k, n_features)
    intercept: FloatArray | float = 0.0
    scale: FloatArray = field(default_factory=lambda: np.ones(1))  # of the loss, (k,) or (1,)


def _margin_pursuit(task: Task) -> CoefficientPath:
    """Run the paper's stochastic learner with s = 1, or with one change of s."""
    marks = task.checkpoints
    if task.rescaling is not None:
        return _rescaled(task, task.rescaling)
    path = stochastic_margin_pursuit(
        task.X,
        task.y,
        task.penalty,
        int(marks[-1]),
        halved_penalty=task.halved,
        checkpoints=marks,
        random_state=task.random,
    )
    return CoefficientPath(marks, path.coef)


def _rescaled(task: Task, change: Rescaling) -> CoefficientPath:
    """Run the paper's stochastic learner with s = 1 up to the change and the new s after it."""
    marks = task.checkpoints
    switch = round(change.after * len(task.y))
    random = task.random
    before = stochastic_margin_pursuit(
        task.X,
        task.y,
        task.penalty,
        switch,
        halved_penalty=task.halved,
        checkpoints=np.union1d(marks[marks <= switch], switch),
        random_state=random,
    )
    coef = before.coef[-1]
    margins = task.y * (task.X @ coef)
    scale = float(
        quantile_scale(margins, task.penalty)
        if change.rule == "printed"
        else consistent_quantile_scale(margins)
    )
    late = marks[marks > switch]
    after = stochastic_margin_pursuit(
        task.X,
        task.y,
        task.penalty,
        int(marks[-1]) - switch,
        loss=MarginLoss(scale=scale),
        halved_penalty=task.halved,
        step=None if change.step == "over scale" else 1.0 / np.sqrt(task.penalty),
        steps_before=switch if change.clock == "on" else 0,
        start=coef,
        checkpoints=late - switch,
        random_state=random,
    )
    return CoefficientPath(
        marks,
        np.concatenate([before.coef[: len(marks) - len(late)], after.coef]),
        scale=np.where(marks > switch, scale, 1.0),
    )


def _pegasos(task: Task) -> CoefficientPath:
    """Run Pegasos with its projection and without an intercept."""
    marks = task.checkpoints
    model = PegasosClassifier(
        alpha=task.penalty,
        fit_intercept=False,
        max_iter=int(marks[-1]),
        project=True,
        checkpoints=marks,
        random_state=task.random,
        n_threads=1,
    ).fit(task.X, task.y)
    return CoefficientPath(marks, model.coef_path_[:, 0])


def _untuned(task: Task) -> CoefficientPath:
    """Fit `MarginPursuitClassifier` as published; penalty and epochs are ignored."""
    model = MarginPursuitClassifier.as_published(n_threads=1).fit(task.X, task.y)
    gradients = np.array([model.n_passes_ * len(task.y)])
    return CoefficientPath(gradients, model.coef_, model.intercept_, np.array([model.scale_]))


def _minimiser(task: Task) -> CoefficientPath:
    """Minimise the loss of all rows at s = 1, without penalty or intercept."""
    model = MarginPursuitClassifier.as_published(
        margin=task.margin,
        scale=1.0,
        overconfidence=task.overconfidence,
        fit_intercept=False,
        tol=1e-9,
        n_threads=1,
    ).fit(task.X, task.y)
    return CoefficientPath(np.array([model.n_passes_ * len(task.y)]), model.coef_)


#: The learners, by name.
LEARNERS: dict[str, Callable[[Task], CoefficientPath]] = {
    "margin pursuit": _margin_pursuit,
    "Pegasos": _pegasos,
    "untuned": _untuned,
    "minimiser": _minimiser,
}
