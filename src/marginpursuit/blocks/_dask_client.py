"""Tasks on a Dask cluster: submission, tree reduction, and waiting with time limits."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta


@dataclass(frozen=True, slots=True)
class DaskPolicy:
    """Sizes and time limits of the work on a cluster.

    The time limits are defaults of ``marginpursuit.no-worker-timeout`` and
    ``marginpursuit.no-progress-timeout`` in Dask's configuration. The other numbers are design
    choices: no benchmark depends on their exact value.
    """

    #: Results that one task of the tree reduction adds, at least and at most.
    min_summands: int = 8
    max_summands: int = 64
    #: Bytes of d × d float64 results that one task of the reduction receives beyond `min_summands`.
    summand_bytes: int = 1 << 26
    #: Vectors that stay on the workers, the latest first: class codes and weights of the rows.
    max_vectors: int = 4
    #: Serialised bytes of the graph of one block. A larger graph contains the rows themselves,
    #: which are then sent once and persisted.
    max_graph_bytes: int = 1 << 16
    #: Seconds between two requests for the state of the cluster.
    poll_seconds: float = 1.0
    #: Time without any worker, and time with workers in which no task ends, before an error.
    no_worker_timeout: str = "60 s"
    no_progress_timeout: str = "1 hour"


class TaskClient:
    """Submits tasks to a cluster and waits for their results.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    functions : sequence of callables
        All functions that are submitted. Progress is measured by the tasks of these names, which
        begin with a letter: Dask strips a leading underscore from the name of a task prefix.
    policy : DaskPolicy
        Sizes and time limits.
    """

    def __init__(
        self,
        client: distributed.Client,
        functions: Sequence[Callable[..., Any]],
        policy: DaskPolicy,
    ) -> None:
        self._client, self.policy = client, policy
        self._prefixes = tuple(function.__name__ for function in functions)

    def submit(self, function: Callable[..., Any], *args: Any) -> distributed.Future:
        """Submit one task."""
        return self._client.submit(function, *args, pure=False)

    def map(self, function: Callable[..., Any], *args: list[Any]) -> list[distributed.Future]:
        """Submit one task for each tuple of arguments."""
        return self._client.map(function, *args, pure=False)  # type: ignore[no-any-return]

    def reduce(
        self,
        function: Callable[[list[Any]], Any],
        futures: list[distributed.Future],
        n_columns: int,
    ) -> Any:
        """Return the tree reduction of futures by a function of a list of results.

        The tree depends on the number of futures and columns alone. The list `futures` is emptied
        on the way, so that the cluster releases results as soon as they are combined.
        """
        policy = self.policy
        step = policy.summand_bytes // (8 * max(1, n_columns) ** 2)
        step = min(max(step, policy.min_summands), policy.max_summands)
        while len(futures) > 1:
            starts = range(0, len(futures), step)
            futures[:] = [self.submit(function, futures[k : k + step]) for k in starts]
        return self.result(futures.pop())

    def result(self, future: distributed.Future) -> Any:
        """Wait for a result.

        Raises
        ------
        ConnectionError
            If the scheduler is lost, or the cluster has no worker for too long.
        TimeoutError
            If no task ends for too long although there are workers.
        """
        stall = StallDetector(self.policy)
        while True:
            try:
                with suppress(TimeoutError):
                    return future.result(timeout=self.policy.poll_seconds)
                n_workers, task_states = self._state()
            except (distributed.CancelledError, OSError) as error:
                raise ConnectionError(
                    f"the Dask scheduler was lost: {error}. Connect a client to a running "
                    "scheduler and fit again."
                ) from error
            stall.check(n_workers, task_states, time.monotonic())

    def _state(self) -> tuple[int, list[Any]]:
        """Return the number of workers, and the number of tasks in each state by prefix."""
        states = self._client.sync(self._client.scheduler.get_task_prefix_states)
        return len(self._client.nthreads()), [states.get(prefix) for prefix in self._prefixes]


class StallDetector:
    """Raises an error if a cluster has no worker, or ends no task, for too long."""

    def __init__(self, policy: DaskPolicy) -> None:
        self._no_worker, self._no_progress = (
            parse_timedelta(dask.config.get(f"marginpursuit.{name}", default))
            for name, default in (
                ("no-worker-timeout", policy.no_worker_timeout),
                ("no-progress-timeout", policy.no_progress_timeout),
            )
        )
        self._last_worker = self._last_progress = time.monotonic()
        self._task_states: list[Any] | None = None

    def check(self, n_workers: int, task_states: list[Any], now: float) -> None:
        """Compare the state of the cluster with the previous one; raise if it stalls."""
        if n_workers:
            self._last_worker = now
        if task_states != self._task_states:
            self._last_progress, self._task_states = now, task_states
        if now - self._last_worker > self._no_worker:
            raise ConnectionError(
                f"the Dask cluster has had no worker for {self._no_worker:g} s. Start workers, or "
                "increase marginpursuit.no-worker-timeout in Dask's configuration."
            )
        if n_workers and now - self._last_progress > self._no_progress:
            raise TimeoutError(
                f"no task of the fit has ended for {self._no_progress:g} s on a Dask cluster with "
                f"{n_workers} workers. Look for a block that never finishes loading, or increase "
                "marginpursuit.no-progress-timeout in Dask's configuration."
            )
