"""Run many fits in several processes; go on after a kill where it stopped."""

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
from marginpursuit.experiments._fits import Fit, prepare, run_fit
from marginpursuit.experiments._store import Store, code_version, key_of

__all__ = ["run_fits"]


def run_fits(
    fits: Iterable[Fit], store: Store, *, processes: int | None = None, reached: Reached | None
) -> dict[Fit, dict[str, Any]]:
    """Run the fits that are not in the store yet.

    Every fit is in the store as soon as it is finished. An interrupt (Ctrl-C) ends the run after
    the fits under way; a later call takes up what is left. A fit that fails leaves a row with the
    error, and is not tried again.

    Parameters
    ----------
    fits : iterable of Fit
        What to run.
    store : Store
        Where finished fits are kept.
    processes : int, optional
        How many processes; by default one for each processor. One means this one.
    reached : callable or None
        Told the number of finished fits, those of earlier runs included, and of all.

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
    tell: Reached = reached or (lambda done, total: None)
    tell(done, len(keys))
    n_processes = min(usable_threads(processes), len(batches))
    if n_processes <= 1:
        for batch in batches:
            done += _run_batch(batch, store, None)
            tell(done, len(keys))
    else:
        for finished in _in_processes(batches, store, n_processes):
            done += finished
            tell(done, len(keys))
    rows = store.rows()
    return {fit: rows[key] for fit, key in keys.items()}


def _in_processes(batches: Sequence[list[Fit]], store: Store, n_processes: int) -> Iterable[int]:
    """Yield the number of fits of each batch as it is finished."""
    # A fresh interpreter for each process: a fork would inherit the locks of other threads.
    context = get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(
        n_processes, mp_context=context, initializer=_begin, initargs=(stop,)
    ) as pool:
        try:
            futures: list[Future[int]] = [pool.submit(_run_batch_here, b, store) for b in batches]
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_stop: Any = None


def _begin(stop: Any) -> None:
    """Make a process ready: one thread, deaf to Ctrl-C, and not to outlive its parent."""
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _run_batch_here(batch: Sequence[Fit], store: Store) -> int:
    return _run_batch(batch, store, _stop)


def _run_batch(batch: Sequence[Fit], store: Store, stop: Any) -> int:
    """Run fits on the same sample; return how many."""
    sample = prepare(*batch[0].sample)
    for fit in batch:
        if stop is not None and stop.is_set():
            break
        row = {"key": key_of(fit), "fit": asdict(fit), "code": code_version()}
        try:
            row["result"] = run_fit(fit, sample)
        except Exception as error:  # kept, so that the others go on
            row["error"] = f"{type(error).__name__}: {error}"
        store.append(row)
    return len(batch)
