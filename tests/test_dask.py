"""Dask clusters of real processes: fits equal to those in memory, also if workers are lost."""

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
cloudpickle = pytest.importorskip("cloudpickle")

from marginpursuit.blocks import dask as dask_blocks  # noqa: E402
from marginpursuit.blocks._dask_client import (  # noqa: E402
    DaskPolicy,
    StallDetector,
    TaskClient,
)

# One solver for rows in memory and elsewhere: two solvers differ by their tolerance.
classifier = partial(MarginPursuitClassifier, solver="gram")
published = partial(MarginPursuitClassifier.as_published, solver="gram")

N_BLOCKS = 6
STATISTICS = ("location", "mean", "variance", "skewness", "quantiles")


@pytest.fixture(scope="module")
def client():
    # The cluster gives up a killed worker whose successor has not registered within this time (15 s
    # by default): next to other tests its imports may take as long.
    timeout = {"distributed.deploy.lost-worker-timeout": "120 s"}
    with (
        dask.config.set({"distributed.worker.daemon": True} | timeout),
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


def logged_rows(k, log, seconds=0.0):
    """Return rows after a delay; every load is logged in a file."""
    with open(log, "a") as file:
        file.write(f"{k} {os.getpid()}\n")
    time.sleep(seconds)
    return make_rows(k)


def lazy(load, n_blocks=N_BLOCKS, shape=(500, 8)):
    """Return a Dask array whose blocks are load(k)."""
    parts = [dask.delayed(load, pure=True)(k) for k in range(n_blocks)]
    return da.concatenate([da.from_delayed(part, shape, dtype=float) for part in parts])


ROWS = np.concatenate([make_rows(k) for k in range(N_BLOCKS)])
LABELS = (ROWS[:, 0] - ROWS[:, 1] + np.random.default_rng(9).normal(size=len(ROWS)) > 0).astype(int)


@pytest.fixture(scope="module")
def expected(client):
    """The undisturbed fit on Dask; equal to the fit in memory."""
    fit = classifier().fit(lazy(make_rows), LABELS)
    assert_same(fit, classifier().fit(ROWS, LABELS))
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


@pytest.mark.parametrize("kind", ["graph", "persisted", "derived"])
def test_fit_equals_the_fit_in_memory(client, kind):
    X, y = cancer()
    rows = da.from_array(X, chunks=(100, 7))
    if kind != "graph":
        rows = rows.persist()
    if kind == "derived":
        rows = 2 * rows / 2
    assert_same(classifier().fit(rows, y), classifier().fit(X, y))


def test_labels_and_weights_on_dask(client):
    X, y = cancer()
    y, weights = np.array(["benign", "malignant"])[y], np.random.default_rng(0).random(len(y))
    expected = classifier(class_weight="balanced").fit(X, y, weights)
    lazily = [da.from_array(a, chunks=150) for a in (X, y, weights)]
    ours = classifier(class_weight="balanced").fit(*lazily)
    assert_same(ours, expected)
    assert_array_equal(ours.predict(lazily[0]).compute(), expected.predict(X))


def test_without_a_client_blocks_are_loaded_in_this_process():
    X, y = cancer()
    with dask.config.set(scheduler="synchronous"):
        rows = da.from_array(X, chunks=(100, 30))
        assert_same(classifier().fit(rows, y), classifier().fit(X, y))


def test_unknown_chunk_sizes_empty_blocks_and_blocks_of_one_class(client):
    X, y = cancer()
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]  # most blocks have one class
    rows, labels = da.from_array(X, chunks=(100, 30)), da.from_array(y, chunks=100)
    wanted = (np.arange(len(y)) < 150) | (np.arange(len(y)) >= 300)
    lazily = da.from_array(wanted, chunks=100)
    rows, labels = rows[lazily], labels[lazily]  # block 2 of 6 is empty
    assert np.isnan(rows.shape[0])
    ours = classifier().fit(rows, labels)
    assert_same(ours, classifier().fit(X[wanted], y[wanted]))
    assert_array_equal(ours.predict(rows).compute(), ours.predict(X[wanted]))


def test_data_frames(client):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    X, y = cancer()
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    expected = classifier().fit(X, y)
    for rows in (frame, frame.values):
        ours = classifier().fit(rows, y)
        assert_same(ours, expected)
        assert_allclose(ours.decision_function(rows).compute(), ours.decision_function(X))


def test_predictions_are_lazy(client, tmp_path, expected):
    log = tmp_path / "loads"
    rows = lazy(partial(logged_rows, log=str(log)))
    lazy_results = [getattr(expected, name)(rows) for name in ("predict", "decision_function")]
    lazy_results.append(expected.predict_proba(rows))
    assert not log.exists()
    assert [array.shape for array in lazy_results] == [(3000,), (3000,), (3000, 2)]
    classes, scores, probabilities = dask.compute(*lazy_results)
    assert_array_equal(classes, expected.predict(ROWS))
    assert classes.dtype == lazy_results[0].dtype
    assert_allclose(scores, expected.decision_function(ROWS), rtol=1e-13)
    assert_allclose(probabilities, expected.predict_proba(ROWS), rtol=1e-12)


def test_predictions_of_several_classes_and_wrong_columns(client):
    X, y = load_digits(return_X_y=True)
    for model in (classifier(), MarginPursuitClassifierCV(cv=2, scales=[1.0])):
        model.fit(X, y)
        rows = da.from_array(X, chunks=(600, 20))
        assert model.decision_function(rows).shape == (len(y), 10)
        assert_allclose(model.predict_proba(rows).compute(), model.predict_proba(X), atol=1e-12)
        with pytest.raises(ValueError, match="must have 64 features"):
            model.predict(rows[:, :63])
    with pytest.raises(TypeError, match="needs X in memory; got DaskBlocks"):
        PegasosClassifier().fit(rows, y)


@pytest.mark.parametrize("is_persisted", [False, True])
def test_subset_of_rows(client, is_persisted):
    rows = lazy(make_rows)
    blocks = as_blocks(rows.persist() if is_persisted else rows)
    assert_array_equal(blocks.load(2), ROWS[1000:1500])
    wanted = np.arange(3, 2200, 50)
    subset = blocks.map(np.negative).take(wanted)
    assert_array_equal(subset.gather(), -ROWS[wanted])
    assert_array_equal(subset.take(np.array([1, 30])).gather(), -ROWS[wanted[[1, 30]]])


def test_selection(client, monkeypatch):
    policy = SelectionPolicy(min_rung_rows=500)
    monkeypatch.setattr(MarginPursuitClassifierCV, "_policy", policy)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    # One solver for rows in memory and in blocks: two solvers differ by their tolerance.
    options = {"scales": [2.0, 0.5], "alphas": [1e2, 1e-3], "cv": folds, "solver": "gram"}
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


def test_partial_fit_uses_blocks_as_batches(client):
    ours, expected = classifier(), classifier()
    ours.partial_fit(lazy(make_rows), da.from_array(LABELS, chunks=700), classes=[0, 1])
    for k in range(N_BLOCKS):
        rows = slice(500 * k, 500 * (k + 1))
        expected.partial_fit(ROWS[rows], LABELS[rows], classes=[0, 1])
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-9)
    with pytest.raises(ValueError, match=r"NaN.*column 2, row 17 of block 3"):
        ours.partial_fit(lazy(partial(broken_rows, how="nan")), LABELS)


def test_one_task_per_block_and_pass(client, tmp_path):
    log = tmp_path / "loads"
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_log.clear())
    fit = classifier().fit(lazy(partial(logged_rows, log=str(log))), LABELS)
    assert (
        client.run_on_scheduler(partial(count_tasks, name="apply_to_block"))
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
    fit = published().fit(blocks, da.from_array(y))
    assert blocks.n_rounds > fit.n_passes_  # margins take several rounds
    assert 1 + blocks.n_rounds <= 12  # one for y, one per pass, those of margins


def test_results_do_not_depend_on_the_schedule(client, expected):
    def delayed_rows(k, seed):
        time.sleep(0.02 * np.random.default_rng([seed, k]).random())
        return make_rows(k)

    for seed in range(2):
        rows = lazy(partial(delayed_rows, seed=seed))
        assert_identical(classifier().fit(rows, LABELS), expected)


def test_results_are_summed_by_a_tree_reduction(client):
    blocks = dask_blocks.from_dask(lazy(make_rows), DaskPolicy(min_summands=2, max_summands=2))
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_log.clear())
    fit = published().fit(blocks, LABELS)
    assert_same(fit, published().fit(ROWS, LABELS))
    n_sums = client.run_on_scheduler(partial(count_tasks, name="sum_results"))
    assert n_sums >= 6 * fit.n_passes_  # three, two and one sums of six blocks


class During:
    """Runs an action on the process ids of the workers after a number of block loads."""

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
    ("action", "passes"), [(stop_one, 2), (kill_one, 2), (kill_both, 2), (kill_one, "all")]
)
def test_lost_workers_leave_the_fit_unchanged(client, expected, tmp_path, action, passes):
    """After all passes the workers persist the margins; Dask recomputes those of a lost worker."""
    client.wait_for_workers(2, timeout=100)
    log = tmp_path / "loads"
    rows = lazy(partial(logged_rows, log=str(log), seconds=0.05))
    loads = N_BLOCKS * expected.n_passes_ if passes == "all" else N_BLOCKS * passes + 2
    with During(client, log, action, loads):
        fit = classifier().fit(rows, LABELS)
    assert_identical(fit, expected)
    client.wait_for_workers(2, timeout=100)


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
        ("text", "block 3 must contain real numbers; got dtype <U"),
    ],
)
def test_errors_name_the_block(client, how, message):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        classifier().fit(lazy(partial(broken_rows, how=how)), LABELS)


def test_blocks_may_differ_in_dtype(client):
    rows = ROWS.copy()
    rows[1500:2000] = rows[1500:2000].astype(np.float32)
    ours = classifier().fit(lazy(partial(broken_rows, how="float32")), LABELS)
    assert_same(ours, classifier().fit(rows, LABELS))


def stuck_rows(k, until):
    while not until.exists():
        time.sleep(0.05)
    return make_rows(k)


def test_fit_without_progress_raises_an_error(client, tmp_path):
    """The workers are busy and no task ends; a slow round whose tasks end raises no error."""
    until, log = tmp_path / "until", tmp_path / "loads"
    slow = lazy(partial(logged_rows, log=str(log), seconds=2.0))
    as_blocks(lazy(make_rows)).total(len)  # the workers import what they need
    with dask.config.set({"marginpursuit.no-progress-timeout": "5 s"}):
        n_rows = as_blocks(slow).total(len)  # three blocks per worker take 6 s
        assert n_rows == len(ROWS)
        try:
            with pytest.raises(TimeoutError, match=r"no task .* for 5 s .* with 2 workers"):
                classifier().fit(lazy(partial(stuck_rows, until=until)), LABELS)
        finally:
            until.touch()  # the workers are free for the next test, also if this one fails


def test_time_limits_of_a_stalled_cluster():
    policy = DaskPolicy(no_worker_timeout="10 s", no_progress_timeout="100 s")
    start = time.monotonic()
    detector = StallDetector(policy)
    for seconds in range(0, 1000, 90):  # tasks end
        detector.check(2, [{"memory": seconds}], start + seconds)
    detector.check(2, [{"memory": 990}], start + 1085)
    with pytest.raises(TimeoutError, match=r"no task .* for 100 s .* with 2 workers"):
        detector.check(2, [{"memory": 990}], start + 1095)
    detector = StallDetector(policy)
    detector.check(0, [None], start + 5)
    detector.check(1, [None], start + 12)
    detector.check(0, [None], start + 21)
    with pytest.raises(ConnectionError, match="no worker for 10 s"):
        detector.check(0, [None], start + 23)


def test_sparse_blocks(client):
    X, y = load_digits(return_X_y=True)
    X, y = sparse.csr_array(X), y > 4
    rows = da.from_array(X.toarray(), chunks=(500, 64)).map_blocks(sparse.csr_matrix)
    assert sparse.issparse(rows._meta)
    expected = classifier().fit(X, y)
    for blocks in (rows, rows.persist()):
        assert_same(classifier().fit(blocks, y), expected)
    assert_array_equal(expected.predict(rows).compute(), expected.predict(X))
    dense = da.from_array(X.toarray(), chunks=(500, 64))
    undeclared = dense.map_blocks(sparse.csr_matrix, meta=np.empty((0, 0)))
    with pytest.raises(TypeError, match=r"block \d must be dense .* got sparse"):
        classifier().fit(undeclared, y)


def test_columns_whose_squares_overflow(client):
    factors = np.where(np.arange(8) == 3, 1e200, 1.0)
    ours = classifier().fit(lazy(make_rows) * factors, LABELS)
    expected = classifier().fit(ROWS * factors, LABELS)
    assert_allclose(ours.coef_, expected.coef_, rtol=1e-10)


@pytest.mark.slow
def test_remote_scheduler_and_its_loss(tmp_path, expected):
    """The fit works over TCP, and raises an error soon after workers or scheduler are lost."""
    settings = {"distributed.comm.timeouts.connect": "2s", "marginpursuit.no-worker-timeout": "2s"}
    address_file, log = tmp_path / "scheduler.json", tmp_path / "loads"
    dask_command = [sys.executable, "-m", "dask"]
    options = ["--scheduler-file", str(address_file), "--no-dashboard"]
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    process_options = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    }
    scheduler = subprocess.Popen(
        [*dask_command, "scheduler", "--host", "127.0.0.1", "--port", "0", *options],
        **process_options,
    )
    worker = subprocess.Popen(
        [*dask_command, "worker", "--no-nanny", "--nthreads", "1", *options], **process_options
    )
    try:
        with distributed.Client(scheduler_file=str(address_file), timeout=30) as client:
            client.wait_for_workers(1, timeout=30)
            address = client.scheduler.address
        with (
            dask.config.set(settings),
            distributed.Client(address) as client,
        ):
            assert_identical(classifier().fit(lazy(make_rows), LABELS), expected)
            rows = lazy(partial(logged_rows, log=str(log), seconds=0.05))
            begin = time.monotonic()
            with (
                During(client, log, lambda _: worker.kill()),
                pytest.raises(ConnectionError, match="no worker for 2 s"),
            ):
                classifier().fit(rows, LABELS)
            threading.Timer(1.0, scheduler.kill).start()
            with pytest.raises(ConnectionError, match="scheduler was lost"):
                classifier().fit(rows, LABELS)
            assert time.monotonic() - begin < 30
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait(10)


def test_bytes_sent_match_the_formulas(client, monkeypatch):
    """The formulas of docs/scaling.md, against all arguments and results of tasks."""
    from marginpursuit.experiments.scaling import Fit, cost

    sent, returned = [], []
    submit_all, wait = TaskClient.map, TaskClient.result

    def counted_map(self, function, *args):
        if function is dask_blocks.apply_to_block:
            # Slices of vectors are counted when they are packed.
            sent.extend(len(cloudpickle.dumps(pair)) for pair in zip(*args[:2], strict=True))
        return submit_all(self, function, *args)

    def counted_result(self, future):
        result = wait(self, future)
        returned.append(len(cloudpickle.dumps(result)))
        return result

    def counted_vector(vector):
        packed = packed_vector(vector)
        sent.append(packed.nbytes)
        return packed

    packed_vector = dask_blocks.PackedVector
    monkeypatch.setattr(dask_blocks, "PackedVector", counted_vector)
    monkeypatch.setattr(TaskClient, "map", counted_map)
    monkeypatch.setattr(TaskClient, "result", counted_result)
    blocks = as_blocks(lazy(make_rows))
    model = published(scale=1.0).fit(blocks, LABELS)
    fit = Fit(3000, 8, item_bytes=8, block_bytes=32_000, sweeps=model.n_passes_ - 2)
    assert fit.n_blocks == N_BLOCKS
    assert cost(fit, 0).out < sum(sent) < cost(fit, 8192).out
    assert 0.8 * cost(fit).back < sum(returned) < 1.2 * cost(fit).back
    assert 1 + blocks.n_rounds == cost(fit).rounds  # one for the labels
