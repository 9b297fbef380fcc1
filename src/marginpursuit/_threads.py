"""Worker threads of a fit, and the thread count of matrix products."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from operator import itemgetter
from threading import RLock, get_ident, local
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


class _BlasLimit:
    """The one owner of the thread counts of BLAS libraries that are set for the whole process.

    The first holder saves the counts and sets them to one; the last one restores them. Each step
    can be repeated, so that a holder that is interrupted within it can release again.
    """

    def __init__(self) -> None:
        self._lock = RLock()  # garbage collection may release a holder within `acquire`
        self._holders: set[int] = set()
        self._saved: list[tuple[Any, int]] = []

    def acquire(self, holder: int, libraries: list[Any]) -> None:
        """Limit the libraries until `holder` and all others have released them."""
        with self._lock:
            if not self._holders:
                self._saved = [(library, library.num_threads) for library in libraries]
            self._holders.add(holder)
            if len(self._holders) == 1:
                for library in libraries:
                    _set_for_process(library, 1)

    def release(self, holder: int) -> None:
        """Restore the thread counts if no other holder is left."""
        with self._lock:
            if self._holders == {holder}:
                for library, n_threads in self._saved:
                    _set_for_process(library, n_threads)
            self._holders.discard(holder)

    def forked(self) -> None:
        """Replace the lock in a forked process: a thread that the fork has ended may hold it."""
        self._lock = RLock()


def _set_for_process(library: Any, n_threads: int) -> None:
    """Set the thread count of a library from any thread.

    Since version 3.8, threadpoolctl ignores calls of all threads but the first one that set a
    count. Here the last thread restores what the first one set.
    """
    getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


def _is_set_per_thread(library: Any) -> bool:
    """Whether threadpoolctl sets the count of the calling thread only: OpenMP and MKL."""
    return getattr(library, "threading_layer", "") == "openmp" or library.internal_api == "mkl"


_blas_limit = _BlasLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_blas_limit.forked)


class _SingleThreadedBlas:
    """A context in which BLAS runs in the calling thread.

    An interrupt within `__enter__` or `__exit__` leaves the release to `__del__`.
    """

    def __init__(self) -> None:
        self._own: list[tuple[Any, int]] = []
        self._thread = get_ident()

    def __enter__(self) -> None:
        blas = [each for each in _controller().lib_controllers if each.user_api == "blas"]
        own = [each for each in blas if _is_set_per_thread(each)]
        self._own = [(library, library.num_threads) for library in own]
        for library in own:
            library.set_num_threads(1)
        _blas_limit.acquire(id(self), [each for each in blas if each not in own])

    def __exit__(self, *exc_info: object) -> None:
        _blas_limit.release(id(self))
        if self._thread == get_ident():
            for library, n_threads in self._own:
                library.set_num_threads(n_threads)
        self._own = []

    __del__ = __exit__


def single_threaded_blas() -> _SingleThreadedBlas:
    """Return a context in which BLAS runs in the calling thread.

    Starting BLAS threads costs more than a small product, and a hundred times more where other
    programs keep the processors busy. Contexts may be nested, and entered in several threads.
    """
    return _SingleThreadedBlas()
