"""Finding wrong labels: our signals, and cleanlab's ranking with logistic regression.

    python benchmarks/label_errors.py [--seeds 0 1 2 3 4] [--sets ...] [--rows 1500]

Labels of real data sets are changed: *uniform* to any other class; *class-dependent*, each class to
its successor, of two classes the second alone; at the *boundary*, rows with the smallest margin of
a fit to the clean labels. Measured are the average precision of a ranking of the rows, the
false-negative rate of its first rows, as many as labels were changed, and the flags
`is_label_issue`: their fraction, precision and recall. Labels that were wrong before count as
right. Set OMP_NUM_THREADS=1.
"""

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from common import table, write_results
from defaults import load
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from marginpursuit import (
    CatoniRiskClassifier,
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    MedianOfMeansClassifier,
)
from marginpursuit.inspection import label_issues

SETS = ("spambase", "a9a", "digit5", "news20_minilm")
KINDS = ("uniform", "class-dependent", "boundary")
RATES = (0.1, 0.2)

Labels = np.ndarray[tuple[int], np.dtype[np.intp]]


def changed(kind: str, rate: float, X: Any, y: Labels, rng: np.random.Generator) -> Labels:
    """Return labels of which a fraction is changed."""
    n_classes, size = int(y.max()) + 1, round(rate * len(y))
    eligible = np.arange(len(y))
    if kind == "class-dependent" and n_classes == 2:
        eligible = np.flatnonzero(y == 1)
        size = min(size, len(eligible) // 2)
    if kind == "boundary":
        scores = MarginPursuitClassifier(probability=None).fit(X, y).decision_function(X)
        rows = np.argsort(_margins(scores, y) + 0.1 * rng.normal(size=len(y)))
        # Rows that a fit to the clean labels misclassifies may be wrong already.
        rows = rows[_margins(scores, y)[rows] > 0]
        eligible = rows[: 2 * size]
    rows = rng.choice(eligible, size, replace=False)
    step = rng.integers(1, n_classes, size) if kind == "uniform" else 1
    other = y.copy()
    other[rows] = (y[rows] + step) % n_classes
    return other


def _margins(scores: Any, codes: Labels) -> Any:
    """Return the score of the given class less the largest other."""
    if scores.ndim == 1:
        return np.where(codes == 1, scores, -scores)
    own = scores[np.arange(len(codes)), codes]
    others = scores.copy()
    others[np.arange(len(codes)), codes] = -np.inf
    return own - others.max(axis=1)


def signals(X: Any, y: Labels) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, suspicion of each row, and probabilities where the signal has them."""
    rows = np.arange(len(y))
    search = MarginPursuitClassifierCV().fit(X, y)
    yield "out-of-fold, search", -search.out_of_fold_proba_[rows, y], search.out_of_fold_proba_
    proba = search.predict_proba(X)
    yield "in-sample, search", -proba[rows, y], proba
    single = MarginPursuitClassifier().fit(X, y)
    proba = single.predict_proba(X)
    yield "in-sample, single fit", -proba[rows, y], proba
    yield "in-sample margin", -_margins(single.decision_function(X), y), None
    if not sparse.issparse(X) and y.max() == 1:  # several classes, or many columns, take minutes
        risks = [CatoniRiskClassifier(), MedianOfMeansClassifier()]
        for estimator in risks if X.shape[1] <= 100 else risks[:1]:
            influence = estimator.fit(X, y).sample_influence_
            name = type(estimator).__name__.removesuffix("Classifier")
            yield f"influence, {name}", -influence.reshape(len(y), -1).sum(axis=1), None
    scaler = MaxAbsScaler() if sparse.issparse(X) else StandardScaler()
    logistic = make_pipeline(scaler, LogisticRegression(max_iter=200))
    proba = cross_val_predict(logistic, X, y, method="predict_proba")
    yield "cleanlab, logistic regression", -cleanlab_quality(y, proba), proba


def cleanlab_quality(y: Labels, proba: Any) -> Any:
    """Return cleanlab's label quality, which is the probability of the given label."""
    try:
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return proba[np.arange(len(y)), y]
    return get_label_quality_scores(y, proba)


def cleanlab_flags(y: Labels, proba: Any) -> Any:
    """Return cleanlab's flags; None where it is not installed."""
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return None
    return find_label_issues(y, proba, n_jobs=1)


def cases(sets: Iterable[str], seeds: Sequence[int], n_rows: int) -> Iterator[tuple[Any, ...]]:
    """Yield name, kind, rate, rows, labels given and labels before, for each data set and seed."""
    for name in sets:
        data = load(name)
        if data is None:
            continue
        for seed in seeds:
            rng = np.random.default_rng(seed)
            order = np.sort(rng.permutation(len(data[1]))[:n_rows])
            X, y = data[0][order], np.unique(data[1][order], return_inverse=True)[1]
            if seed == seeds[0]:
                yield name, "none", 0.0, X, y, y
            for kind in KINDS:
                for rate in RATES:
                    yield name, kind, rate, X, changed(kind, rate, X, y, rng), y


def run(sets: Iterable[str], seeds: list[int], n_rows: int) -> Iterator[str]:
    """Yield tables of rankings and of flags."""
    ranking: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    flags: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for name, kind, rate, X, given, true in cases(sets, seeds, n_rows):
        start, wrong = time.perf_counter(), given != true
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = list(signals(X, given))
            for signal, suspicion, proba in found:
                if wrong.any():
                    first = np.argsort(-suspicion)[: wrong.sum()]
                    measures = average_precision_score(wrong, suspicion), 1 - wrong[first].mean()
                    ranking[name, kind, rate][signal].append(measures)
                if signal in ("out-of-fold, search", "cleanlab, logistic regression"):
                    ours = signal.startswith("out")
                    flag = (
                        label_issues(given, proba, np.arange(proba.shape[1])).is_label_issue
                        if ours
                        else cleanlab_flags(given, proba)
                    )
                    if flag is not None:
                        precision = wrong[flag].mean() if flag.any() else np.nan
                        recall = flag[wrong].mean() if wrong.any() else np.nan
                        flags[name, kind, rate][signal].append((flag.mean(), precision, recall))
        print(name, kind, rate, f"{time.perf_counter() - start:.1f} s", flush=True)
    names = list(dict.fromkeys(signal for own in ranking.values() for signal in own))
    yield _table("Average precision", ranking, names, 0)
    yield _table("False-negative rate at budget", ranking, names, 1)
    yield _flag_table(flags)


def _table(title: str, results: Any, names: list[str], measure: int) -> str:
    rows = []
    for case, own in results.items():
        means = [np.mean(own[name], axis=0)[measure] if name in own else np.nan for name in names]
        rows.append((*case, *("-" if np.isnan(x) else f"{x:.3f}" for x in means)))
    everywhere = [name for name in names if all(name in own for own in results.values())]
    total = {
        name: np.mean([np.mean(own[name], axis=0)[measure] for own in results.values()])
        for name in everywhere
    }
    cells = [f"{total[name]:.3f}" if name in total else "-" for name in names]
    rows.append(("mean", "", "", *cells))
    return table(title, ("data", "changes", "rate", *names), rows)


def _flag_table(results: Any) -> str:
    names = ("out-of-fold, search", "cleanlab, logistic regression")
    rows = []
    for case, own in results.items():
        cells = []
        for name in names:
            if name not in own:
                cells.append("-")
                continue
            fraction, precision, recall = np.nanmean(np.asarray(own[name]), axis=0)
            cells.append(f"{100 * fraction:.1f}, {precision:.2f}, {recall:.2f}")
        rows.append((*case, *cells))
    header = ("data", "changes", "rate", "ours", "cleanlab")
    note = "Flagged rows in %, precision, recall."
    return table("Flags", header, rows, note)


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--rows", type=int, default=1500)
    options = parser.parse_args()
    write_results("label-errors", run(options.sets, options.seeds, options.rows))


if __name__ == "__main__":
    main()
