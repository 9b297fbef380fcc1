"""Boosting and a network with the margin loss, next to their own log-loss, on contaminated data.

    python benchmarks/interop.py [--seeds 0 1 2 3 4] [--rows 2000]

Every learner has its default parameters but for the loss, 100 trees, and one thread. The margin
loss has margin and scale 1, without overconfidence and, with two classes, with 1. Labels of the
training rows are flipped at random, or 5 % of the rows are scaled by ten and mislabelled; test rows
are clean. LightGBM, XGBoost, CatBoost and torch are compared where they are installed.
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from common import table, write_results
from defaults import load, split
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from marginpursuit import interop
from marginpursuit.datasets import contaminate

SETS = ("spambase", "a9a", "cov")
SEVERAL_CLASSES = ("news20_minilm",)  # for the network; boosting takes a tree for each class
LOSSES = ("log-loss", "margin loss", "with overconfidence")
CONTAMINATIONS: dict[str, dict[str, Any]] = {
    "clean": {},
    "10 % flips": {"flips": 0.1},
    "20 % flips": {"flips": 0.2},
    "5 % leverage": {"leverage": 0.05},
}

Scores = Callable[[Any, Any, Any], Any]


def lightgbm(loss: str) -> Scores:
    """Return what trains LightGBM and scores test rows."""
    from lightgbm import LGBMClassifier

    options = {}
    if loss != "log-loss":
        options["objective"] = interop.lightgbm_objective(overconfidence=_overconfidence(loss))

    def scores(X: Any, y: Any, test: Any) -> Any:
        model = LGBMClassifier(verbose=-1, n_jobs=1, **options).fit(X, y)
        return model.predict(test, raw_score=True)

    return scores


def xgboost(loss: str) -> Scores:
    """Return what trains XGBoost and scores test rows."""
    from xgboost import XGBClassifier

    options: dict[str, Any] = {}
    if loss != "log-loss":
        options["objective"] = interop.xgboost_objective(overconfidence=_overconfidence(loss))
        options["base_score"] = 0.0

    def scores(X: Any, y: Any, test: Any) -> Any:
        return XGBClassifier(n_jobs=1, **options).fit(X, y).predict(test, output_margin=True)

    return scores


def catboost(loss: str) -> Scores:
    """Return what trains CatBoost and scores test rows; an objective in Python is slow."""
    from catboost import CatBoostClassifier

    options: dict[str, Any] = {"learning_rate": 0.1, "iterations": 100, "depth": 4}
    if loss != "log-loss":
        objective = interop.catboost_objective(overconfidence=_overconfidence(loss))
        options |= {"loss_function": objective, "eval_metric": "Accuracy"}

    def scores(X: Any, y: Any, test: Any) -> Any:
        model = CatBoostClassifier(
            thread_count=1, logging_level="Silent", allow_writing_files=False, **options
        )
        return model.fit(X, y).predict(test, prediction_type="RawFormulaVal")

    return scores


def network(loss: str) -> Scores:
    """Return what trains a head with one hidden layer by AdamW, and scores test rows."""
    import torch

    def scores(X: Any, y: Any, test: Any) -> Any:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        scaler = StandardScaler().fit(X)
        rows, others = (torch.tensor(scaler.transform(x), dtype=torch.float32) for x in (X, test))
        labels, n_classes = torch.tensor(y), int(y.max()) + 1
        n_scores = n_classes if n_classes > 2 else 1
        head = torch.nn.Sequential(
            torch.nn.Linear(rows.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, n_scores)
        )
        criterion: Any = interop.torch_loss(overconfidence=_overconfidence(loss))
        if loss == "log-loss":
            criterion = torch.nn.CrossEntropyLoss()
            if n_scores == 1:
                labels, criterion = labels.float(), torch.nn.BCEWithLogitsLoss()
        optimiser = torch.optim.AdamW(head.parameters(), lr=1e-3)
        for _ in range(20):
            for batch in torch.randperm(len(rows)).split(64):
                optimiser.zero_grad()
                found = head(rows[batch])
                found = found[:, 0] if n_scores == 1 else found
                criterion(found, labels[batch]).backward()
                optimiser.step()
        with torch.no_grad():
            found = head(others).numpy()
        return found[:, 0] if n_scores == 1 else found

    return scores


def _overconfidence(loss: str) -> float:
    return float(loss == "with overconfidence")


LEARNERS = {
    "LightGBM": ("lightgbm", lightgbm),
    "XGBoost": ("xgboost", xgboost),
    "CatBoost": ("catboost", catboost),
    "hidden layer, AdamW": ("torch", network),
}


def error_of(scores: Any, labels: Any) -> float:
    """Return the error in per cent of scores (n,) or (n, K)."""
    found = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
    return 100 * float(np.mean(found != labels))


def run(seeds: Iterable[int], n_rows: int, sets: Iterable[str]) -> Iterator[str]:
    """Yield one table for each learner."""
    for name, (package, make) in LEARNERS.items():
        if find_spec(package) is None:
            yield f"{name}: {package} is not installed."
            continue
        found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
        for data in (*sets, *(SEVERAL_CLASSES if package == "torch" else ())):
            losses = LOSSES[:2] if data in SEVERAL_CLASSES else LOSSES
            for seed in seeds:
                for kind, case in _cases(data, seed, n_rows):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        errors = [error_of(make(loss)(*case[:3]), case[3]) for loss in losses]
                    found[data, kind].append(errors + [np.nan] * (len(LOSSES) - len(errors)))
            print(name, data, flush=True)
        yield _table(name, found)


def _cases(data: str, seed: int, n_rows: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield training rows of each contamination, with clean test rows."""
    loaded = load(data)
    if loaded is None:
        return
    X, y, test, labels = split(*loaded, n_rows, seed)
    classes = np.unique(loaded[1])
    labels = np.searchsorted(classes, labels)[:5000]
    test = test[:5000]
    for kind, options in CONTAMINATIONS.items():
        touched = contaminate(X, np.searchsorted(classes, y), random_state=seed, **options)
        train = touched.X
        if sparse.issparse(train):
            train, test = train.toarray(), test.toarray() if sparse.issparse(test) else test
        yield kind, (train, touched.y, test, labels)


def _table(name: str, found: dict[tuple[str, str], list[list[float]]]) -> str:
    rows = []
    for (data, kind), errors in found.items():
        measured = np.array(errors)
        cells = [f"{measured[:, 0].mean():.2f}"]
        for k in (1, 2):
            change = measured[:, k] - measured[:, 0]
            spread = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.nan
            cell = f"{measured[:, k].mean():.2f} ({change.mean():+.2f} ± {spread:.2f})"
            cells.append("-" if np.isnan(change).any() else cell)
        rows.append((data, kind, *cells))
    note = "Error in %; in brackets the difference to log-loss, mean ± standard error over seeds."
    return table(name, ("data", "training rows", *LOSSES), rows, note)


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--sets", nargs="+", default=SETS)
    options = parser.parse_args()
    write_results("interop", run(options.seeds, options.rows, options.sets))


if __name__ == "__main__":
    main()
