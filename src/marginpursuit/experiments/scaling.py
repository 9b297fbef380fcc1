r"""What a fit costs in bytes and rounds, and how long it takes on many workers.

`cost` has the formulas, `simulate` plays the rounds of a fit: tasks that a scheduler hands out one
after another, workers of which some are slow and some are lost. ``python -m
marginpursuit.experiments.scaling`` prints the tables of ``docs/scaling.md``.
"""

import heapq
from dataclasses import dataclass, replace
from math import ceil, log2

import numpy as np

__all__ = ["Cluster", "Cost", "Fit", "cost", "simulate", "tables"]

# Bytes of a cell of margins: its ends, number, weight, mean and two moments.
_CELL_BYTES = 56.0


@dataclass(frozen=True)
class Fit:
    """A fit: the data, how they are cut, and what the solver took."""

    n_rows: float
    n_columns: int
    item_bytes: int = 4
    block_bytes: float = 2.0**26
    n_problems: int = 1
    sweeps: int = 5  # reads for value and gradient
    trials: int = 1  # reads for scores, one for each scale that was tried

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return max(1, ceil(self.n_rows * self.n_columns * self.item_bytes / self.block_bytes))

    @property
    def passes(self) -> int:
        """The reads of the data: moments, sweeps, scores."""
        return 1 + self.sweeps + self.trials

    @property
    def summaries(self) -> tuple[float, ...]:
        """The numbers of cells that describe the margins of a problem, in rounds of a trial.

        The first are those of all margins, in octaves of 64 to both sides of zero; then finer ones
        of those eight cells or so on which a statistic depends, a fiftieth of all margins, until
        these are few enough to be sent one by one.
        """
        rounds, left = [128.0 * max(1.0, log2(self.n_rows) - 6.0)], self.n_rows / 50.0
        while left > 2.0**15:
            rounds.append(2048.0)
            left /= 256.0
        return (*rounds, left)


@dataclass(frozen=True)
class Cost:
    """What a fit moves, in bytes, and its rounds."""

    rounds: int  # the labels, one for each read, and those for the statistics of margins
    read: float  # from where the blocks are
    out: float  # from the client: labels, and coefficients with every question
    back: float  # to the client: moments, gradients, summaries of margins
    among: float  # between workers at most: all results of blocks but the last sum of each round


@dataclass(frozen=True)
class Cluster:
    """A cluster; the numbers are what one thread of the machine of the benchmarks does."""

    n_workers: int
    read_rate: float = 3.2e9  # bytes a second and worker, loaded and swept
    product_rate: float = 55e9  # operations a second and worker, for the Gram matrix
    link_rate: float = 1e9  # bytes a second to and from the client, and from worker to worker
    task_seconds: float = 1e-3  # of the scheduler for a task, one after another
    round_seconds: float = 0.02  # beside its tasks
    client_seconds: float = 6e-8  # a row, for the labels
    margin_seconds: float = 1.2e-7  # of a worker, a row, problem and trial, to sort margins
    spread: float = 0.0  # the standard deviation of the logarithm of a task's time
    failures: float = 0.0  # a worker and hour
    recovery_seconds: float = 10.0  # until a lost worker is noticed


def cost(fit: Fit, question_bytes: float = 4096.0) -> Cost:
    """Return the bytes and rounds of a fit on a cluster.

    Parameters
    ----------
    fit : Fit
        The fit.
    question_bytes : float, default=4096.0
        What a task takes beside coefficients: the recipe of its block and what it is asked.

    Returns
    -------
    Cost
        Bytes and rounds.

    Examples
    --------
    >>> from marginpursuit.experiments.scaling import Fit, cost
    >>> cost(Fit(1e9, 100)).rounds
    11
    >>> f"{cost(Fit(1e9, 100)).read / 1e12:.1f} TB"
    '2.8 TB'
    """
    n, d, problems, blocks = fit.n_rows, fit.n_columns, fit.n_problems, fit.n_blocks
    coefficients, gradient = 8.0 * problems * (d + 1), 8.0 * problems * (d + 2)
    moments = 8.0 * (d * d + d + 1)
    summaries = fit.trials * problems * _CELL_BYTES * sum(fit.summaries)
    return Cost(
        rounds=1 + fit.passes + fit.trials * (len(fit.summaries) - 1),
        read=fit.passes * n * d * fit.item_bytes,
        out=n + blocks * (fit.passes * question_bytes + (fit.sweeps + fit.trials) * coefficients),
        back=moments + fit.sweeps * gradient + summaries,
        among=(blocks - 1) * (moments + fit.sweeps * gradient + summaries),
    )


def simulate(fit: Fit, cluster: Cluster, seed: int = 0) -> float:
    """Play a fit, round by round.

    Parameters
    ----------
    fit : Fit
        The fit.
    cluster : Cluster
        What it runs on.
    seed : int, default=0
        Draws the slow tasks and the lost workers.

    Returns
    -------
    float
        Seconds.
    """
    rng = np.random.default_rng(seed)
    rows = fit.n_rows / fit.n_blocks
    read = rows * fit.n_columns * fit.item_bytes / cluster.read_rate
    product = 2.0 * rows * fit.n_columns**2 / cluster.product_rate
    moments, gradient = 8.0 * fit.n_columns**2, 8.0 * fit.n_problems * fit.n_columns
    margins = rows * fit.n_problems * cluster.margin_seconds
    first, *others = (_CELL_BYTES * fit.n_problems * cells for cells in fit.summaries)
    rounds = [(read + product, moments)] + [(read, gradient)] * fit.sweeps
    rounds += [(read + margins, first), *((0.0, finer) for finer in others)] * fit.trials
    depth = ceil(np.log(max(fit.n_blocks, 2)) / np.log(8))  # of the tree that adds up, at most
    total = fit.n_rows * (1.0 / cluster.link_rate + cluster.client_seconds)  # the labels
    for work, result in rounds:
        total += _round(fit.n_blocks, work, cluster, rng) + cluster.round_seconds
        total += 8 * depth * result / cluster.link_rate
    return total


def _round(n_tasks: int, work: float, cluster: Cluster, rng: np.random.Generator) -> float:
    """Return when the last of a round's tasks is done, each given to the first worker free.

    Workers that are lost in a round are so by chance; the task they had is done again.
    """
    times = work * np.exp(cluster.spread * rng.standard_normal(n_tasks))
    lost = rng.random(n_tasks) < -np.expm1(-cluster.failures / 3600.0 * times)
    # A lost task has run for some of its time, is noticed, and begins anew.
    times = times + lost * (cluster.recovery_seconds + rng.random(n_tasks) * times)
    free = [0.0] * min(cluster.n_workers, n_tasks)
    for k, seconds in enumerate(times.tolist()):
        given = (k + 1) * cluster.task_seconds  # the scheduler hands out one at a time
        heapq.heapreplace(free, max(free[0], given) + seconds)
    return max(free)


def tables() -> str:
    """Return the tables of ``docs/scaling.md``."""
    lines = ["| rows | bytes read | sent by the client | sent to it | among workers | rounds |"]
    lines.append("|---|---|---|---|---|---|")
    for power in (6, 9, 12):
        fit = _fit(10.0**power)
        c = cost(fit)
        moved = " | ".join(_bytes(x) for x in (c.read, c.out, c.back, c.among))
        lines.append(f"| 10^{power} | {moved} | {c.rounds} |")
    lines += ["", "| rows | workers | ideal | with stragglers and failures |", "|---|---|---|---|"]
    for power in (9, 12):
        for n_workers in (1, 100, 10_000):
            ideal = Cluster(n_workers)
            real = replace(ideal, spread=0.5, failures=0.01)
            fit = _fit(10.0**power)
            times = [_duration(simulate(fit, cluster)) for cluster in (ideal, real)]
            lines.append(f"| 10^{power} | {n_workers:,} | {times[0]} | {times[1]} |")
    return "\n".join(lines)


def _fit(n_rows: float) -> Fit:
    """Return a fit to 100 columns of float32, in blocks of 64 MiB, or 4 GiB where they are many."""
    return Fit(n_rows, 100, block_bytes=2.0**26 if n_rows < 1e11 else 2.0**32)


def _bytes(number: float) -> str:
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    power = min(len(units) - 1, int(np.log10(number) / 3))
    return f"{number / 1000.0**power:.3g} {units[power]}"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


if __name__ == "__main__":
    print(tables())
