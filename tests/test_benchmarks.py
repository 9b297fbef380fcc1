"""The runner of the benchmark jobs, and the tables made from its rows."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
import threadpoolctl
from sklearn.linear_model import RidgeClassifier

if not hasattr(os, "fork"):
    pytest.skip("jobs are forked, which this platform cannot", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import growth
import jobs
import methods
import problems
import table


class Endless(RidgeClassifier):
    def fit(self, X, y):
        time.sleep(60)


class Broken(RidgeClassifier):
    def fit(self, X, y):
        raise ArithmeticError("no fit")


METHODS = {
    "ridge": methods.Method(lambda cv, seed: RidgeClassifier()),
    "endless": methods.Method(lambda cv, seed: Endless()),
    "broken": methods.Method(lambda cv, seed: Broken()),
}


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setitem(problems.TASKS, "breast_cancer", problems.Task("breast_cancer"))

    def run(*arguments):
        parser = jobs.options(
            "", sets=["breast_cancer"], contamination=["clean"], seeds=2, store=None
        )
        store = ["--store", str(tmp_path / "rows.jsonl"), "--limit", "2", "--processes", "1"]
        chosen = parser.parse_args([*store, *arguments])
        return jobs.results(chosen, dict.fromkeys(problems.CONTAMINATIONS, METHODS))[0]

    return run


def test_a_job_is_measured_ended_at_its_limit_or_reported_as_failed(run):
    rows = {(row["method"], row["seed"]): row for row in run()}
    assert rows["endless", 0]["status"] == f"{jobs.OVER} 2 s"
    assert ("endless", 1) not in rows  # nor would it have ended with another seed
    assert rows["broken", 0]["status"] == "failed: ArithmeticError: no fit"
    assert rows["ridge", 0]["error"] < 10 < 100 * rows["ridge", 0]["auc"]
    assert rows["ridge", 0]["auc"] != rows["ridge", 1]["auc"]  # another split


def test_an_interrupted_run_resumes(run, monkeypatch):
    first = run("--methods", "ridge", "--seeds", "1")
    both = run("--methods", "ridge")
    assert both[0] == first[0]
    assert [row["seed"] for row in both] == [0, 1]
    monkeypatch.setattr(jobs, "_start", None)  # nothing is left to start
    assert run("--methods", "ridge") == both


def test_an_incomplete_line_is_ignored(tmp_path):
    store = tmp_path / "rows.jsonl"
    store.write_text('{"seed": 0}\n{"seed": 1, "err')
    assert jobs.read(store) == [{"seed": 0}]


@pytest.mark.parametrize("kind", problems.CONTAMINATIONS)
def test_only_training_rows_are_contaminated(run, kind):
    clean = problems.prepare("breast_cancer", 0, "clean", None)
    contaminated = problems.prepare("breast_cancer", 0, kind, None)
    assert (contaminated.X_test == clean.X_test).all()
    assert (contaminated.y_test == clean.y_test).all()
    changed = (contaminated.X != clean.X).any(axis=1) | (contaminated.y != clean.y)
    assert changed.mean() == pytest.approx(
        sum(
            problems.CONTAMINATIONS[kind].get(name, 0.0) for name in ("flips", "leverage", "noise")
        ),
        abs=0.01,
    )


def _rows(errors, loss=None):
    losses = {} if loss is None else {"log_loss": loss}
    return [
        {"seed": seed, "status": jobs.DONE, "error": error, **losses}
        for seed, error in enumerate(errors)
    ]


def test_comparisons_are_with_the_best_tuned_peer_that_finished():
    slow = [*_rows([1.0]), {"seed": 1, "status": jobs.OVER}]
    found = table._compared(
        {
            table.OURS_CV: _rows([5.0, 6.0], loss=0.21),
            "logistic lbfgs, tuned": _rows([5.1, 5.5], loss=0.2),
            "ridge, tuned": _rows([9.0, 9.0]),
            "ridge": _rows([1.0, 1.0]),
            "SVC dual, tuned": slow,
        }
    )
    assert found.best == found.logistic == "logistic lbfgs, tuned"
    assert found.difference == pytest.approx(0.2)
    assert found.deviation == pytest.approx(0.3)
    assert found.is_best
    assert found.ratio == pytest.approx(1.05)
    assert table._compared({table.OURS_CV: [], "ridge, tuned": _rows([1.0])}) is None


@pytest.mark.slow
def test_growth_measures_points_in_processes_resumes_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    store = tmp_path / "points.jsonl"
    options = ["--parts", "rows", "--sizes", "60", "--threads", "1"]
    options += ["--store", str(store), "--results", str(tmp_path)]
    (text,) = growth.run([*options, "--limit", "0.01"])
    assert "over 0.01 s" in text
    assert len(growth._stored(store)) == 4
    store.unlink()
    known = {"seconds": 2.0, "peak_bytes": 3e6, "data_bytes": 4e6, "status": "done"}
    known["blas_threads"] = 1
    lines = [
        known | {"part": "rows", "size": 60, "method": name}
        for name in list(growth.methods(growth.PARTS["rows"], 1))[1:]
    ]
    store.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"part": "ro')
    (text,) = growth.run([*options, "--limit", "60"])
    row = next(line for line in text.splitlines() if line.startswith("| 60 "))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:5] == ["2.00", "2.00", "2.00"]
    assert float(cells[5]) == pytest.approx(2.0 / float(cells[1]), rel=0.05)
    assert "Threads: 1 of ours; of BLAS 1 in every method" in text
    assert len(growth._stored(store)) == 4
    assert (tmp_path / "growth-rows.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("part", growth.PARTS)
def test_growth_draws_data_of_every_part(part):
    size = 5000 if part == "nonzeros" else 4
    X, y = growth.PARTS[part].draw(size)
    assert X.shape[0] == len(y) > 1
    assert len(set(y.tolist())) > 1


@pytest.mark.parametrize("part", growth.PARTS)
def test_growth_warms_up_with_rows_of_the_same_kind(part):
    X, y = growth.PARTS[part].draw({"columns": 20, "classes": 30}.get(part, 20_000))
    rows, labels = growth.tiny(X, y)
    assert type(rows) is type(X)
    assert rows.dtype == X.dtype
    assert rows.shape[0] == len(labels) <= growth.TINY_ROWS
    assert len(set(labels.tolist())) == (3 if part == "classes" else 2)


@pytest.mark.parametrize("method", growth.methods(growth.PARTS["rows"], 1))
@pytest.mark.parametrize(("seconds", "n_calls"), [(0.0, growth.REPEATS), (0.2, 1)])
def test_growth_warms_up_every_method_and_repeats_short_fits(seconds, n_calls, method, monkeypatch):
    fits = []

    class Counting(RidgeClassifier):
        def fit(self, X, y):
            pools = threadpoolctl.threadpool_info()
            assert {p["num_threads"] for p in pools if p["user_api"] == "blas"} <= {1}
            fits.append(len(X))
            time.sleep(seconds if len(X) == 500 else 0.0)

    monkeypatch.setattr(growth, "methods", lambda part, n_threads: {method: Counting})
    found = growth.measure("rows", 500, method, 1)
    assert fits == [growth.TINY_ROWS, *[500] * n_calls]
    assert found["blas_threads"] in (1, None)  # None: a BLAS that threadpoolctl does not know
    assert found["seconds"] >= seconds
