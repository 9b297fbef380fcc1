"""An epoch of stochastic steps against one of scikit-learn's SGDClassifier."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import least_time, load, table
from scipy import sparse
from sklearn.linear_model import SGDClassifier

from marginpursuit import PegasosClassifier
from marginpursuit.solvers import stochastic_margin_pursuit

_EPOCHS = 6
_ROUNDS = 7
_PENALTY = 1e-4


def run() -> Iterator[str]:
    """Measure dense and sparse data, each as float64."""
    rows, absent = [], []
    for name in ("cov", "digit5", "a9a", "news20"):
        data = load(name)
        if data is None:
            absent.append(name)
            continue
        X, y = _prepared(data[0]), data[1]
        for learner, ours, loss in (
            ("Pegasos", _pegasos, "hinge"),
            ("margin pursuit", _pursuit, "squared_error"),
        ):
            calls = [
                *(lambda k=k, X=X, y=y, fit=ours: fit(X, y, k) for k in (1, _EPOCHS)),
                *(lambda k=k, X=X, y=y, loss=loss: _sgd(X, y, k, loss) for k in (1, _EPOCHS)),
            ]
            one, many, peer_one, peer_many = _least_times(calls)
            epoch, peer_epoch = (many - one) / (_EPOCHS - 1), (peer_many - peer_one) / (_EPOCHS - 1)
            shape = f"{name}, {X.shape[0]} x {X.shape[1]}"
            times = f"{1e3 * epoch:.1f}", f"{1e3 * peer_epoch:.1f}"
            ratios = f"{peer_epoch / epoch:.1f}", f"{peer_many / many:.1f}"
            rows.append((shape, learner, loss, *times, *ratios))
    note = (
        f"An epoch is the difference of fits of {_EPOCHS} epochs and of 1, over {_EPOCHS - 1}. One "
        "thread. SGDClassifier has the loss named; like margin pursuit, squared_error moves on "
        "every sample. Dense columns are standardised. Target: above 1."
    )
    yield table(
        "Stochastic steps: an epoch against SGDClassifier's",
        ("data", "learner", "peer's loss", "ours, ms", "SGD, ms", "SGD / ours", "of whole fits"),
        rows,
        note + (f" Absent: {', '.join(absent)}." if absent else ""),
    )


def _prepared(X: Any) -> Any:
    if sparse.issparse(X):
        return X.astype(np.float64)
    X = np.ascontiguousarray(X, dtype=np.float64)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _least_times(calls: list[Callable[[], Any]]) -> list[float]:
    """Return the least time of each call, all in turn, so that a busy minute hits all alike."""
    rounds = [[least_time(call, repeats=1) for call in calls] for _ in range(_ROUNDS)]
    return np.min(rounds, axis=0).tolist()


def _pegasos(X: Any, y: Any, epochs: int) -> None:
    PegasosClassifier(alpha=_PENALTY, max_iter=epochs * len(y), random_state=0).fit(X, y)


def _pursuit(X: Any, y: Any, epochs: int) -> None:
    stochastic_margin_pursuit(
        X, 2 * y - 1, _PENALTY, epochs * len(y), fit_intercept=True, random_state=0
    )


def _sgd(X: Any, y: Any, epochs: int, loss: str) -> None:
    SGDClassifier(loss=loss, alpha=_PENALTY, max_iter=epochs, tol=None, random_state=0).fit(X, y)
