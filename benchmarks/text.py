"""Time of fits and searches on sparse data, against the fastest peers.

    python benchmarks/text.py [--parts fits searches memory] [--sets NAME ...] [--seeds 0 1 2 3 4]

Ours and the peers use two threads; on a busy machine the ratios of processor time are the reliable
ones. Every seed is another split of the rows. Packages in `OPTIONAL` are compared where they are
installed.
"""

import argparse
import contextlib
import ctypes
import gc
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import problems
from common import significant, table, write_results
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import LinearSVC

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV

THREADS = 2
LONG = 5.0  # seconds
#: Seconds before each fit. The BLAS threads of LogisticRegression spin for up to 0.1 s after it:
#: without a pause they take one of two processors from the fit that follows.
PAUSE = 0.3
GRID = {"C": [10.0**k for k in range(-3, 4)]}
OPTIONAL = ("snapml", "sklearnex", "liblinear", "glum")

Make = Callable[[], Any]


class Work(NamedTuple):
    """A data set, and how many times as fast as each peer a fit and a search are to be."""

    dataset: str
    positive: int | None = None
    is_tfidf: bool = False
    fit_target: float = 1.0
    search_target: float | None = None


WORKS = {
    "reuters": Work("reuters", search_target=5.0),
    "a9a": Work("a9a", fit_target=5.0),
    "news20, one class, counts": Work("news20", 0),
    "news20, one class, TF-IDF": Work("news20", 0, is_tfidf=True, search_target=5.0),
    "news20, 20 classes, counts": Work("news20", fit_target=2.0),
    "news20, 20 classes, TF-IDF": Work("news20", is_tfidf=True, fit_target=2.0, search_target=5.0),
}


class Split(NamedTuple):
    """Training and test rows."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


def split(work: Work, seed: int) -> Split:
    """Return training and test rows, three to one, in float64, which all peers accept."""
    data = problems.dataset(work.dataset)
    y = data.y if work.positive is None else (data.y == work.positive).astype(int)
    X, X_test, y, y_test = train_test_split(
        sparse.csr_matrix(data.X, dtype=np.float64), y, stratify=y, random_state=seed
    )
    if work.is_tfidf:
        transformer = TfidfTransformer().fit(X)
        X, X_test = transformer.transform(X), transformer.transform(X_test)
    return Split(X, y, X_test, y_test)


def peers(n_classes: int, n_columns: int) -> dict[str, Make]:
    """Return the peers of a fit that are installed, with default parameters and two threads.

    glum forms the matrix of second derivatives: with the 8,315 columns of reuters it takes minutes.
    """
    found: dict[str, Make] = {"LinearSVC": LinearSVC}
    if n_classes == 2:
        found["LogisticRegression"] = LogisticRegression
    if find_spec("snapml"):
        import snapml

        found["snapml SVM"] = partial(snapml.SupportVectorMachine, n_jobs=THREADS)
        found["snapml logistic"] = partial(snapml.LogisticRegression, n_jobs=THREADS)
    if find_spec("sklearnex") and n_classes == 2:
        from sklearnex.linear_model import LogisticRegression as IntelLogistic

        found["scikit-learn-intelex logistic"] = IntelLogistic
    if find_spec("liblinear") and n_classes == 2:
        found["liblinear-multicore"] = LiblinearMulticore
    if find_spec("glum") and n_classes == 2 and n_columns <= 1000:
        from glum import GeneralizedLinearRegressor

        glum = partial(GeneralizedLinearRegressor, family="binomial", l1_ratio=0.0, alpha=1e-4)
        found["glum, alpha 1e-4"] = partial(GlumClassifier, glum)
    return found


class LiblinearMulticore:
    """The dual solver of LIBLINEAR's L2-loss support vector machine in threads (`-s 1 -m 2`)."""

    def fit(self, X: Any, y: Any) -> "LiblinearMulticore":
        """Fit with a constant feature."""
        from liblinear.liblinearutil import parameter, problem, train

        self._model = train(problem(y, X, bias=1), parameter(f"-s 1 -m {THREADS} -q"))
        return self

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy."""
        from liblinear.liblinearutil import predict

        return float(np.mean(np.asarray(predict([], X, self._model, "-q")[0]) == y))


class GlumClassifier:
    """A generalised linear model for two classes, thresholded."""

    def __init__(self, make: Make) -> None:
        self._model = make()

    def fit(self, X: Any, y: Any) -> "GlumClassifier":
        """Fit to classes 0 and 1."""
        self._largest = np.max(y)
        self._model.fit(sparse.csc_matrix(X), (y == self._largest).astype(float))
        return self

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy."""
        predicted = self._model.predict(sparse.csc_matrix(X)) > 0.5
        return float(np.mean(predicted == (y == self._largest)))


def run(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Compare fits, then searches, then the memory of a search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4], help="of splits")
    parser.add_argument("--sets", nargs="+", choices=WORKS, default=list(WORKS), metavar="NAME")
    parts = ["fits", "searches", "memory"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    chosen = parser.parse_args(arguments)
    works = {name: WORKS[name] for name in chosen.sets}
    missing = {w.dataset for w in works.values() if problems.missing(w.dataset)}
    if missing:
        yield f"Missing, not run: {', '.join(sorted(missing))}."
    works = {name: work for name, work in works.items() if work.dataset not in missing}
    for name, work in works.items() if "fits" in chosen.parts else ():
        yield _fits(name, work, chosen)
    searched = {name: work for name, work in works.items() if work.search_target}
    if searched and "searches" in chosen.parts:
        yield _searches(searched, chosen.seeds)
    if "memory" in chosen.parts:
        yield _memory(chosen.seeds[0])


def _fits(name: str, work: Work, chosen: argparse.Namespace) -> str:
    splits, lines = [split(work, seed) for seed in chosen.seeds], []
    own, without, data = "MarginPursuitClassifier", "the same, probability=None", splits[0]
    methods: dict[str, Make] = {
        own: partial(MarginPursuitClassifier, n_threads=THREADS),
        without: partial(MarginPursuitClassifier, n_threads=THREADS, probability=None),
        **peers(len(np.unique(data.y)), data.X.shape[1]),
    }
    measured = _measured(methods, splits)
    for method, its in measured.items():
        ours = measured[own]
        ratios = its.seconds / ours.seconds, its.processor / ours.processor
        is_target = method in ("LinearSVC", "LogisticRegression")
        is_peer = method not in (own, without)
        lines.append(
            (
                *(method, f"{1e3 * its.seconds:.1f}", f"{1e3 * its.processor:.1f}"),
                f"{its.errors.mean():.2f}",
                *(map(significant, ratios) if is_peer else ("", "")),
                "" if method == own else _difference(ours, its),
                _verdict(work.fit_target, ratios[0], ours, its) if is_target else "",
            )
        )
    absent = [package for package in OPTIONAL if not find_spec(package)]
    times = "theirs / ours", "processor time, theirs / ours"
    return table(
        f"One fit with default parameters: {name}, {data.X.shape[0]} rows",
        ("method", "ms", "processor ms", "error, %", *times, "our error less theirs", "target"),
        lines,
        f"{THREADS} threads each (LinearSVC has one); median times (of each split the shortest of "
        f"three fits) and mean test errors of {len(splits)} splits (seeds {chosen.seeds}), three "
        "quarters of the rows for training. Ours includes probabilities unless said otherwise. "
        + RULE
        + (f" Not installed: {', '.join(absent)}." if absent else ""),
    )


RULE = (
    "A target is met if ours is at least that factor faster, in seconds, and its test error is at "
    "most two standard errors of the paired difference larger (±: one standard error)."
)


class Measured(NamedTuple):
    """Median times of a fit, and its test errors in per cent."""

    seconds: float
    processor: float
    errors: Any  # (n_splits,)


def _paired(ours: Measured, theirs: Measured) -> tuple[float, float]:
    """Return the mean of our error less theirs, and its standard error; zero for one split."""
    n = min(len(ours.errors), len(theirs.errors))
    difference = ours.errors[:n] - theirs.errors[:n]
    return difference.mean(), difference.std(ddof=1) / np.sqrt(n) if n > 1 else 0.0


def _difference(ours: Measured, theirs: Measured) -> str:
    """Return the mean of our error less theirs, with its standard error."""
    mean, error = _paired(ours, theirs)
    return f"{mean:+.2f} ± {error:.2f}" if error else f"{mean:+.2f}"


def _verdict(target: float, ratio: float, ours: Measured, theirs: Measured) -> str:
    """Return whether a target is met, and by what it is missed."""
    mean, error = _paired(ours, theirs)
    failures = {"time": ratio < target, "error": mean > 2 * error}
    missed = [name for name, is_missed in failures.items() if is_missed]
    return f"{target:g}: " + (f"missed ({', '.join(missed)})" if missed else "met")


def _measured(methods: dict[str, Make], splits: Sequence[Split]) -> dict[str, Measured]:
    """Fit all methods in turn; one that took more than `LONG` seconds is fitted to two splits.

    The time of a split is the shortest of three alternating fits, of one where a fit takes more
    than a second: the first fit to new rows finds no free memory to use again.
    """
    times: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
    errors: dict[str, list[float]] = {method: [] for method in methods}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, data in enumerate(splits):
            short = [
                method
                for method in methods
                if number < 2 or max(seconds for seconds, _ in times[method]) <= LONG
            ]
            found: dict[str, list[tuple[float, float]]] = {method: [] for method in short}
            for _ in range(3):
                for method in short:
                    if found[method] and found[method][0][0] > 1.0:
                        continue
                    model, own = _timed(methods[method], data)
                    if not found[method]:
                        errors[method].append(100 * (1 - model.score(data.X_test, data.y_test)))
                    found[method].append(own)
            for method in short:
                times[method].append(min(found[method]))
    return {
        method: Measured(*map(float, np.median(own, axis=0)), np.array(errors[method]))
        for method, own in times.items()
    }


def _timed(make: Make, data: Split) -> tuple[Any, tuple[float, float]]:
    """Fit a model after a pause; return it with its seconds and those of the processors."""
    time.sleep(PAUSE)
    before = _worker_time()
    start = time.perf_counter(), time.process_time()
    model = make().fit(data.X, data.y)
    end = time.perf_counter(), time.process_time()
    return model, (end[0] - start[0], end[1] - start[1] + _worker_time() - before)


def _worker_time() -> float:
    """Return the processor time of the child processes so far; zero unless the system is Linux."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process may have ended
            fields = path.read_text().rpartition(")")[2].split()
            total += int(fields[1] == str(os.getpid())) * (int(fields[11]) + int(fields[12]))
    return total / os.sysconf("SC_CLK_TCK") if total else 0.0


def _searches(works: dict[str, Work], seeds: Sequence[int]) -> str:
    lines = []
    for name, work in works.items():
        methods: dict[str, Make] = {
            "ours": partial(MarginPursuitClassifierCV, n_threads=THREADS),
            "theirs": partial(GridSearchCV, LinearSVC(), GRID, n_jobs=THREADS),
        }
        small = split(WORKS["a9a"], 0)  # starts the worker processes, whose start is not measured
        methods["theirs"]().fit(small.X[:100], small.y[:100])
        measured = _measured(methods, [split(work, seed) for seed in seeds])
        ours, theirs = measured["ours"], measured["theirs"]
        ratios = theirs.seconds / ours.seconds, theirs.processor / ours.processor
        lines.append(
            (
                *(name, f"{ours.seconds:.2f}", f"{ours.processor:.2f}"),
                *(f"{theirs.seconds:.2f}", f"{theirs.processor:.2f}"),
                *map(significant, ratios),
                *(f"{ours.errors.mean():.2f}", f"{theirs.errors.mean():.2f}"),
                _difference(ours, theirs),
                _verdict(work.search_target or 0.0, ratios[0], ours, theirs),
            )
        )
        print("|", " | ".join(lines[-1]), "|", file=sys.stderr, flush=True)
    times = ("ours, s", "processor s", "theirs, s", "processor s")
    return table(
        "Search with five folds, against GridSearchCV(LinearSVC(), 7 values of C)",
        (
            *("data", *times, "theirs / ours", "processor time, theirs / ours"),
            *("our error, %", "their error, %", "difference", "target"),
        ),
        lines,
        f"{THREADS} threads each: ours in one process, GridSearchCV with n_jobs={THREADS}, whose "
        "processes have been started. Times include the refit to all rows; medians of the splits "
        f"with seeds {list(seeds)}, of two where a search takes more than {LONG:g} s. " + RULE,
    )


def _memory(seed: int) -> str:
    """Return the peak memory of a search in a process of its own, above that of its data."""
    work = WORKS["news20, 20 classes, TF-IDF"]
    if problems.missing(work.dataset):
        return "Missing, not run: news20."
    code = f"import text; print(*text.peak_bytes({seed}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    peak, data, coefficients = (float(x) / 1e6 for x in done.stdout.split())
    allowed = 3 * data + coefficients
    return table(
        "Peak memory of a search on news20, 20 classes, TF-IDF",
        ("above the data, MB", "X, MB", "coefficients, MB", "3 X + coefficients, MB", "target"),
        [
            (
                *(f"{x:.0f}" for x in (peak, data, coefficients, allowed)),
                "met" if peak <= allowed else "missed",
            )
        ],
    )


def peak_bytes(seed: int) -> tuple[int, int, int]:
    """Return the peak of resident memory above that before, and the bytes of X and coefficients.

    Free memory is returned to the system first, and the peak is reset: that of `getrusage` includes
    the peak of the process that started this one. Needs Linux.
    """
    data = split(WORKS["news20, 20 classes, TF-IDF"], seed)
    MarginPursuitClassifierCV(n_threads=THREADS).fit(data.X[:200], data.y[:200])  # imports
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status_bytes("VmRSS")
    model = MarginPursuitClassifierCV(n_threads=THREADS).fit(data.X, data.y)
    grown = _status_bytes("VmHWM") - before
    stored = data.X.data.nbytes + data.X.indices.nbytes + data.X.indptr.nbytes
    return grown, stored, model.coef_.nbytes


def _status_bytes(name: str) -> int:
    """Return a number of bytes from the status of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    write_results("text", run(sys.argv[1:]))
