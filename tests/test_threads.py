"""The thread count of BLAS is the same before and after any number of limits, fits and errors."""

import ctypes
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, _threads
from marginpursuit._threads import single_threaded_blas

CONTROLLER = ThreadpoolController().select(user_api="blas")

pytestmark = pytest.mark.skipif(
    not CONTROLLER.lib_controllers, reason="needs a BLAS that threadpoolctl knows"
)


def counts():
    return [library.num_threads for library in CONTROLLER.lib_controllers]


@pytest.fixture(autouse=True)
def several():
    """Let BLAS use three threads, and check that it does afterwards."""
    with CONTROLLER.limit(limits=3):
        before = counts()
        if set(before) == {1}:
            pytest.skip("this BLAS has one thread")
        yield before
        assert counts() == before


def test_one_thread_within_the_context(several):
    with single_threaded_blas():
        assert set(counts()) == {1}
        with single_threaded_blas():
            assert set(counts()) == {1}
        assert set(counts()) == {1}
    assert counts() == several


def test_exceptions_restore_the_count(several):
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), single_threaded_blas(), single_threaded_blas():
            raise error
        assert counts() == several


def test_contexts_that_overlap_in_two_threads(several):
    """The first to enter leaves first: the second saw one thread when it entered."""
    entered, left = threading.Event(), threading.Event()

    def second():
        with single_threaded_blas():
            entered.set()
            assert left.wait(10)
            found.append(counts())

    found = []
    thread = threading.Thread(target=second)
    with single_threaded_blas():
        thread.start()
        assert entered.wait(10)
    left.set()
    thread.join(10)
    assert found == [[1] * len(several)]
    assert counts() == several


def test_many_contexts_in_many_threads(several):
    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(200):
            try:
                with single_threaded_blas():
                    if rng.random() < 0.3:
                        time.sleep(1e-5)
                    assert set(counts()) == {1}
                    if rng.random() < 0.3:
                        raise ValueError
            except ValueError:
                pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert counts() == several


def test_concurrent_fits(several):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    y = X[:, 0] + rng.standard_normal(300) > 0

    def fit(solver):
        for _ in range(4):
            MarginPursuitClassifier(solver=solver).fit(X, y)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fit, ["gram", "lbfgs", "gram", "lbfgs"]))
    assert counts() == several


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_time(several):
    """An exception is raised in a thread at random times, also within the context itself.

    Python reports one that is raised within `__del__` as unraisable; the numbers of threads are
    restored all the same.
    """

    class InterruptedThreadError(Exception):
        pass

    stop = threading.Event()

    def work():
        while not stop.is_set():
            try:
                while not stop.is_set():
                    with single_threaded_blas():
                        pass
            except InterruptedThreadError:
                handled.append(1)

    handled = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    for _ in range(300):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(InterruptedThreadError)
        )
        before, end = len(handled), time.monotonic() + 0.1
        while len(handled) == before and time.monotonic() < end:
            time.sleep(1e-4)
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert len(handled) > 100
    assert counts() == several


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, once a test imports it
def test_a_forked_process_does_not_wait_for_a_lost_thread():
    with single_threaded_blas():
        child = os.fork()
        if child == 0:
            with single_threaded_blas():
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_search_that_fails_while_it_prepares_restores_blas(monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("marginpursuit.selection.fold_data._prepared", fail)
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(KeyboardInterrupt) as caught:  # which keeps all objects alive
        MarginPursuitClassifierCV(n_threads=2).fit(X, np.arange(60) % 2)
    assert caught.traceback
    assert not _threads._process_limit.holders
