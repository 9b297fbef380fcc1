"""Time of an epoch of stochastic steps, against scikit-learn's SGDClassifier."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import load, shortest_time, significant, standardised, table
from scipy import sparse
from sklearn.linear_model import SGDClassifier

from marginpursuit import PegasosClassifier
from marginpursuit.solvers import stochastic_margin_pursuit

_EPOCHS = 6
_ROUNDS = 7
_PENALTY = 1e-4


def run() -> Iterator[str]:
    """Measure dense and sparse data, each as float64."""
    rows, missing = [], []
    for name in ("cov", "digit5", "a9a", "news20"):
        data = load(name)
        if data is None:
            missing.append(name)
            continue
        X, y = _as_float64(data[0]), data[1]
        for learner, ours, loss in (
            ("Pegasos", _pegasos, "hinge"),
            ("margin pursuit", _pursuit, "squared_error"),
        ):
            calls = [
                *(lambda k=k, X=X, y=y, fit=ours: fit(X, y, k) for k in (1, _EPOCHS)),
                *(lambda k=k, X=X, y=y, loss=loss: _sgd(X, y, k, loss) for k in (1, _EPOCHS)),
            ]
            one, many, peer_one, peer_many = _shortest_times(calls)
            epoch, peer_epoch = (many - one) / (_EPOCHS - 1), (peer_many - peer_one) / (_EPOCHS - 1)
            shape = f"{name}, {X.shape[0]} x {X.shape[1]}"
            times = f"{1e3 * epoch:.1f}", f"{1e3 * peer_epoch:.1f}"
            ratios = significant(peer_epoch / epoch), significant(peer_many / many)
            rows.append((shape, learner, loss, *times, *ratios))
    note = (
        f"Time of an epoch: difference of fits of {_EPOCHS} epochs and of 1, over {_EPOCHS - 1}. "
        "One thread. SGDClassifier has the loss named; like margin pursuit, squared_error updates "
        "on every sample. Dense columns are standardised. Target: above 1."
    )
    yield table(
        "Stochastic steps: an epoch, against SGDClassifier",
        (
            "data",
            "learner",
            "peer's loss",
            "ours, ms",
            "SGD, ms",
            "SGD / ours",
            "SGD / ours, whole fits",
        ),
        rows,
        note + (f" Missing: {', '.join(missing)}." if missing else ""),
    )


def _as_float64(X: Any) -> Any:
    return X.astype(np.float64) if sparse.issparse(X) else standardised(np.ascontiguousarray(X))


def _shortest_times(calls: list[Callable[[], Any]]) -> list[float]:
    """Return the shortest time of each call; calls alternate, so that load affects all alike."""
    rounds = [[shortest_time(call, repeats=1) for call in calls] for _ in range(_ROUNDS)]
    return np.min(rounds, axis=0).tolist()


def _pegasos(X: Any, y: Any, epochs: int) -> None:
    PegasosClassifier(alpha=_PENALTY, max_iter=epochs * len(y), random_state=0).fit(X, y)


def _pursuit(X: Any, y: Any, epochs: int) -> None:
    stochastic_margin_pursuit(
        X, 2 * y - 1, _PENALTY, epochs * len(y), fit_intercept=True, random_state=0
    )


def _sgd(X: Any, y: Any, epochs: int, loss: str) -> None:
    SGDClassifier(loss=loss, alpha=_PENALTY, max_iter=epochs, tol=None, random_state=0).fit(X, y)
