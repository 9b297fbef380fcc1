"""Fits on a local Dask cluster: against memory, two workers against one, and against dask-ml.

MARGINPURSUIT_CLUSTER_GB sets the size in GB. The machine should be idle: two workers need two free
processors to be faster than one.
"""

import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from common import table

from marginpursuit.experiments.large_data import (
    LargeFile,
    compare_places,
    dask_rows,
    has_dask,
    large_file,
    synthetic,
)

GIGABYTES = float(os.environ.get("MARGINPURSUIT_CLUSTER_GB", "2.2"))


def run() -> Iterator[str]:
    """Compare fits in memory, in blocks and on a cluster, then dask-ml on the same cluster."""
    with large_file(GIGABYTES) as file:
        found = compare_places(file)
        named = {"relative to one thread": "ours / one thread"}  # the name that `compare` finds
        header = [named.get(name, name) for name in found.header]
        yield replace(found, header=header).markdown(level=2)
        if has_dask():
            yield _peer(file)


def _peer(file: LargeFile) -> str:
    """Fit dask-ml's logistic regression, if it is installed and works."""
    title = "dask-ml: LogisticRegression, lbfgs, at most 100 iterations; two workers, blocks held"
    try:
        import dask.array as da
        import distributed
        from dask_ml.linear_model import LogisticRegression

        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            ) as cluster,
            distributed.Client(cluster) as client,
            warnings.catch_warnings(action="ignore"),
        ):
            lazy = dask_rows(file, len(file.y) // file.block_rows)
            X = client.persist(lazy.map_blocks(np.array))
            distributed.wait(X)
            labels = da.from_array(file.y[: len(X)].astype(int), chunks=X.chunks[0])
            start = time.perf_counter()
            model = LogisticRegression(solver="lbfgs", max_iter=100).fit(X, labels)
            seconds = time.perf_counter() - start
        return table(title, ("fit, s", "test error"), [(f"{seconds:.2f}", _error(model))])
    except Exception as error:  # an optional peer must not end the run
        return table(title, ("not run",), [(f"{error!r}"[:300],)])


def _error(model: Any) -> str:
    rows, labels = synthetic(1 << 30, 1 << 16)
    return f"{100 * np.mean(np.asarray(model.predict(rows)) != labels):.2f} %"
