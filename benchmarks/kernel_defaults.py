"""The defaults with a kernel: penalty, grid of gamma and scale, on development sets.

    python benchmarks/kernel_defaults.py --processes 4

Fits of `MarginPursuitClassifier(kernel="rbf")` with 400 landmarks over gamma, penalty and scale.
The sets are others than those of `kernels.py`. The *regret* of a choice is its test error less the
lowest of all choices, in points; means are over the sets.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from common import table, write_results
from scipy import sparse
from sklearn.datasets import (
    load_breast_cancer,
    load_iris,
    load_wine,
    make_circles,
    make_classification,
    make_moons,
)
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from marginpursuit import MarginPursuitClassifier
from marginpursuit.datasets import DatasetError, contaminate, load
from marginpursuit.selection.kernel_search import default_gammas
from marginpursuit.selection.policy import SelectionPolicy

FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # of gamma, times 2/m
PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # times n
SCALES = (0.1, 0.3, 1.0, 3.0)
REAL = {"cov2": ("cov", 2), "cov7": ("cov", None), "protein": ("protein", 1), "a9a": ("a9a", 1)}
SETS = ("moons", "circles", "clusters", "breast", "wine", "iris", *REAL)
MAX_ROWS, MAX_TEST_ROWS, MAX_READ_ROWS, N_COMPONENTS = 1500, 3000, 6000, 400


class Job(NamedTuple):
    """All fits of a split, over gamma and penalty, or over scale and penalty at one gamma."""

    name: str
    seed: int
    flips: float = 0.0  # fraction of mislabelled training rows
    factor: float | None = None  # of gamma, for the fits over the scale


def rows_of(name: str) -> tuple[Any, Any] | None:
    """Return X and y of a development set, or None if it is missing."""
    generated = {
        "moons": lambda: make_moons(3500, noise=0.3, random_state=3),
        "circles": lambda: make_circles(3500, noise=0.15, factor=0.6, random_state=3),
        "clusters": lambda: make_classification(
            3500, 20, n_informative=8, n_clusters_per_class=4, flip_y=0.05, random_state=3
        ),
        "breast": lambda: load_breast_cancer(return_X_y=True),
        "wine": lambda: load_wine(return_X_y=True),
        "iris": lambda: load_iris(return_X_y=True),
    }
    if name in generated:
        return generated[name]()
    source, positive = REAL[name]
    try:
        data = load(source, original_labels=True, fetch=False)
    except DatasetError:
        return None
    some = np.random.default_rng(5).permutation(data.X.shape[0])[:MAX_READ_ROWS]
    X, y = data.X[some], data.y[some]
    X = X.toarray() if sparse.issparse(X) else X
    return X.astype(np.float64), y if positive is None else (y == positive).astype(int)


def run_job(job: Job) -> np.ndarray:
    """Return test errors in per cent, of shape (gammas or scales, penalties)."""
    found = rows_of(job.name)
    assert found is not None
    X, y = found
    size = min(MAX_ROWS, int(0.6 * len(y)))
    train, test = train_test_split(
        np.arange(len(y)), train_size=size, random_state=job.seed, stratify=y
    )
    test = test[:MAX_TEST_ROWS]
    scaler = StandardScaler().fit(X[train])
    rows, labels = scaler.transform(X[train]), y[train]
    if job.flips:
        labels = contaminate(rows, labels, flips=job.flips, random_state=job.seed).y
    data = MarginPursuitClassifier()._check_training(rows, labels, None)
    unit = default_gammas(data, "rbf", SelectionPolicy(gamma_factors=(1.0,)))[0]
    is_scaled = job.factor is not None
    choices = [(job.factor, s) for s in SCALES] if is_scaled else [(f, 1.0) for f in FACTORS]
    errors = np.empty((len(choices), len(PENALTIES)))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k, (factor, scale) in enumerate(choices):
            for j, penalty in enumerate(PENALTIES):
                model = MarginPursuitClassifier(
                    kernel="rbf",
                    gamma=factor * unit,
                    alpha=penalty / size,
                    scale=scale,
                    n_components=N_COMPONENTS,
                    probability=None,
                    tol=1e-3,
                    n_threads=1,
                ).fit(rows, labels)
                errors[k, j] = 100.0 * np.mean(model.predict(scaler.transform(X[test])) != y[test])
    print(*job, f"{errors.min():.2f} %", file=sys.stderr, flush=True)
    return errors


def mean_regret(errors: dict[str, np.ndarray], *choice: Any) -> float:
    """Return the mean over the sets of the lowest error of a part of the grid less that of all."""
    return float(np.mean([e[np.ix_(*choice)].min() - e.min() for e in errors.values()]))


def penalty_tables(errors: dict[str, np.ndarray]) -> Iterator[str]:
    """Yield the regrets of single choices, and of grids."""
    rows = [
        (f"{factor:g}", *(f"{mean_regret(errors, [k], [j]):.2f}" for j in range(len(PENALTIES))))
        for k, factor in enumerate(FACTORS)
    ]
    header = ("gamma · m/2", *(f"{penalty:g}/n" for penalty in PENALTIES))
    note = f"Means over {', '.join(errors)}; two seeds each."
    yield table("Regret of one gamma and one penalty, scale 1", header, rows, note)
    every = range(len(PENALTIES))
    grids = ((1, 2, 3, 4, 5), (1, 2, 3, 4), (0, 1, 2, 3, 4), (2, 3, 4, 5), (1, 3, 5))
    rows = [
        (
            ", ".join(f"{FACTORS[k]:g}" for k in grid),
            *(f"{mean_regret(errors, grid, some):.3f}" for some in (every, every[1:], every[1::2])),
        )
        for grid in grids
    ]
    header = ("gamma · m/2", "all penalties", "3/n to 0.003/n", "3/n, 0.3/n, 0.03/n, 0.003/n")
    yield table("Regret of the best of a grid", header, rows)


def scale_table(errors: dict[Job, np.ndarray]) -> str:
    """Return the lowest error over the penalties of each scale."""
    rows = [
        (job.name, f"{100 * job.flips:.0f} %", *(f"{error:.2f}" for error in found.min(axis=1)))
        for job, found in errors.items()
    ]
    means = np.mean([found.min(axis=1) for found in errors.values()], axis=0)
    rows.append(("mean", "", *(f"{error:.2f}" for error in means)))
    header = ("data", "mislabelled", *(f"s = {scale:g}" for scale in SCALES))
    note = "One seed; gamma is that with the lowest error at the scale 1."
    return table("Lowest error % over the penalties, by scale", header, rows, note)


def run(arguments: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args(arguments)
    sets, seeds = [name for name in chosen.sets if rows_of(name) is not None], (200, 201)
    with ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn")) as pool:
        jobs = [Job(name, seed) for name in sets for seed in seeds]
        found = dict(zip(jobs, pool.map(run_job, jobs), strict=True))
        errors = {
            name: np.mean([found[Job(name, seed)] for seed in seeds], axis=0) for name in sets
        }
        best = {name: FACTORS[int(own.min(axis=1).argmin())] for name, own in errors.items()}
        scaled = [Job(name, 300, flips, best[name]) for name in sets for flips in (0.0, 0.1)]
        by_scale = dict(zip(scaled, pool.map(run_job, scaled), strict=True))
    yield from penalty_tables(errors)
    yield scale_table(by_scale)


if __name__ == "__main__":
    write_results("kernel-defaults", run())
