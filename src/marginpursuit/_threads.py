"""How many threads there are, and who may start them."""

import os
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_controller = cache(ThreadpoolController)


def usable_threads(n_threads: int | None) -> int:
    """Count the threads that a fit uses: as asked, or one for each processor at hand.

    ``OMP_NUM_THREADS`` is honoured, so that worker processes which are told to use one thread
    (joblib tells its workers so) do not crowd each other out.
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
    """Return a context in which a matrix product starts no threads of its own.

    Small products take longer to share out than to compute, and a hundred times longer where other
    programs keep the processors busy.
    """
    return _controller().limit(limits=1, user_api="blas")
