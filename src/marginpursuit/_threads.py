"""Worker threads of a fit, and the thread count of matrix products."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import RLock, get_ident, local
from typing import Any, Self, TypeVar
from weakref import WeakSet

from threadpoolctl import ThreadpoolController

_Result = TypeVar("_Result")


class StoppedError(BaseException):
    """Ends a worker whose pool is stopped; no caller waits for its result."""


class _Stop:
    """Whether the workers of a pool are to end before their next item."""

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False

    def guard(self, items: Iterable[_Result]) -> Iterator[_Result]:
        """Yield items until the pool is stopped."""
        for item in items:
            if self.is_set:
                raise StoppedError
            yield item


class _ThisThread(local):
    """The state of a thread. Other threads than workers are never stopped."""

    stop = never = _Stop()


#: Each worker starts by storing the stop flag of its pool in `this_thread`.
_pool_of = partial(ThreadPoolExecutor, initializer=setattr)

#: Long loops that may run in a worker and call no `map` raise a `StoppedError` if `stop.is_set`.
this_thread = _ThisThread()


class Threads:
    """A pool of worker threads, started on first use and stopped at the end of a `with` block.

    Within the block BLAS runs in the calling thread: a thread of BLAS waits for its next product in
    a busy loop, on a processor that a worker needs. In two threads a fit to 11,314 rows of
    news20_minilm takes 1.7 times as long without this.

    Where an exception ends the block, as an interrupt does, each worker stops before the next item
    of a `map`, its own or one that it runs itself.

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
        self._stop = _Stop()
        self._blas: single_threaded_blas | None = None

    def __enter__(self) -> Self:
        self._blas = single_threaded_blas()
        self._blas.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            if self._pool is not None:
                self._stop.is_set = True
                self._pool.shutdown(cancel_futures=True)
                self._pool, self._stop = None, _Stop()
        finally:
            if self._blas is not None:
                self._blas.__exit__()

    def map(self, function: Callable[..., _Result], *items: Sequence[Any]) -> Iterator[_Result]:
        """Apply a function to items in parallel, as the built-in `map`, and in the same order.

        In the calling thread this is the built-in `map`, which is lazy: the caller iterates over
        the results. It is used with one thread or item, and within a worker thread, since a worker
        that waited for other workers of its pool could wait for ever.

        Otherwise each thread takes the next item when it is free; the calling thread is one of
        them. A worker that the system starts late takes fewer items.
        """
        if this_thread.stop is not this_thread.never:
            return map(function, this_thread.stop.guard(items[0]), *items[1:])
        n_items = len(items[0])
        if self.n == 1 or n_items < 2:
            return map(function, *items)
        results: list[Any] = [None] * n_items
        pending, stop = deque(enumerate(zip(*items, strict=True))), self._stop

        def run() -> None:
            try:
                for k, arguments in stop.guard(_taken(pending)):
                    results[k] = function(*arguments)
            except BaseException:
                pending.clear()  # the other threads finish the item that they have
                raise

        futures = [self._workers.submit(run) for _ in range(min(self.n, n_items) - 1)]
        this_thread.stop = stop  # a `map` within this one stays in the thread, as in a worker
        try:
            run()
        finally:
            this_thread.stop = this_thread.never
        for future in futures:
            future.result()
        return iter(results)

    def start(self, function: Callable[[], _Result]) -> Callable[[], _Result]:
        """Start a function in a worker thread; return a function that waits for its result.

        With one thread, and within a worker thread, it runs when the result is asked for.
        """
        if self.n == 1 or this_thread.stop is not this_thread.never:
            return function
        return self._workers.submit(function).result

    @property
    def _workers(self) -> ThreadPoolExecutor:
        """The pool, started on first use."""
        if self._pool is None:
            self._pool = _pool_of(self.n, initargs=(this_thread, "stop", self._stop))
        return self._pool


def _taken(pending: "deque[_Result]") -> Iterator[_Result]:
    """Yield and remove the first of the items that several threads take, until there are none."""
    while True:
        try:
            item = pending.popleft()
        except IndexError:
            return
        yield item


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


class _ProcessLimit:
    """The holders of a limit on BLAS libraries whose thread count is set for the whole process.

    The first holder saves the counts and sets them to one; the last one restores them, and empties
    `saved`. A holder that is gone without a release does not count.
    """

    def __init__(self) -> None:
        self.holders: WeakSet[single_threaded_blas] = WeakSet()
        self.saved: list[tuple[Callable[[int], None], int]] = []
        self.renew_lock()

    def renew_lock(self) -> None:
        """Replace the lock, also in a forked process: a thread that the fork ended may hold it."""
        self.lock = RLock()  # garbage collection may release a holder while another one enters


_process_limit = _ProcessLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process_limit.renew_lock)


@cache
def _blas_libraries() -> tuple[list[Any], list[tuple[Any, Callable[[int], None]]]]:
    """Return the libraries whose count is that of the calling thread, and the others.

    threadpoolctl sets the count of the calling thread for OpenMP and MKL. The others come with the
    function that sets their count from any thread: since version 3.8, `set_num_threads` ignores
    calls of all threads but the first one that set a count, and here the last thread restores what
    the first one set.
    """
    own, shared = [], []
    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        if getattr(library, "threading_layer", "") == "openmp" or library.internal_api == "mkl":
            own.append(library)
        else:
            set_count = getattr(library, "_real_set_num_threads", library.set_num_threads)
            shared.append((library, set_count))
    return own, shared


class single_threaded_blas:  # noqa: N801, as contextlib.suppress
    """A context in which BLAS runs in the calling thread.

    Starting BLAS threads costs more than a small product, and a hundred times more where other
    programs keep the processors busy. Contexts may be nested, and entered in several threads. Each
    step can be repeated: an interrupt within `__enter__` or `__exit__` leaves the release to
    `__del__`, and one within `__del__` to the next context that ends.
    """

    def __init__(self) -> None:
        self._own: list[tuple[Any, int]] = []
        self._thread = get_ident()

    def __enter__(self) -> None:
        own, shared = _blas_libraries()
        for library in own:
            self._own.append((library, library.num_threads))
            library.set_num_threads(1)
        limit = _process_limit
        with limit.lock:
            if not limit.saved:
                limit.saved = [(set_count, library.num_threads) for library, set_count in shared]
            limit.holders.add(self)
            if len(limit.holders) == 1:
                for _, set_count in shared:
                    set_count(1)

    def __exit__(self, *exc_info: object) -> None:
        limit = _process_limit
        with limit.lock:
            limit.holders.discard(self)
            if not limit.holders:
                for set_count, n_threads in limit.saved:
                    set_count(n_threads)
                limit.saved = []
        if self._thread == get_ident():
            for library, n_threads in self._own:
                library.set_num_threads(n_threads)
        self._own = []

    __del__ = __exit__
