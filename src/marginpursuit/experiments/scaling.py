r"""Bytes and communication rounds of a distributed fit, and its simulated time.

`cost` has the formulas. `simulate` simulates the rounds of a fit, with a scheduler that assigns
tasks serially, stragglers, and workers that fail. ``python -m marginpursuit.experiments.scaling``
prints the tables of ``docs/scaling.md``.
"""

import heapq
from dataclasses import dataclass, replace
from math import ceil, log2

import numpy as np

__all__ = ["Cluster", "Cost", "Fit", "cost", "simulate", "tables"]


@dataclass(frozen=True)
class Fit:
    """The size of the data and of its blocks, and the passes that the solver made."""

    n_rows: float
    n_columns: int
    item_bytes: int = 4
    block_bytes: float = 2.0**26
    n_problems: int = 1
    sweeps: int = 5  # passes for value and gradient
    trials: int = 1  # passes for scores, one per scale tried
    cell_bytes: float = 56.0  # a cell of margins: ends, count, weight, mean and two moments

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return max(1, ceil(self.n_rows * self.n_columns * self.item_bytes / self.block_bytes))

    @property
    def passes(self) -> int:
        """The passes over the data: moments, sweeps, scores."""
        return 1 + self.sweeps + self.trials

    @property
    def summaries(self) -> tuple[float, ...]:
        """The numbers of cells that summarise the margins of a task, by round of a trial.

        The first round covers all margins, with 64 cells per octave on both sides of zero. Later
        rounds refine the about eight cells on which a statistic depends, 2 % of all margins, until
        the remaining margins are few enough to be sent one by one.
        """
        rounds, left = [128.0 * max(1.0, log2(self.n_rows) - 6.0)], self.n_rows / 50.0
        while left > 2.0**15:
            rounds.append(2048.0)
            left /= 256.0
        return (*rounds, left)


@dataclass(frozen=True)
class Cost:
    """Bytes moved by a fit, and its rounds."""

    rounds: int  # one for the labels, one per pass, and those for the margin statistics
    read: float  # from the storage of the blocks
    out: float  # from the client: labels, and coefficients with every request
    back: float  # to the client: moments, gradients, summaries of margins
    among: float  # between workers, upper bound: all block results except the sum of each round


@dataclass(frozen=True)
class Cluster:
    """A cluster; the defaults are the rates of one thread of the benchmark machine."""

    n_workers: int
    read_rate: float = 3.2e9  # bytes per second and worker, loaded and swept
    product_rate: float = 55e9  # operations per second and worker, for the Gram matrix
    link_rate: float = 1e9  # bytes per second to and from the client, and between workers
    task_seconds: float = 1e-3  # scheduler time per task, serial
    round_seconds: float = 0.02  # overhead per round
    client_seconds: float = 6e-8  # client time per row, to encode the labels
    margin_seconds: float = 1.2e-7  # worker time per row, problem and trial, to sort margins
    spread: float = 0.0  # standard deviation of the logarithm of a task's time
    failures: float = 0.0  # per worker and hour
    recovery_seconds: float = 10.0  # until a failed worker is noticed


def cost(fit: Fit, request_bytes: float = 4096.0) -> Cost:
    """Return the bytes and rounds of a fit on a cluster.

    Parameters
    ----------
    fit : Fit
        The fit.
    request_bytes : float, default=4096.0
        Size of a task without coefficients: the loader of its block and the request.

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
    summaries = fit.trials * problems * fit.cell_bytes * sum(fit.summaries)
    return Cost(
        rounds=1 + fit.passes + fit.trials * (len(fit.summaries) - 1),
        read=fit.passes * n * d * fit.item_bytes,
        out=n + blocks * (fit.passes * request_bytes + (fit.sweeps + fit.trials) * coefficients),
        back=moments + fit.sweeps * gradient + summaries,
        among=(blocks - 1) * (moments + fit.sweeps * gradient + summaries),
    )


def simulate(fit: Fit, cluster: Cluster, seed: int = 0) -> float:
    """Simulate a fit, round by round.

    Parameters
    ----------
    fit : Fit
        The fit.
    cluster : Cluster
        The cluster.
    seed : int, default=0
        Seed of the task times and failures.

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
    first, *others = (fit.cell_bytes * fit.n_problems * cells for cells in fit.summaries)
    rounds = [(read + product, moments)] + [(read, gradient)] * fit.sweeps
    rounds += [(read + margins, first), *((0.0, finer) for finer in others)] * fit.trials
    depth = ceil(np.log(max(fit.n_blocks, 2)) / np.log(8))  # of the reduction tree, upper bound
    total = fit.n_rows * (1.0 / cluster.link_rate + cluster.client_seconds)  # the labels
    for work, result in rounds:
        total += _round(fit.n_blocks, work, cluster, rng) + cluster.round_seconds
        total += 8 * depth * result / cluster.link_rate
    return total


def _round(n_tasks: int, work: float, cluster: Cluster, rng: np.random.Generator) -> float:
    """Return the time of a round; each task runs on the first idle worker.

    Workers fail at random; the task of a failed worker is repeated.
    """
    times = work * np.exp(cluster.spread * rng.standard_normal(n_tasks))
    failed = rng.random(n_tasks) < -np.expm1(-cluster.failures / 3600.0 * times)
    # A failed task ran for part of its time; it restarts when the failure is noticed.
    times = times + failed * (cluster.recovery_seconds + rng.random(n_tasks) * times)
    idle_from = [0.0] * min(cluster.n_workers, n_tasks)
    for k, seconds in enumerate(times.tolist()):
        assigned = (k + 1) * cluster.task_seconds  # the scheduler assigns tasks serially
        heapq.heapreplace(idle_from, max(idle_from[0], assigned) + seconds)
    return max(idle_from)


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
    """Return a fit to 100 float32 columns, in blocks of 64 MiB, or of 4 GiB from 1e11 rows on."""
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
