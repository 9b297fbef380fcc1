r"""Averaged stochastic gradient descent and SVRG for the margin distribution machines.

They need no matrix of the size of rows or columns, and so serve where both are many. With a row i
drawn with probability p_i, an unbiased gradient of F is

    w + c (m_i z_i - (z̄·w) z̄) - g z̄ - (a_i(m_i) / p_i) z_i ,

as the mean z̄ of the signed rows is known from one read; drawing a second row for it, as the first
article does, only adds noise. Means over small batches of rows are used.

- "sgd" takes steps η₀ / (1 + η₀ t)^¾ and returns an average of the iterates.
- "svrg" corrects each gradient by the one of the same batch at the start of the epoch, where the
  full gradient is known; steps are those of Barzilai and Borwein, divided by the steps of an epoch,
  and halved where the objective has not fallen.

F is strongly convex with modulus one, so F(w) is at most ½‖∇F(w)‖² above the minimum, for any
subgradient. That is the gap that is reported. It tends to zero for smooth losses; for the hinge it
only bounds what is left, and need not.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.solvers._machine import AugmentedRows, Machine, MachineFit
from marginpursuit.solvers._problem import Progress, Status

__all__ = ["solve_sgd", "solve_svrg"]

_BATCH = 32

# Rows on which first steps are tried, and the factor from one to the next.
_TRIAL_ROWS, _TRIAL_FACTOR = 2048, 4.0


def solve_sgd(machine: Machine, rows: AugmentedRows, rng: Any) -> MachineFit:
    """Descend by the gradients of small batches, and average.

    Parameters
    ----------
    machine : Machine
        What to minimise; `max_iter` counts epochs, each of as many rows as there are.
    rows : AugmentedRows
        The rows.
    rng : Generator or RandomState
        Draws the rows.

    Returns
    -------
    MachineFit
        With w, the coefficient of the constant last, and no dual point.
    """
    batches = _Batches(machine, rows, rng)
    first, n_steps = batches.first_step(), batches.n_steps
    coef, average = np.zeros(rows.n_columns), np.zeros(rows.n_columns)
    for epoch in range(machine.max_iter):
        times = np.arange(epoch * n_steps, (epoch + 1) * n_steps, dtype=np.float64)
        coef, mean = batches.descend(coef, first / (1.0 + first * times) ** 0.75)
        # Later epochs count more, in proportion to their number.
        average = mean if epoch == 0 else average + (mean - average) * 2.0 / (epoch + 2.0)
        fit, _ = batches.standing(average, epoch + 1)
        if fit.status is Status.CONVERGED:
            break
    return fit


def solve_svrg(machine: Machine, rows: AugmentedRows, rng: Any) -> MachineFit:
    """Descend by the corrected gradients of small batches.

    Parameters and result are those of `solve_sgd`.
    """
    batches = _Batches(machine, rows, rng)
    step, coef = batches.first_step(), np.zeros(rows.n_columns)
    best, gradient = batches.standing(coef, 0)
    for epoch in range(machine.max_iter):
        last, last_gradient = coef, gradient
        steps = np.full(batches.n_steps, step)
        coef, _ = batches.descend(coef, steps, gradient)
        fit, gradient = batches.standing(coef, epoch + 1)
        if not fit.value < best.value:  # too long a step, or the kink of the hinge
            coef, gradient, step = last, last_gradient, 0.5 * step
            continue
        best = fit
        if fit.status is Status.CONVERGED:
            break
        moved, bend = coef - last, gradient - last_gradient
        ratio = float(moved @ moved) / (float(moved @ bend) * batches.n_steps)
        step = float(np.clip(ratio, step, 4.0 * step)) if ratio > 0 else step
    return replace(best, n_iter=epoch + 1)


class _Batches:
    """Draws batches of rows and descends by their gradients."""

    def __init__(self, machine: Machine, rows: AugmentedRows, rng: Any) -> None:
        self._machine, self._rows, self._rng = machine, rows, rng
        self.mean = rows.pull(machine.weights * machine.sign)
        self.n_steps = max(1, rows.n_rows // _BATCH)

    def standing(self, coef: FloatArray, epoch: int) -> tuple[MachineFit, FloatArray]:
        """Return the fit as it stands, and the full gradient."""
        machine = self._machine
        margins = machine.sign * self._rows.scores(coef)
        factors = machine.variance * machine.weights * margins - machine.terms.minimiser(margins)
        gradient = self._shared(coef) + self._rows.pull(machine.sign * factors)
        mean = float(machine.weights @ margins)
        value = 0.5 * float(coef @ coef) - machine.mean * mean
        value += 0.5 * machine.variance * float(machine.weights @ (margins - mean) ** 2)
        value += float(machine.terms.loss(margins).sum())
        # The minimum of the square part is not known; without it the gap counts as larger.
        gap = machine.measure(0.5 * float(gradient @ gradient), value)
        machine.report(Progress(epoch, self._rows.passes, value, gap))
        status = Status.CONVERGED if gap <= machine.tol else Status.MAX_ITER
        return MachineFit(coef, value, gap, status, epoch), gradient

    def first_step(self) -> float:
        """Return the first step with which a short descent gets lowest."""
        size = min(self._rows.n_rows, _TRIAL_ROWS)
        chosen = self._draw(size)
        n_steps = max(1, size // _BATCH)
        squares = self._rows.quadratic(None)

        def reached(step: float) -> float:
            coef = np.zeros(self._rows.n_columns)
            for batch in np.array_split(chosen, n_steps):
                coef = coef - step * (self._shared(coef) + self._part(batch, coef))
            margins = self._machine.sign[chosen] * self._rows.take(chosen).scores(coef)
            terms = self._machine.terms.take(chosen)
            losses = terms.loss(margins) / self._machine.weights[chosen]
            square = 0.5 * float(coef @ coef) + 0.5 * self._machine.variance * margins.var()
            value = square - self._machine.mean * margins.mean() + losses.mean()
            return float(value) if np.isfinite(value) else np.inf

        step = 1.0 / (1.0 + self._machine.variance * float(self._machine.weights @ squares))
        value = reached(step)
        for factor in (1.0 / _TRIAL_FACTOR, _TRIAL_FACTOR):
            while (other := reached(step * factor)) < value or not np.isfinite(value):
                step, value = step * factor, other
        return step

    def descend(
        self, coef: FloatArray, steps: FloatArray, gradient: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Take steps of these sizes; return where they end and the mean of where they led.

        With the full `gradient` at the start, the gradients on the way are corrected by it.
        """
        start, total = coef, np.zeros_like(coef)
        for step, batch in zip(steps, self._draw((len(steps), _BATCH)), strict=True):
            slope = self._shared(coef) + self._part(batch, coef)
            if gradient is not None:
                slope += gradient - self._shared(start) - self._part(batch, start)
            coef = coef - step * slope
            total += coef
        return coef, total / len(steps)

    def _draw(self, size: Any) -> NDArray[np.intp]:
        """Draw rows by their weights, with replacement."""
        drawn = self._rng.choice(self._rows.n_rows, size=size, p=self._machine.weights)
        return np.asarray(drawn)

    def _shared(self, coef: FloatArray) -> FloatArray:
        """Return the part of the gradient that no row has to be read for."""
        pull = self._machine.variance * float(self.mean @ coef) + self._machine.mean
        return coef - pull * self.mean

    def _part(self, batch: NDArray[np.intp], coef: FloatArray) -> FloatArray:
        """Return the mean over some rows of the rest of the gradient."""
        machine = self._machine
        chosen, sign = self._rows.take(batch), machine.sign[batch]
        margins = sign * chosen.scores(coef)
        dual = machine.terms.take(batch).minimiser(margins)
        factors = machine.variance * margins - dual / machine.weights[batch]
        return chosen.pull(sign * factors) / len(batch)
