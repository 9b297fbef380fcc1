"""The experiments: learners, stored results, the store, the runner, and verdicts on claims."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from marginpursuit.calibration import optimal_score
from marginpursuit.datasets import DatasetError
from marginpursuit.experiments import (
    EXPERIMENTS,
    FULL,
    QUICK,
    Fit,
    Results,
    Setting,
    Verdict,
    cubic_conditions,
    naive_scaling,
    one_time_rescaling,
    reproduce,
)
from marginpursuit.experiments._fits import QUANTILES, Sample, draw_sample, run_fit
from marginpursuit.experiments._learners import LEARNERS, Rescaling, Task
from marginpursuit.experiments._results import is_below, percent
from marginpursuit.experiments._runner import run_fits
from marginpursuit.experiments._store import Store, code_version, key_of
from marginpursuit.location import catoni_location, consistent_quantile_scale, quantile_scale
from marginpursuit.losses import influence

SMALL = Setting(("breast_cancer",), ("standard",), (1e-2, 1.0), trials=2, epochs=4)


@pytest.fixture(scope="module")
def sample():
    return draw_sample("breast_cancer", "standard", 0)


# Learners ---------------------------------------------------------------------------------------


def paper_steps(task):
    """The paper's stochastic learner, by the formulas of the text."""
    n, d = task.X.shape
    marks = task.checkpoints
    random = task.random
    w = random.standard_normal(d) / np.sqrt(d)
    rows = (random.random(marks[-1]) * n).astype(int)
    change = task.rescaling
    root, scale, rate, t, kept = np.sqrt(task.penalty), 1.0, 1.0, 0, []
    for step, row in enumerate(rows):
        if change is not None and step == round(change.after * n):
            margins = task.y * (task.X @ w)
            scale = float(
                quantile_scale(margins, task.penalty)
                if change.rule == "printed"
                else consistent_quantile_scale(margins)
            )
            rate = 1.0 if change.step == "over scale" else scale
            t = t if change.clock == "on" else 0
        length = rate / (scale * root * (1 + t))
        x, y = task.X[row], task.y[row]
        slope = -scale * influence((1 - y * (x @ w)) / scale) * y * x
        w = w - length * (slope + task.penalty * w)
        w *= min(1.0, 1 / (root * np.linalg.norm(w)))
        t += 1
        if step + 1 in marks:
            kept.append(w)
    return np.array(kept)


INTERPRETATIONS = EXPERIMENTS["figure5"].interpretations


@pytest.mark.parametrize("change", [None, *INTERPRETATIONS], ids=str)
def test_margin_pursuit_takes_the_steps_of_the_paper(sample, change):
    small = None if change is None else replace(change, after=change.after / 5)
    # Small rows: with larger steps rounding errors would grow exponentially.
    task = Task(0.1 * sample.X[:50], sample.y[:50], 3, 0.1, 4, small)
    course = LEARNERS["margin pursuit"](task)
    np.testing.assert_allclose(course.coef, paper_steps(task), rtol=1e-8, atol=1e-10)


def test_interpretations_have_distinct_names():
    names = [str(interpretation) for interpretation in INTERPRETATIONS]
    assert len(set(names)) == len(INTERPRETATIONS) == 11


@pytest.mark.parametrize("learner", ["margin pursuit", "Pegasos"])
def test_paths_have_checkpoints_and_end_at_a_low_error(sample, learner):
    task = Task(sample.X, sample.y, 0, 1e-2, 10, None)
    course = LEARNERS[learner](task)
    n = len(sample.y)
    assert len(course.coef) == len(course.gradients) == 40
    assert course.gradients[0] == round(0.1 * n)
    assert course.gradients[-1] == 10 * n
    again = LEARNERS[learner](replace(task, penalty=1e-2))
    np.testing.assert_array_equal(course.coef, again.coef)
    assert np.any(course.coef != LEARNERS[learner](replace(task, trial=1)).coef)
    assert np.mean(sample.y_test * (sample.X_test @ course.coef[-1]) <= 0) < 0.1


def test_untuned_needs_no_scaling_of_columns():
    sample = draw_sample("breast_cancer", "none", 0)
    result = run_fit(Fit("breast_cancer", "none", 0, "untuned"), sample)
    assert result["test_error"][0] < 0.1
    # The result does not depend on the units of the columns.
    units = np.geomspace(1e-3, 1e3, sample.X.shape[1])
    other = replace(sample, X=sample.X * units, X_test=sample.X_test * units)
    again = run_fit(Fit("breast_cancer", "none", 0, "untuned"), other)
    assert again["test_error"] == result["test_error"]


# Stored results ---------------------------------------------------------------------------


def test_result_describes_the_margins_of_every_checkpoint(sample):
    fit = Fit("breast_cancer", "standard", 0, "Pegasos", 1e-2, 5)
    result = run_fit(fit, sample)
    coef = LEARNERS["Pegasos"](Task(sample.X, sample.y, 0, 1e-2, 5, None)).coef
    assert json.loads(json.dumps(result)) == result
    for k in (0, 17, 39):
        margins = sample.y * (sample.X @ coef[k])
        expected = {
            "train_error": np.mean(margins <= 0),
            "test_error": np.mean(sample.y_test * (sample.X_test @ coef[k]) <= 0),
            "mean": margins.mean(),
            "variance": margins.var(),
            "skewness": stats.skew(margins),
            "location": catoni_location(margins, 1.0),
        }
        for name, value in expected.items():
            assert result[name][k] == pytest.approx(value, rel=1e-5), name
        quantiles = [row[k] for row in result["quantiles"]]
        np.testing.assert_allclose(quantiles, np.quantile(margins, QUANTILES), rtol=1e-5)


def test_a_score_of_zero_predicts_minus_one(monkeypatch):
    class Zero:
        gradients = np.array([1])
        coef = np.zeros((1, 1))
        intercept = 0.0
        scale = np.ones(1)

    monkeypatch.setitem(LEARNERS, "zero", lambda task: Zero)
    y = np.array([-1.0, -1.0, -1.0, 1.0])
    result = run_fit(Fit("", "", 0, "zero"), Sample(np.ones((4, 1)), y, np.ones((4, 1)), y))
    assert result["train_error"] == result["test_error"] == [0.25]
    assert result["skewness"] == [0.0]


def test_trials_are_different_balanced_draws():
    first, second = (draw_sample("digits", "none", trial) for trial in (0, 1))
    assert first.y.sum() == first.y_test.sum() == second.y.sum() == 0
    assert np.any(first.X != second.X)


# The store --------------------------------------------------------------------------------------


def test_key_depends_on_configuration_data_and_code(monkeypatch):
    fit = Fit("breast_cancer", "standard", 0, "Pegasos", 1e-2, 5)
    others = [
        replace(fit, data="digits"),
        replace(fit, scaling="none"),
        replace(fit, trial=1),
        replace(fit, learner="margin pursuit"),
        replace(fit, penalty=1e-3),
        replace(fit, epochs=6),
        *(replace(fit, rescaling=reading) for reading in INTERPRETATIONS),
    ]
    keys = [key_of(each) for each in (fit, *others)]
    assert len(set(keys)) == len(keys)
    monkeypatch.setattr("marginpursuit.experiments._store._data_version", lambda name: "other")
    assert key_of(fit) != keys[0]
    monkeypatch.undo()
    monkeypatch.setattr("marginpursuit.experiments._store.code_version", lambda: "other")
    assert key_of(fit) != keys[0]
    monkeypatch.undo()
    assert key_of(fit) == keys[0]
    assert code_version().startswith("0.")


def test_store_accepts_rows_of_many_writers(tmp_path):
    store = Store(tmp_path / "new" / "rows.jsonl")
    assert store.rows() == {}
    rows = [{"key": f"{i}", "text": "x" * (i % 7) * 1000} for i in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.append, rows))
    assert store.rows() == {row["key"]: row for row in rows}


@pytest.mark.parametrize("left", [b'\n{"key":"b","val', b'\n{"key":"b"', b"\n[1]\n", b"\x00\xff"])
def test_store_ignores_incomplete_rows(tmp_path, left):
    store = Store(tmp_path / "rows.jsonl")
    store.append({"key": "a"})
    with store.path.open("ab") as file:
        file.write(left)
    assert list(store.rows()) == ["a"]
    store.append({"key": "c"})
    assert list(store.rows()) == ["a", "c"]


def test_first_row_of_a_key_counts(tmp_path):
    store = Store(tmp_path / "rows.jsonl")
    store.append({"key": "a", "value": 1})
    store.append({"key": "a", "value": 2})
    assert store.rows()["a"]["value"] == 1


# The runner -------------------------------------------------------------------------------------

FITS = [
    Fit("breast_cancer", "standard", trial, "Pegasos", penalty, 2)
    for trial in range(4)
    for penalty in (1e-3, 1e-2, 1e-1)
]


def test_runner_runs_missing_fits_only(tmp_path, monkeypatch):
    store = Store(tmp_path / "rows.jsonl")
    seen = []
    run_fits(FITS[:5], store, processes=1, progress=lambda *each: seen.append(each))
    assert seen[0] == (0, 5)
    assert seen[-1] == (5, 5)
    before = store.path.read_bytes()
    rows = run_fits(FITS, store, processes=1, progress=lambda *each: seen.append(each))
    assert (5, 12) in seen
    assert store.path.read_bytes().startswith(before)
    assert list(rows) == FITS
    assert all(row["fit"]["penalty"] == fit.penalty for fit, row in rows.items())
    monkeypatch.setattr("marginpursuit.experiments._runner.run_fit", None)  # must not be called
    assert run_fits(FITS, store, processes=1, progress=None) == rows


def test_failures_are_stored_and_not_repeated(tmp_path):
    store = Store(tmp_path / "rows.jsonl")
    wrong = Fit("breast_cancer", "standard", 0, "Pegasos", -1.0, 2)
    rows = run_fits([wrong, FITS[0]], store, processes=1, progress=None)
    assert "alpha" in rows[wrong]["error"]
    assert "result" in rows[FITS[0]]
    size = store.path.stat().st_size
    results = Results(run_fits([wrong, FITS[0]], store, processes=1, progress=None))
    assert store.path.stat().st_size == size
    assert list(results.failures) == [wrong]
    assert np.isnan(results.lowest(wrong)).all()
    assert results.best([wrong, FITS[0]]) == FITS[0]


def test_finished_fits_survive_an_interrupt(tmp_path, monkeypatch):
    store = Store(tmp_path / "rows.jsonl")
    calls = []

    def interrupted(fit, sample):
        calls.append(fit)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return run_fit(fit, sample)

    monkeypatch.setattr("marginpursuit.experiments._runner.run_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_fits(FITS, store, processes=1, progress=None)
    assert len(store.rows()) == 3


LONG = [Fit("breast_cancer", "standard", trial, "Pegasos", 1e-2, 300) for trial in range(100)]

SCRIPT = """
import sys
from pathlib import Path
from marginpursuit.experiments import Fit
from marginpursuit.experiments._runner import run_fits
from marginpursuit.experiments._store import Store

if __name__ == "__main__":
    fits = [Fit("breast_cancer", "standard", k, "Pegasos", 1e-2, 300) for k in range(100)]
    run_fits(fits, Store(Path(sys.argv[1])), processes=2, progress=None)
"""


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
def test_a_killed_run_resumes(tmp_path, sent):
    """After a kill or Ctrl-C no process remains, no finished fit is lost, and none is repeated."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    store = Store(tmp_path / "rows.jsonl")
    process = subprocess.Popen(
        [sys.executable, str(script), str(store.path)],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(store.rows()) >= 3 or process.poll() is not None)
        workers = children(process.pid)
        assert process.poll() is None, "it ended before the signal"
        if sent == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, sent)  # as a terminal does
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode != 0
    assert b"SpawnProcess" not in said, "workers must end silently"
    assert workers
    wait_until(lambda: not any(is_running(worker) for worker in workers), seconds=30)
    kept = store.rows()
    assert 3 <= len(kept) < len(LONG)
    with store.path.open("rb+") as file:  # an incomplete last row
        file.seek(-40, os.SEEK_END)
        file.truncate()
    whole = store.rows()
    assert len(whole) == len(kept) - 1
    run_fits(LONG, store, processes=1, progress=None)
    rows = store.rows()
    assert all(rows[key] == row for key, row in whole.items())
    lines = [line for line in store.path.read_bytes().split(b"\n") if line.endswith(b"}")]
    assert len(lines) == len(rows) == len(LONG)


# Results and verdicts ---------------------------------------------------------------------------


def made(**curves):
    """Rows of three trials with small differences around the given curves."""
    rows = {}
    for name, fields in curves.items():
        learner = "Pegasos" if name.startswith("theirs") else "margin pursuit"
        penalty = 1e-2 if "best" in name else 1e-5
        reading = Rescaling(after=1.0) if name == "ours_rescaled" else None
        for trial in range(3):
            fit = Fit("d", "standard", trial, learner, penalty, 4, reading)
            result = {
                key: [v + 1e-4 * (trial - 1) for v in values] for key, values in fields.items()
            }
            rows[fit] = {"result": result | {"gradients": [10, 20, 30, 40]}}
    return Results(rows), *(fit for fit in rows if fit.trial == 0)


def test_lowest_is_at_the_minimum_of_the_mean_curve():
    results, ours = made(ours_best={"test_error": [0.4, 0.2, 0.3, 0.25]})
    np.testing.assert_allclose(results.lowest(ours), [0.1999, 0.2, 0.2001])
    assert percent(results.lowest(ours)) == "20.0 ± 0.0 %"


def test_lowest_after_a_change_only():
    results, ours = made(ours_rescaled={"test_error": [0.1, 0.2, 0.3, 0.25]})
    assert results.switch(ours) == 10
    assert results.lowest(ours).mean() == pytest.approx(0.2)


def test_best_is_chosen_by_the_lowest_error():
    results, good, bad = made(
        ours_best={"test_error": [0.4, 0.2, 0.3, 0.3]}, ours={"test_error": [0.25] * 4}
    )
    assert results.best([bad, good]) == good


@pytest.mark.parametrize(
    ("claim", "ours", "theirs", "expected"),
    [
        ("competitive", {"test_error": [0.3, 0.209]}, {"test_error": [0.2, 0.3]}, True),
        ("competitive", {"test_error": [0.3, 0.22]}, {"test_error": [0.2, 0.3]}, False),
        ("symmetric", {"skewness": [9, -0.1]}, {"skewness": [0, 0.5]}, True),
        ("symmetric", {"skewness": [0, -0.5]}, {"skewness": [0, 0.1]}, False),
        ("concentrated", {"variance": [9, 1]}, {"variance": [0, 2]}, True),
        ("concentrated", {"variance": [9, 2]}, {"variance": [0, 2]}, False),
        (
            "relatively_concentrated",
            {"variance": [1, 1], "mean": [1, 1]},
            {"variance": [4, 4], "mean": [9, 9]},
            False,
        ),
        ("rising", {"location": [0, 0.5, 0.49, 1]}, {"location": [0]}, True),
        ("rising", {"location": [0, 0.5, 0.3, 1]}, {"location": [0]}, False),
        ("peaking", {"location": [0]}, {"location": [5, 3, 2, 1]}, True),
        ("peaking", {"location": [0]}, {"location": [1, 2, 3, 5]}, False),
        ("peaking", {"location": [0]}, {"location": [5, 4.9, 4.8, 4.7]}, False),
    ],
)
def test_claims_of_naive_scaling(claim, ours, theirs, expected):
    pad = lambda fields: {k: (list(v) + [v[-1]] * 4)[:4] for k, v in fields.items()}  # noqa: E731
    results, *pair = made(ours_best=pad(ours), theirs_best=pad(theirs))
    found, text = getattr(naive_scaling, claim)(results, *pair)
    assert found is expected
    assert text


@pytest.mark.parametrize(
    ("claim", "after", "expected"),
    [
        ("accelerates", [0.3, 0.2, 0.2], True),
        ("accelerates", [0.45, 0.4, 0.4], False),
        ("catches_up", [0.3, 0.2, 0.109], True),
        ("catches_up", [0.3, 0.2, 0.12], False),
        ("matches", [0.3, 0.2, 0.159], True),
        ("matches", [0.3, 0.2, 0.17], False),
    ],
)
def test_claims_of_rescaling(claim, after, expected):
    results, fit, *_ = made(
        ours_rescaled={"test_error": [0.05, *after]},
        ours={"test_error": [0.4, 0.4, 0.4, 0.4]},
        ours_best={"test_error": [0.4, 0.2, 0.1, 0.2]},
        theirs_best={"test_error": [0.4, 0.15, 0.2, 0.2]},
    )
    setting = Setting(("d",), ("standard",), (1e-2,), 3, 4)
    found, _ = getattr(one_time_rescaling, claim)(setting, results, fit)
    assert found is expected


def test_below_means_by_two_standard_errors():
    b = np.array([1.0, 2.0, 3.0])
    assert is_below(b - [0.9, 1.0, 1.1], b)  # paired: the variance of b is irrelevant
    assert not is_below(b - [-1.0, 0.1, 1.2], b)
    assert not is_below(b, b)


def test_verdicts_are_of_all_some_or_none():
    yes, no = (True, "a"), (False, "b")
    assert Verdict.of("c", "r", "x", {"d": yes, "e": yes}).verdict == "holds"
    assert Verdict.of("c", "r", "x", {"d": yes, "e": no}).verdict == "holds in part"
    assert Verdict.of("c", "r", "x", {"d": no, "e": no}).verdict == "does not hold"
    assert Verdict.of("c", "r", "x", {"d": yes, "e": no}).held_on == ["d"]
    assert Verdict.of("c", "r", "x", {"d": yes, "e": no}).evidence == {"d": "a", "e": "b"}


def test_e1_e2_cubics_vanish_at_the_minimiser():
    for eta in (0.2, 0.35, 0.65, 0.8):
        margin = EXPERIMENTS["cubics"].single_margin
        root = optimal_score(eta, margin)
        right = cubic_conditions.single_cube(eta, margin)
        assert abs(np.polyval(right, root)) < 1e-9
        printed = cubic_conditions.single_cube(eta, margin, printed=True)
        assert abs(np.polyval(printed, root)) > 1
        double = cubic_conditions.double_cube(eta, 0.5)
        assert abs(np.polyval(double, optimal_score(eta, 0.5))) < 1e-9
        assert np.all(np.isreal(np.roots(double)))


# Reproduction ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    pytest.importorskip("matplotlib", reason="figures need the extra plot")
    return reproduce(setting=SMALL, out=tmp_path_factory.mktemp("out"), processes=1)


def test_reproduction_has_all_parts(found):
    assert not found.not_run
    assert not found.results.failures
    assert {"figure1", "figure2", "cubics", "untuned", "figure5-standard"} < set(found.figures)
    assert "figure3-breast_cancer-standard" in found.figures
    for name in found.figures:
        content = (found.folder / f"{name}.svg").read_bytes()
        assert 1000 < len(content) < 200_000
    assert len(found.tables) == 6
    claims = {verdict.claim for verdict in found.verdicts}
    assert len(claims) == 6 + 6 + 4 + 2 + 2 + 1
    assert all(v.verdict in ("holds", "holds in part", "does not hold") for v in found.verdicts)
    assert found.text() == (found.folder / "results.md").read_text()


def test_margin_pursuit_is_above_pegasos_on_the_same_axes(found):
    axes = found.figures["figure3-breast_cancer-standard"].axes
    assert len(axes) == 8
    assert axes[0].get_ylabel().startswith("margin pursuit")
    assert axes[4].get_ylabel().startswith("Pegasos")
    for above, below in zip(axes[:4], axes[4:], strict=True):
        assert above.get_ylim() == below.get_ylim()
        assert above.get_xlim() == below.get_xlim()
    fit = naive_scaling.best_fit(
        found.setting, found.results, "breast_cancer", "standard", "margin pursuit"
    )
    drawn = axes[0].lines[1].get_ydata()
    np.testing.assert_array_equal(drawn, found.results.trials(fit, "test_error").mean(axis=0))


def test_a_second_reproduction_uses_the_store(found):
    store = found.folder / "results.jsonl"
    before = store.read_bytes()
    again = reproduce(["untuned"], setting=SMALL, out=found.folder, processes=1)
    assert store.read_bytes() == before
    assert list(again.figures) == ["untuned"]
    assert again.tables == [t for t in found.tables if t.title == again.tables[0].title]


def test_missing_data_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("MARGINPURSUIT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    setting = replace(SMALL, datasets=("sido", "breast_cancer"))
    found = reproduce(["untuned"], setting=setting, out=tmp_path, processes=1, fetch=False)
    assert list(found.not_run) == ["sido"]
    assert found.setting.datasets == ["breast_cancer"]
    assert all("Not run: sido." in table.caption for table in found.tables)
    assert "Not run: sido." in found.text()
    with pytest.raises(DatasetError, match="no data set is available"):
        reproduce(setting=replace(SMALL, datasets=("sido",)), out=tmp_path, fetch=False)


def test_unknown_experiments_are_rejected():
    with pytest.raises(ValueError, match=r"among \['figure1', .*; got \['figure 9'\]"):
        reproduce(["figure 9"])


def test_the_full_setting_is_that_of_the_paper():
    assert FULL.datasets == ("cov", "digit5", "protein", "sido")
    assert FULL.trials == 25
    np.testing.assert_allclose(FULL.penalties, [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1])
    assert FULL.epochs >= 30
    # With both penalties, except on unscaled columns; Pegasos has one.
    assert len(EXPERIMENTS["figures3-4"].plan(FULL)) == 5 * (4 * 2 + 3) * 25 * 7
    assert len(EXPERIMENTS["figures3-4"].plan(QUICK)) == 2 * (2 * 2 + 2) * 3 * 3
