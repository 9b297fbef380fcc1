"""Several classes: the joint loss and its temperature, one against the rest, softmax regression.

The defaults are compared with softmax regression on data sets as a whole.

    python benchmarks/run.py classes                                    temperatures, defaults
    python benchmarks/classes.py [--sets NAME ...] [--seeds 0 1 2 3 4]  defaults only
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from common import significant, table, write_results
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, top_k_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from marginpursuit import MarginPursuitClassifier, datasets
from marginpursuit.losses import JointLoss
from marginpursuit.selection.search import FittedLink
from marginpursuit.tasks import JointTasks, Tasks

#: Seeds on which the temperature was chosen, and seeds of the comparison.
CHOICE_SEEDS, COMPARISON_SEEDS = (100, 101), (0, 1, 2, 3, 4)
#: Data sets of the defaults: of news20_minilm both 400 rows and all.
SMALL_SETS = ("iris", "wine", "digits", "ordered", "news20_minilm")
SETS = (*SMALL_SETS, "cov", "news20")
#: Seconds from which a fit is timed once, and before each fit: threads of a BLAS wait actively
#: after its last call, which would take processor time of the next method.
LONG, PAUSE = 2.0, 0.3

Split = tuple[Any, Any, Any, Any]


class JointAtRatio(MarginPursuitClassifier):
    """A joint fit whose temperature is `ratio` times the margin."""

    ratio = 0.3

    def _tasks(self, data: Any, scale: float) -> Tasks:
        loss = JointLoss.at_level(self._loss(scale), self.ratio)
        return JointTasks.of(data.labels, data.weights, loss)


def ordered(rng: np.random.Generator, n_rows: int) -> tuple[Any, Any]:
    """Return five ordered classes, cut from one noisy score."""
    X = rng.normal(size=(n_rows, 10))
    score = X.sum(axis=1) / np.sqrt(10) + 0.7 * rng.logistic(size=n_rows)
    return X, np.digitize(score, np.quantile(score, [0.2, 0.4, 0.6, 0.8]))


def splits(seed: int) -> Iterator[tuple[str, Split]]:
    """Yield training and test rows of each data set at hand."""
    rng = np.random.default_rng(seed)
    sizes = {"iris": 100, "wine": 118, "digits": 1200, "ordered": 3000}
    sets = {
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "digits": load_digits(return_X_y=True),
        "ordered": ordered(rng, 8000),
        "news20_minilm": _stored("news20_minilm"),
        "cov": _stored("cov"),
    }
    for name, found in sets.items():
        if found is None:
            continue
        order = rng.permutation(len(found[1]))[:8000]
        X = np.asarray(found[0][order], dtype=np.float64)
        codes = np.unique(found[1][order], return_inverse=True)[1]
        n_train = sizes.get(name, 3000)
        yield name, (X[:n_train], codes[:n_train], X[n_train:], codes[n_train:])


def _stored(name: str) -> tuple[Any, Any] | None:
    """Return a data set with all its classes, if it is at hand."""
    try:
        data = datasets.load(name, original_labels=True, fetch=False)
    except datasets.DatasetError:
        return None
    return data.X, data.y


def measure(make: Callable[[float], Any], split: Split) -> tuple[float, float, float]:
    """Return error in per cent, log-loss and seconds; the link is that of two half fits."""
    X, y, test, labels = split
    begin = time.perf_counter()
    model = make(len(y)).fit(X, y)
    seconds = time.perf_counter() - begin
    error = 100 * float(np.mean(model.predict(test) != labels))
    n_classes = int(y.max()) + 1
    if not isinstance(model, MarginPursuitClassifier):
        probabilities = model.predict_proba(test)
    else:
        half = np.random.default_rng(1).permutation(len(y)) % 2
        scores = np.zeros((len(y), n_classes))
        for k in (0, 1):
            other = make(len(y) / 2).fit(X[half == k], y[half == k])
            scores[half != k] = other.decision_function(X[half != k])
        link = FittedLink.fit(scores, y, np.ones(len(y)), 1.0, max_rows=1 << 14)
        probabilities = link.probabilities(model.decision_function(test))
    return error, float(log_loss(labels, probabilities, labels=np.arange(n_classes))), seconds


def joint_at(ratio: float) -> Callable[[float], Any]:
    """Return what makes a joint fit at a temperature, for a number of rows."""

    def make(n_rows: float) -> Any:
        model = JointAtRatio(**_options(n_rows))
        model.ratio = ratio
        return model

    return make


def against_rest(n_rows: float) -> Any:
    """Return a fit of each class against the rest."""
    return MarginPursuitClassifier(multi_class="ovr", **_options(n_rows))


def softmax(n_rows: float) -> Any:
    """Return softmax regression of standardised columns."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _options(n_rows: float) -> dict[str, Any]:
    alpha = {"alpha": 0.3 / n_rows, "alpha_unit": "standardised"}
    return {"overconfidence": 0.0, "scale": 1.0, "tol": 1e-4, **alpha}


def rows_of(
    methods: dict[str, Callable[[float], Any]], seeds: tuple[int, ...]
) -> list[tuple[str, ...]]:
    """Return a row for each data set: error and log-loss of each method, means over seeds."""
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for seed in seeds:
        for name, split in splits(seed):
            for method, make in methods.items():
                found[name][method].append(measure(make, split))
    rows = []
    for name, results in found.items():
        means = [np.mean(results[method], axis=0) for method in methods]
        ratio = means[-1][2] / means[0][2]
        cells = [f"{error:.2f}, {loss:.3f}" for error, loss, _ in means]
        rows.append((name, *cells, significant(ratio)))
    return rows


def small_sets(seed: int, n_few: int = 400) -> Iterator[tuple[str, str, Split]]:
    """Yield small data sets as `whole_sets` does; of the embeddings, `n_few` rows."""
    for name, (X, y, test, labels) in splits(seed):
        if name == "news20_minilm":
            yield name, "none", (X[:n_few], y[:n_few], test, labels)
        elif name != "cov":
            yield name, "standardised", (X, y, test, labels)


def whole_sets() -> Iterator[tuple[str, str, Split]]:
    """Yield large data sets: name, what logistic regression does to columns, and the split.

    Embeddings and texts have their official split; embeddings of unit length are not standardised,
    which is better for logistic regression there.
    """
    minilm, cov, news = (_stored(name) for name in ("news20_minilm", "cov", "news20"))
    if minilm is not None:
        X, n_train = np.asarray(minilm[0], dtype=np.float32), 11314
        yield (
            "news20_minilm",
            "none",
            (X[:n_train], minilm[1][:n_train], X[n_train:], minilm[1][n_train:]),
        )
    if cov is not None:
        order = np.random.default_rng(0).permutation(len(cov[1]))
        train, test = np.split(order, [int(0.7 * len(order))])
        X = np.asarray(cov[0], dtype=np.float32)
        yield "cov", "standardised", (X[train], cov[1][train], X[test], cov[1][test])
    if news is not None:
        X, n_train = normalize(news[0].astype(np.float64)), 11314
        yield (
            "news20",
            "unit rows",
            (X[:n_train], news[1][:n_train], X[n_train:], news[1][n_train:]),
        )


def fit_times(model: Any, X: Any, y: Any) -> tuple[float, float]:
    """Return seconds and processor seconds of a fit, of short ones the least of three."""
    found: list[tuple[float, float]] = []
    while len(found) < (3 if found and found[0][0] < LONG else 1):
        time.sleep(PAUSE)
        begin = time.perf_counter(), time.process_time()
        model.fit(X, y)
        found.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    least = np.min(found, axis=0)
    return float(least[0]), float(least[1])


def default_measures(model: Any, split: Split) -> tuple[float, ...]:
    """Return error in per cent, log-loss, top-5 accuracy and the times of a default fit."""
    X, y, test, labels = split
    times = fit_times(model, X, y)
    proba, classes = model.predict_proba(test), model.classes_
    top = top_k_accuracy_score(labels, proba, k=min(5, len(classes) - 1), labels=classes)
    error = 100 * float(np.mean(model.predict(test) != labels))
    return error, float(log_loss(labels, proba, labels=classes)), float(top), *times


def run_defaults(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Yield a table of the defaults of both; rows are also printed as they come."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="NAME")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=list(COMPARISON_SEEDS), help="of the small sets"
    )
    chosen = parser.parse_args(arguments)
    rows = []
    header = ("data", "training rows", "classes")
    header += ("ours: error %, log-loss, top-5", "LogisticRegression", "difference")
    header += ("LogisticRegression / ours", "processor time, LogisticRegression / ours")
    small = [case for seed in chosen.seeds for case in small_sets(seed)]
    groups = [[case for case in small if case[0] == name] for name in SMALL_SETS]
    for group in (*groups, *([case] for case in whole_sets())):
        if not group or group[0][0] not in chosen.sets:
            continue
        found = []
        for _, scaling, split in group:
            scaler = StandardScaler() if scaling == "standardised" else "passthrough"
            models = (MarginPursuitClassifier(), make_pipeline(scaler, LogisticRegression()))
            found.append([default_measures(model, split) for model in models])
        ours, peer = np.mean(found, axis=0)
        difference = np.array([a[0] - b[0] for a, b in found])
        spread = f" ± {difference.std(ddof=1) / np.sqrt(len(found)):.2f}" if len(found) > 1 else ""
        cells = [f"{error:.2f}, {loss:.3f}, {top:.3f}" for error, loss, top, *_ in (ours, peer)]
        _, y, _, _ = group[0][2]
        row = (group[0][0], len(y), len(np.unique(y)), *cells)
        row += (f"{difference.mean():+.2f}{spread}", *map(significant, peer[3:] / ours[3:]))
        rows.append(row)
        print(row, flush=True)
    note = (
        f"Fits of up to {LONG} s: the least time of three. Several splits: means, ± standard "
        "error. LogisticRegression ends at max_iter=100 on cov."
    )
    yield table("Defaults against softmax regression", header, rows, note)


def run() -> Iterator[str]:
    """Measure temperatures on seeds of their own, and compare methods."""
    temperatures = {f"T = {ratio:g} γ": joint_at(ratio) for ratio in (0.3, 0.1, 1.0)}
    peer = {"LogisticRegression": softmax}
    note = "Error in %, log-loss; the last column is for the first method."
    for title, methods, seeds in (
        ("Temperature of the joint loss", temperatures | peer, CHOICE_SEEDS),
        ("Several classes", {"joint": joint_at(0.3), "ovr": against_rest} | peer, COMPARISON_SEEDS),
    ):
        header = ("data", *methods, f"time, LogisticRegression / ours, {next(iter(methods))}")
        yield table(title, header, rows_of(methods, seeds), note)
    yield from run_defaults()


if __name__ == "__main__":
    write_results("classes", run_defaults(sys.argv[1:]))
