"""Run many fits in several processes; an interrupted run resumes from the store."""

import os
import signal
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from itertools import groupby
from multiprocessing import get_context, parent_process
from typing import Any

from threadpoolctl import threadpool_limits

from marginpursuit._progress_bar import Reached
from marginpursuit._threads import usable_threads
from marginpursuit.experiments._fits import Fit, draw_sample, run_fit
from marginpursuit.experiments._store import Store, code_version, key_of

__all__ = ["run_fits"]


def run_fits(
    fits: Iterable[Fit], store: Store, *, processes: int | None = None, progress: Reached | None
) -> dict[Fit, dict[str, Any]]:
    """Run the fits that are not in the store.

    Every fit is stored as soon as it is finished. An interrupt (Ctrl-C) ends the run after the
    current fits; a later call runs the rest. A failed fit is stored with its error and is not
    repeated.

    Parameters
    ----------
    fits : iterable of Fit
        The fits.
    store : Store
        The store of finished fits.
    processes : int, optional
        Number of processes; by default one per processor. With 1, fits run in this process.
    progress : callable or None
        Called with the number of finished fits, including those of earlier runs, and the total.

    Returns
    -------
    dict
        The row of each fit.
    """
    keys = {fit: key_of(fit) for fit in fits}
    rows = store.rows()
    missing = sorted(
        (fit for fit, key in keys.items() if key not in rows), key=lambda fit: fit.sample
    )
    batches = [list(batch) for _, batch in groupby(missing, key=lambda fit: fit.sample)]
    done = len(keys) - len(missing)
    tell: Reached = progress or (lambda done, total: None)
    tell(done, len(keys))
    n_processes = min(usable_threads(processes), len(batches))
    if n_processes <= 1:
        for batch in batches:
            done += _run_batch(batch, store, None)
            tell(done, len(keys))
    else:
        for finished in _run_in_processes(batches, store, n_processes):
            done += finished
            tell(done, len(keys))
    rows = store.rows()
    return {fit: rows[key] for fit, key in keys.items()}


def _run_in_processes(
    batches: Sequence[list[Fit]], store: Store, n_processes: int
) -> Iterable[int]:
    """Yield the number of fits of each batch when it is finished."""
    # "spawn": a forked process would inherit the locks of other threads.
    context = get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(
        n_processes, mp_context=context, initializer=_initialise_worker, initargs=(stop,)
    ) as pool:
        try:
            futures: list[Future[int]] = [
                pool.submit(_run_batch_in_worker, batch, store) for batch in batches
            ]
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_stop: Any = None  # the event of this worker process, set by _initialise_worker


def _initialise_worker(stop: Any) -> None:
    """Limit the process to one thread, ignore Ctrl-C, and exit when the parent exits."""
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _run_batch_in_worker(batch: Sequence[Fit], store: Store) -> int:
    return _run_batch(batch, store, _stop)


def _run_batch(batch: Sequence[Fit], store: Store, stop: Any) -> int:
    """Run fits on the same sample until `stop` is set; return the size of the batch."""
    sample = draw_sample(*batch[0].sample)
    for fit in batch:
        if stop is not None and stop.is_set():
            break
        row = {"key": key_of(fit), "fit": asdict(fit), "code": code_version()}
        try:
            row["result"] = run_fit(fit, sample)
        except Exception as error:  # stored, so that the other fits run
            row["error"] = f"{type(error).__name__}: {error}"
        store.append(row)
    return len(batch)
