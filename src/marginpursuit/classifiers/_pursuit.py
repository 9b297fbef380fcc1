"""Solving at the scale that a rule gives back."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log

from marginpursuit.classifiers._array_margins import margins_of
from marginpursuit.classifiers._block_margins import block_margins
from marginpursuit.classifiers._margins import Margins
from marginpursuit.design import BlockDesign, Linear
from marginpursuit.solvers import Problem, Solution
from marginpursuit.tasks import Labels

# A rule has settled when it gives back the scale of the fit up to this share.
_SETTLED = 0.02
_MOST_FITS = 10


@dataclass(frozen=True, slots=True)
class Pursuit:
    """A fit at the scale that was settled on."""

    solution: Solution
    margins: Margins
    scale: float
    wanted: float  # what the rule makes of the margins; the scale itself where there is no rule
    n_iter: int  # of all fits

    @property
    def settled(self) -> bool:
        """Whether the rule gives the scale back."""
        return abs(self.wanted - self.scale) <= _SETTLED * self.scale


def pursue(
    solve: Callable[[Problem], Solution],
    problem: Problem,
    labels: Labels,
    count: float,
    rule: Callable[[Margins], float] | None,
) -> Pursuit:
    """Solve at the scale of the problem's one loss; with a rule, until it gives the scale back.

    `count` is the number of rows that the weights of the problem stand for.
    """
    trials: list[Pursuit] = []
    while True:
        solution, loss = solve(problem), problem.tasks.losses[0]
        margins, scale = _margins(problem, solution.linear, labels, count), loss.scale
        wanted = scale if rule is None else rule(margins)
        n_iter = solution.n_iter + (trials[-1].n_iter if trials else 0)
        trials.append(Pursuit(solution, margins, scale, wanted, n_iter))
        if trials[-1].settled or len(trials) == _MOST_FITS:
            return trials[-1]
        tasks = problem.tasks.with_loss(replace(loss, scale=_next_scale(trials)))
        problem = replace(problem, tasks=tasks, start=solution.linear)


def _margins(problem: Problem, linear: Linear, labels: Labels, count: float) -> Margins:
    """Return the margins at a point, where the rows are."""
    design, weights, loss = (
        problem.prepared.design,
        problem.tasks.weights[0, :],
        problem.tasks.losses[0],
    )
    if isinstance(design, BlockDesign):
        return block_margins(design, linear, labels, weights, count, loss)
    return margins_of(design.scores(*linear), labels, weights, count, loss.margin)


def _next_scale(trials: list[Pursuit]) -> float:
    """Return where to look next for the scale that the rule gives back.

    On logarithms, the line through the last two trials is followed to where it meets the diagonal
    (Wegstein's method); its slope is bounded, so that no step is far longer or shorter than that of
    plain iteration.
    """
    last, slope = trials[-1], 0.0
    if len(trials) > 1:
        slope = log(last.wanted / trials[-2].wanted) / log(last.scale / trials[-2].scale)
    step = log(last.wanted / last.scale) / (1.0 - min(max(slope, -9.0), 0.5))
    return last.scale * exp(step)
