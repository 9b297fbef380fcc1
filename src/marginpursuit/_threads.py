"""Worker threads of a fit, and the thread count of matrix products."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from operator import itemgetter
from threading import local
from typing import Any, Self, TypeVar

from threadpoolctl import ThreadpoolController

_Result = TypeVar("_Result")

_controller = cache(ThreadpoolController)
_this_thread = local()


class Threads:
    """A pool of worker threads, started on first use and stopped at the end of a `with` block.

    Parameters
    ----------
    n : int, default=1
        The number of threads; one means that the calling thread does all the work.

    Examples
    --------
    >>> from marginpursuit._threads import Threads
    >>> with Threads(2) as threads:
    ...     sum(threads.map(abs, [-1, 2, -3]))
    6
    """

    def __init__(self, n: int = 1) -> None:
        self.n = n
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def map(
        self, function: Callable[..., _Result], *items: Sequence[Any], dynamic: bool = False
    ) -> Iterator[_Result]:
        """Apply a function to items in parallel, as the built-in `map`, and in the same order.

        In the calling thread this is the built-in `map`, which is lazy: the caller iterates over
        the results. It is used with one thread or item, and within a worker thread, since a worker
        that waited for other workers of its pool could wait for ever.

        Items are dealt out to the threads in turn. With `dynamic` each goes to the next free
        thread, for items of different cost; that takes about 15 µs for each.
        """
        if self.n == 1 or len(items[0]) < 2 or getattr(_this_thread, "is_worker", False):
            return map(function, *items)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                self.n, initializer=setattr, initargs=(_this_thread, "is_worker", True)
            )
        if dynamic:
            return self._pool.map(function, *items)
        n = min(self.n, len(items[0]))
        results: list[Any] = [None] * len(items[0])
        futures = []
        for k in range(n):
            own = map(itemgetter(slice(k, None, n)), items)
            futures.append(self._pool.submit(list, map(function, *own)))
        for k, future in enumerate(futures):
            results[k::n] = future.result()
        return iter(results)


def usable_threads(n_threads: int | None) -> int:
    """Return the number of threads of a fit: as given, or the number of usable processors.

    ``OMP_NUM_THREADS`` is an upper limit, so that worker processes that are limited to one thread
    (as joblib limits its own) do not compete for processors.
    """
    if n_threads is not None:
        return n_threads
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:  # macOS and Windows
        processors = os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(processors, int(limit))) if limit.isdigit() else processors


def single_threaded_blas() -> Any:
    """Return a context in which BLAS runs in the calling thread.

    Starting BLAS threads costs more than a small product, and a hundred times more where other
    programs keep the processors busy.
    """
    return _controller().limit(limits=1, user_api="blas")
