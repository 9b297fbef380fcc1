"""The learners that are compared, each as a course of coefficients over the gradients computed."""

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

__all__ = ["LEARNERS", "Course", "Rescaling", "Task"]

# How many checkpoints a course has, from a tenth of an epoch on, evenly in the logarithm.
_CHECKPOINTS = 40
_FIRST = 0.1


@dataclass(frozen=True)
class Rescaling:
    """One reading of the paper's one-time change of the scale, of which the text leaves much open.

    Attributes
    ----------
    rule : {"printed", "consistent"}
        The scale as printed, or in the unit of the margins (E20).
    step : {"over scale", "plain"}
        The step after the change: 1/(s√λ(1+t)), as before it, whose 1/s cancels the s of the
        gradient; or 1/(√λ(1+t)).
    clock : {"on", "restart"}
        Whether t runs on or starts from 0 again.
    after : float
        When, in epochs.
    """

    rule: Literal["printed", "consistent"] = "printed"
    step: Literal["over scale", "plain"] = "over scale"
    clock: Literal["on", "restart"] = "on"
    after: float = 5.0

    def __str__(self) -> str:
        step = "step 1/(s√λt)" if self.step == "over scale" else "step 1/(√λt)"
        clock = "t runs on" if self.clock == "on" else "t restarts"
        return f"s {self.rule}, {step}, {clock}, after {self.after:g} epochs"


@dataclass(frozen=True, eq=False)
class Task:
    """What a learner is given."""

    X: FloatArray
    y: FloatArray
    trial: int
    penalty: float
    epochs: int
    rescaling: Rescaling | None

    @property
    def checkpoints(self) -> NDArray[np.intp]:
        """Numbers of gradients after which the coefficients are kept."""
        n = len(self.y)
        counts = np.geomspace(_FIRST * n, self.epochs * n, _CHECKPOINTS)
        return np.unique(np.rint(counts).astype(np.intp))

    @property
    def random(self) -> np.random.Generator:
        """The same start and the same draws for all fits of a trial."""
        return np.random.default_rng([self.trial, 1])


@dataclass(frozen=True, eq=False)
class Course:
    """Where a learner was after some numbers of gradients."""

    gradients: NDArray[np.intp]  # (k,)
    coef: FloatArray  # (k, n_features)
    intercept: FloatArray | float = 0.0
    scale: FloatArray = field(default_factory=lambda: np.ones(1))  # of the loss, (k,) or (1,)


def _naive(task: Task) -> Course:
    """Run the paper's stochastic learner with s = 1 throughout, or with one change of it."""
    marks = task.checkpoints
    last = int(marks[-1])
    if task.rescaling is None:
        path = stochastic_margin_pursuit(
            task.X, task.y, task.penalty, last, checkpoints=marks, random_state=task.random
        )
        return Course(marks, path.coef)
    return _rescaled(task, task.rescaling)


def _rescaled(task: Task, change: Rescaling) -> Course:
    marks = task.checkpoints
    switch = round(change.after * len(task.y))
    random = task.random
    before = stochastic_margin_pursuit(
        task.X,
        task.y,
        task.penalty,
        switch,
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
        step=None if change.step == "over scale" else 1.0 / np.sqrt(task.penalty),
        steps_before=switch if change.clock == "on" else 0,
        start=coef,
        checkpoints=late - switch,
        random_state=random,
    )
    return Course(
        marks,
        np.concatenate([before.coef[: len(marks) - len(late)], after.coef]),
        scale=np.where(marks > switch, scale, 1.0),
    )


def _pegasos(task: Task) -> Course:
    marks = task.checkpoints
    model = PegasosClassifier(
        alpha=task.penalty,
        fit_intercept=False,
        max_iter=int(marks[-1]),
        checkpoints=marks,
        random_state=task.random,
        n_threads=1,
    ).fit(task.X, task.y)
    return Course(marks, model.coef_path_[:, 0])


def _untuned(task: Task) -> Course:
    """Fit our classifier as it comes; the penalty and the epochs have no part in it."""
    model = MarginPursuitClassifier(n_threads=1).fit(task.X, task.y)
    gradients = np.array([model.n_passes_ * len(task.y)])
    return Course(gradients, model.coef_, model.intercept_, np.array([model.scale_]))


#: The learners, by name.
LEARNERS: dict[str, Callable[[Task], Course]] = {
    "margin pursuit": _naive,
    "Pegasos": _pegasos,
    "untuned": _untuned,
}
