"""Several classes: the joint loss and its temperature, one against the rest, softmax regression."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import table
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifier, datasets
from marginpursuit.losses import JointLoss
from marginpursuit.selection.search import FittedLink
from marginpursuit.tasks import JointTasks, Tasks

#: Seeds on which the temperature was chosen, and seeds of the comparison.
CHOICE_SEEDS, COMPARISON_SEEDS = (100, 101), (0, 1, 2, 3, 4)

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
        rows.append((name, *cells, f"{ratio:.1f}"))
    return rows


def run() -> Iterator[str]:
    """Measure temperatures on seeds of their own, and compare methods."""
    temperatures = {f"T = {ratio:g} γ": joint_at(ratio) for ratio in (0.3, 0.1, 1.0)}
    peer = {"LogisticRegression": softmax}
    note = "Error in %, log-loss; the last column is the time of LogisticRegression over the first."
    for title, methods, seeds in (
        ("Temperature of the joint loss", temperatures | peer, CHOICE_SEEDS),
        ("Several classes", {"joint": joint_at(0.3), "ovr": against_rest} | peer, COMPARISON_SEEDS),
    ):
        header = ("data", *methods, "time ratio")
        yield table(title, header, rows_of(methods, seeds), note)
