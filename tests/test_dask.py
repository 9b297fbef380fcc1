"""Dask clusters of real processes: the same fit as in memory, whatever happens to a worker."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import StratifiedKFold

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    PegasosClassifier,
)
from marginpursuit.blocks import as_blocks
from marginpursuit.selection.policy import SelectionPolicy

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N_BLOCKS = 6
STATISTICS = ("location", "mean", "variance", "skewness", "quantiles")


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.worker.daemon": True}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def cancer():
    return load_breast_cancer(return_X_y=True)


def make_rows(k):
    return np.random.default_rng(k).normal(size=(500, 8)) + k


def noted_rows(k, log, seconds=0.0):
    """Rows whose every load takes its time and is noted in a file."""
    with open(log, "a") as file:
        file.write(f"{k} {os.getpid()}\n")
    time.sleep(seconds)
    return make_rows(k)


def lazy(load, n_blocks=N_BLOCKS, shape=(500, 8)):
    """A Dask array whose blocks are made by load(k)."""
    parts = [dask.delayed(load, pure=True)(k) for k in range(n_blocks)]
    return da.concatenate([da.from_delayed(part, shape, dtype=float) for part in parts])


ROWS = np.concatenate([make_rows(k) for k in range(N_BLOCKS)])
LABELS = (ROWS[:, 0] - ROWS[:, 1] + np.random.default_rng(9).normal(size=len(ROWS)) > 0).astype(int)


@pytest.fixture(scope="module")
def expected(client):
    """The fit on Dask that nothing happens to; equal to the fit in memory."""
    fit = MarginPursuitClassifier().fit(lazy(make_rows), LABELS)
    assert_same(fit, MarginPursuitClassifier().fit(ROWS, LABELS))
    return fit


def assert_same(ours, expected, rtol=1e-12):
    size = np.abs(expected.coef_).max()
    assert_allclose(ours.coef_, expected.coef_, rtol=rtol, atol=rtol * size)
    assert_allclose(ours.intercept_, expected.intercept_, rtol=rtol, atol=rtol)
    assert ours.n_iter_ == expected.n_iter_
    for name in STATISTICS:
        found, wanted = (getattr(fit.margin_statistics_, name) for fit in (ours, expected))
        assert_allclose(found, wanted, rtol=10 * rtol, atol=10 * rtol)


def assert_identical(ours, expected):
    assert_array_equal(ours.coef_, expected.coef_)
    assert_array_equal(ours.intercept_, expected.intercept_)
    for name in STATISTICS:
        same = (getattr(fit.margin_statistics_, name) for fit in (ours, expected))
        assert_array_equal(*same)


@pytest.mark.parametrize("kind", ["recipe", "held", "derived"])
def test_the_fit_is_that_in_memory(client, kind):
    X, y = cancer()
    rows = da.from_array(X, chunks=(100, 7))
    if kind != "recipe":
        rows = rows.persist()
    if kind == "derived":
        rows = 2 * rows / 2
    assert_same(MarginPursuitClassifier().fit(rows, y), MarginPursuitClassifier().fit(X, y))


def test_labels_and_weights_on_dask(client):
    X, y = cancer()
    y, weights = np.array(["benign", "malignant"])[y], np.random.default_rng(0).random(len(y))
    expected = MarginPursuitClassifier(class_weight="balanced").fit(X, y, weights)
    lazily = [da.from_array(a, chunks=150) for a in (X, y, weights)]
    ours = MarginPursuitClassifier(class_weight="balanced").fit(*lazily)
    assert_same(ours, expected)
    assert_array_equal(ours.predict(lazily[0]).compute(), expected.predict(X))


def test_without_a_cluster_blocks_are_read_here():
    X, y = cancer()
    with dask.config.set(scheduler="synchronous"):
        rows = da.from_array(X, chunks=(100, 30))
        assert_same(MarginPursuitClassifier().fit(rows, y), MarginPursuitClassifier().fit(X, y))


def test_unknown_chunk_sizes_empty_blocks_and_classes_missing_from_a_block(client):
    X, y = cancer()
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]  # most blocks have one class
    rows, labels = da.from_array(X, chunks=(100, 30)), da.from_array(y, chunks=100)
    wanted = (np.arange(len(y)) < 150) | (np.arange(len(y)) >= 300)
    lazily = da.from_array(wanted, chunks=100)
    rows, labels = rows[lazily], labels[lazily]  # block 2 of 6 is empty
    assert np.isnan(rows.shape[0])
    ours = MarginPursuitClassifier().fit(rows, labels)
    assert_same(ours, MarginPursuitClassifier().fit(X[wanted], y[wanted]))
    assert_array_equal(ours.predict(rows).compute(), ours.predict(X[wanted]))


def test_data_frames(client):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    X, y = cancer()
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    expected = MarginPursuitClassifier().fit(X, y)
    for rows in (frame, frame.values):
        ours = MarginPursuitClassifier().fit(rows, y)
        assert_same(ours, expected)
        assert_allclose(ours.decision_function(rows).compute(), ours.decision_function(X))


def test_predictions_are_lazy(client, tmp_path, expected):
    log = tmp_path / "loads"
    rows = lazy(partial(noted_rows, log=str(log)))
    made = [getattr(expected, name)(rows) for name in ("predict", "decision_function")]
    made.append(expected.predict_proba(rows))
    assert not log.exists()
    assert [m.shape for m in made] == [(3000,), (3000,), (3000, 2)]
    classes, scores, chances = dask.compute(*made)
    assert_array_equal(classes, expected.predict(ROWS))
    assert classes.dtype == made[0].dtype
    assert_allclose(scores, expected.decision_function(ROWS), rtol=1e-13)
    assert_allclose(chances, expected.predict_proba(ROWS), rtol=1e-12)


def test_predictions_of_several_classes_and_wrong_columns(client):
    X, y = load_digits(return_X_y=True)
    for model in (MarginPursuitClassifier(), MarginPursuitClassifierCV(cv=2, scales=[1.0])):
        model.fit(X, y)
        rows = da.from_array(X, chunks=(600, 20))
        assert model.decision_function(rows).shape == (len(y), 10)
        assert_allclose(model.predict_proba(rows).compute(), model.predict_proba(X), atol=1e-12)
        with pytest.raises(ValueError, match="must have 64 features"):
            model.predict(rows[:, :63])
    with pytest.raises(TypeError, match="needs X in memory; got DaskBlocks"):
        PegasosClassifier().fit(rows, y)


@pytest.mark.parametrize("held", [False, True])
def test_some_rows(client, held):
    rows = lazy(make_rows)
    blocks = as_blocks(rows.persist() if held else rows)
    assert_array_equal(blocks.load(2), ROWS[1000:1500])
    wanted = np.arange(3, 2200, 50)
    some = blocks.map(np.negative).take(wanted)
    assert_array_equal(some.gather(), -ROWS[wanted])
    assert_array_equal(some.take(np.array([1, 30])).gather(), -ROWS[wanted[[1, 30]]])


def test_selection(client, monkeypatch):
    policy = SelectionPolicy(min_rung_rows=500)
    monkeypatch.setattr(MarginPursuitClassifierCV, "_policy", policy)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    options = {"scales": [2.0, 0.5], "alphas": [1e2, 1e-3], "cv": folds}
    expected = MarginPursuitClassifierCV(**options).fit(ROWS, LABELS)
    assert min(expected.cv_results_["n_resources"]) == 750
    ours = MarginPursuitClassifierCV(**options)
    ours.fit(lazy(make_rows), da.from_array(LABELS, chunks=500))
    assert ours.best_params_ == expected.best_params_
    for name in ("mean_test_score", "n_resources"):
        assert_allclose(ours.cv_results_[name], expected.cv_results_[name], rtol=1e-12)
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-4)
    with pytest.raises(ValueError, match=r"NaN.*column 2, row 17 of block 3"):
        ours.fit(lazy(partial(broken_rows, how="nan")), LABELS)


def test_a_stream_takes_blocks_one_after_another(client):
    ours, expected = MarginPursuitClassifier(), MarginPursuitClassifier()
    ours.partial_fit(lazy(make_rows), da.from_array(LABELS, chunks=700), classes=[0, 1])
    for k in range(N_BLOCKS):
        rows = slice(500 * k, 500 * (k + 1))
        expected.partial_fit(ROWS[rows], LABELS[rows], classes=[0, 1])
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-9)
    with pytest.raises(ValueError, match=r"NaN.*column 2, row 17 of block 3"):
        ours.partial_fit(lazy(partial(broken_rows, how="nan")), LABELS)


def test_one_task_a_block_and_round_and_no_rows_in_it(client, tmp_path):
    log = tmp_path / "loads"
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_log.clear())
    fit = MarginPursuitClassifier().fit(lazy(partial(noted_rows, log=str(log))), LABELS)
    assert (
        client.run_on_scheduler(partial(count_tasks, name="_answer"))
        == N_BLOCKS * fit.n_passes_
        == len(log.read_text().splitlines())
    )


def count_tasks(dask_scheduler, name):
    return sum(
        str(story[0]).startswith(name) and story[2] == "memory"
        for story in dask_scheduler.transition_log
    )


@pytest.mark.parametrize("n_columns", [20, 300])
def test_a_fit_takes_at_most_twelve_rounds(client, n_columns):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, n_columns)) @ rng.normal(size=(n_columns, n_columns))
    X = np.exp(0.3 * X / X.std())  # correlated, with tails
    score = X @ rng.normal(size=n_columns)
    y = score - np.median(score) + 0.5 * score.std() * rng.normal(size=len(X)) > 0
    blocks = as_blocks(da.from_array(X, chunks=(1000, -1)))
    fit = MarginPursuitClassifier().fit(blocks, da.from_array(y))
    assert blocks.n_rounds > fit.n_passes_  # margins are asked again
    assert 1 + blocks.n_rounds <= 12  # a round for y, one for each read, and those for the margins


def test_results_do_not_depend_on_the_schedule(client, expected):
    def at_leisure(k, seed):
        time.sleep(0.02 * np.random.default_rng([seed, k]).random())
        return make_rows(k)

    for seed in range(2):
        rows = lazy(partial(at_leisure, seed=seed))
        assert_identical(MarginPursuitClassifier().fit(rows, LABELS), expected)


def test_results_are_added_up_in_a_tree(client, monkeypatch, expected):
    for name in ("_FEWEST_SUMMANDS", "_MOST_SUMMANDS"):
        monkeypatch.setattr(f"marginpursuit.blocks.dask.{name}", 2)
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_log.clear())
    fit = MarginPursuitClassifier().fit(lazy(make_rows), LABELS)
    assert_same(fit, expected)
    n_sums = client.run_on_scheduler(partial(count_tasks, name="_sum"))
    assert n_sums >= 6 * fit.n_passes_  # of six blocks three, two and one


class During:
    """Does something to the workers in the middle of a fit, when some blocks have been read."""

    def __init__(self, client, log, action, loads=2 * N_BLOCKS + 2):
        self._client, self._log, self._action, self._loads = client, log, action, loads
        self._thread = threading.Thread(target=self._run)
        self.acted = False

    def _run(self):
        while not self._log.exists() or len(self._log.read_text().splitlines()) < self._loads:
            time.sleep(0.01)
        self._action(list(self._client.run(os.getpid).values()))
        self.acted = True

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._thread.join(30)
        assert self.acted


def kill_one(pids):
    os.kill(pids[0], signal.SIGKILL)


def kill_both(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def stop_one(pids):
    os.kill(pids[0], signal.SIGSTOP)
    time.sleep(2)
    os.kill(pids[0], signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "reads"), [(stop_one, 2), (kill_one, 2), (kill_both, 2), (kill_one, "all")]
)
def test_what_happens_to_workers_changes_nothing(client, expected, tmp_path, action, reads):
    """After all reads the margins are held by the workers, and are made again by others."""
    client.wait_for_workers(2, timeout=30)
    log = tmp_path / "loads"
    rows = lazy(partial(noted_rows, log=str(log), seconds=0.05))
    loads = N_BLOCKS * expected.n_passes_ if reads == "all" else N_BLOCKS * reads + 2
    with During(client, log, action, loads):
        fit = MarginPursuitClassifier().fit(rows, LABELS)
    assert_identical(fit, expected)
    client.wait_for_workers(2, timeout=30)


def broken_rows(k, how):
    rows = make_rows(k)
    if k != 3:
        return rows
    if how == "raises":
        raise OSError("no such disk")
    if how == "nan":
        rows[17, 2] = np.nan
    return {
        "columns": rows[:, :7],
        "rows": rows[:-1],
        "text": rows.astype(str),
        "float32": rows.astype(np.float32),
    }.get(how, rows)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "block 3 could not be loaded: .*no such disk"),
        ("nan", "NaN.*column 2, row 17 of block 3"),
        ("columns", r"block 3 must have shape \(500, 8\).*got \(500, 7\)"),
        ("rows", r"block 3 must have shape \(500, 8\).*got \(499, 8\)"),
        ("text", "block 3 must hold real numbers; got dtype <U"),
    ],
)
def test_a_block_that_is_wrong_is_named(client, how, message):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        MarginPursuitClassifier().fit(lazy(partial(broken_rows, how=how)), LABELS)


def test_blocks_may_differ_in_dtype(client):
    rows = ROWS.copy()
    rows[1500:2000] = rows[1500:2000].astype(np.float32)
    ours = MarginPursuitClassifier().fit(lazy(partial(broken_rows, how="float32")), LABELS)
    assert_same(ours, MarginPursuitClassifier().fit(rows, LABELS))


def stuck_rows(k, until):
    while not until.exists():
        time.sleep(0.05)
    return make_rows(k)


def test_a_fit_in_which_nothing_happens_ends_with_an_error(client, tmp_path):
    """Workers are there, and busy for ever; a fit that is slow but moves is left alone."""
    until, log = tmp_path / "until", tmp_path / "loads"
    with dask.config.set({"marginpursuit.no-progress-timeout": "3 s"}):
        slow = lazy(partial(noted_rows, log=str(log), seconds=0.4))
        MarginPursuitClassifier(scale=1e9).fit(slow, LABELS)  # each round takes 1.2 s or more
        with pytest.raises(TimeoutError, match=r"no task .* for 3 s .* with 2 workers"):
            MarginPursuitClassifier().fit(lazy(partial(stuck_rows, until=until)), LABELS)
    until.touch()  # the workers are needed


def test_sparse_blocks(client):
    X, y = load_digits(return_X_y=True)
    X, y = sparse.csr_array(X), y > 4
    rows = da.from_array(X.toarray(), chunks=(500, 64)).map_blocks(sparse.csr_matrix)
    assert sparse.issparse(rows._meta)
    expected = MarginPursuitClassifier().fit(X, y)
    for held in (rows, rows.persist()):
        assert_same(MarginPursuitClassifier().fit(held, y), expected)
    assert_array_equal(expected.predict(rows).compute(), expected.predict(X))
    dense = da.from_array(X.toarray(), chunks=(500, 64))
    undeclared = dense.map_blocks(sparse.csr_matrix, meta=np.empty((0, 0)))
    with pytest.raises(TypeError, match=r"block \d must be dense .* got sparse"):
        MarginPursuitClassifier().fit(undeclared, y)


def test_columns_without_finite_squares(client):
    factors = np.where(np.arange(8) == 3, 1e200, 1.0)
    ours = MarginPursuitClassifier().fit(lazy(make_rows) * factors, LABELS)
    expected = MarginPursuitClassifier().fit(ROWS * factors, LABELS)
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-10)


@pytest.mark.slow
def test_a_scheduler_at_an_address_and_its_loss(tmp_path, expected):
    """The fit works over TCP, and ends with an error soon once workers or scheduler are gone."""
    settings = {"distributed.comm.timeouts.connect": "2s", "marginpursuit.no-worker-timeout": "2s"}
    where, log = tmp_path / "scheduler.json", tmp_path / "loads"
    dask_command = [sys.executable, "-m", "dask"]
    options = ["--scheduler-file", str(where), "--no-dashboard"]
    how = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": {**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    }
    scheduler = subprocess.Popen(
        [*dask_command, "scheduler", "--host", "127.0.0.1", "--port", "0", *options], **how
    )
    worker = subprocess.Popen(
        [*dask_command, "worker", "--no-nanny", "--nthreads", "1", *options], **how
    )
    try:
        with distributed.Client(scheduler_file=str(where), timeout=30) as client:
            client.wait_for_workers(1, timeout=30)
            address = client.scheduler.address
        with (
            dask.config.set(settings),
            distributed.Client(address) as client,
        ):
            assert_identical(MarginPursuitClassifier().fit(lazy(make_rows), LABELS), expected)
            rows = lazy(partial(noted_rows, log=str(log), seconds=0.05))
            begin = time.monotonic()
            with (
                During(client, log, lambda _: worker.kill()),
                pytest.raises(ConnectionError, match="no worker for 2 s"),
            ):
                MarginPursuitClassifier().fit(rows, LABELS)
            threading.Timer(1.0, scheduler.kill).start()
            with pytest.raises(ConnectionError, match="scheduler was lost"):
                MarginPursuitClassifier().fit(rows, LABELS)
            assert time.monotonic() - begin < 30
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait(10)


def test_bytes_sent_are_those_of_the_formula(client, monkeypatch):
    """The formulas of docs/scaling.md, against everything that goes into a task or comes back."""
    cloudpickle = pytest.importorskip("cloudpickle")
    from marginpursuit.blocks import dask as module
    from marginpursuit.experiments.scaling import Fit, cost

    moved = {"out": 0, "back": 0}
    ask, result = module.DaskBlocks._map, module.DaskBlocks._result

    class Piece(module._Piece):
        def __init__(self, vector):
            super().__init__(vector)
            moved["out"] += self._values.nbytes

    def counted_ask(self, task, *args):
        if task is module._answer:  # what is placed is counted as a piece
            moved["out"] += sum(
                len(cloudpickle.dumps(sent)) for sent in zip(*args[:2], strict=True)
            )
        return ask(self, task, *args)

    def counted_result(self, future):
        answer = result(self, future)
        moved["back"] += len(cloudpickle.dumps(answer))
        return answer

    monkeypatch.setattr(module, "_Piece", Piece)
    monkeypatch.setattr(module.DaskBlocks, "_map", counted_ask)
    monkeypatch.setattr(module.DaskBlocks, "_result", counted_result)
    blocks = as_blocks(lazy(make_rows))
    model = MarginPursuitClassifier(scale=1.0).fit(blocks, LABELS)
    fit = Fit(3000, 8, item_bytes=8, block_bytes=32_000, sweeps=model.n_passes_ - 2)
    assert fit.n_blocks == N_BLOCKS
    assert cost(fit, 0).out < moved["out"] < cost(fit, 8192).out
    assert 0.8 * cost(fit).back < moved["back"] < 1.2 * cost(fit).back
    assert 1 + blocks.n_rounds == cost(fit).rounds  # one of labels
