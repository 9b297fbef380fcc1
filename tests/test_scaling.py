"""The cost formulas against counters of real fits, and the simulation in exact cases."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from marginpursuit import MarginPursuitClassifier
from marginpursuit.blocks import Blocks
from marginpursuit.experiments.scaling import Cluster, Fit, cost, simulate, tables

FIT = Fit(1e6, 50, block_bytes=2e7)  # ten blocks
WORKER = Cluster(
    1,
    link_rate=np.inf,
    task_seconds=0.0,
    round_seconds=0.0,
    client_seconds=0.0,
    margin_seconds=0.0,
)


def test_bytes_read_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20)).astype(np.float32)
    y = X[:, 0] + rng.normal(size=3000) > 0
    loaded = 0

    def load(k):
        nonlocal loaded
        loaded += X[1000 * k : 1000 * (k + 1)].nbytes
        return X[1000 * k : 1000 * (k + 1)]

    blocks = Blocks([lambda k=k: load(k) for k in range(3)], [1000] * 3)
    loaded = 0  # one block was loaded to find its type
    model = MarginPursuitClassifier(scale=1.0).fit(blocks, y)
    fit = Fit(3000, 20, block_bytes=80_000, sweeps=model.n_passes_ - 2)
    assert fit.n_blocks == 3
    assert cost(fit).read == loaded
    assert cost(fit).rounds == 1 + model.n_passes_ + 1  # two rounds for the margins


def test_without_failures_the_time_is_that_of_the_bytes():
    reading, product = 2e8 / WORKER.read_rate, 2e6 * 50**2 / WORKER.product_rate
    expected = FIT.passes * reading + product
    assert simulate(FIT, WORKER) == pytest.approx(expected)
    # Ten blocks on four workers take as long as three on one.
    assert simulate(FIT, replace(WORKER, n_workers=4)) == pytest.approx(0.3 * expected)
    assert simulate(FIT, replace(WORKER, n_workers=99)) == pytest.approx(0.1 * expected)


def test_scheduler_link_and_client_add_time():
    many = replace(WORKER, n_workers=10_000)
    busy = simulate(replace(FIT, block_bytes=2e4), replace(many, task_seconds=1e-3))
    assert busy == pytest.approx((cost(FIT).rounds - 1) * 10_000 * 1e-3, rel=0.01)
    slow = simulate(FIT, replace(many, client_seconds=1e-6)) - simulate(FIT, many)
    assert slow == pytest.approx(1.0)
    sorting = simulate(FIT, replace(WORKER, margin_seconds=1e-6)) - simulate(FIT, WORKER)
    assert sorting == pytest.approx(1.0)
    linked = simulate(FIT, replace(many, link_rate=1e9)) - simulate(FIT, many)
    assert linked >= (cost(FIT).back + 1e6) / 1e9


def test_a_summary_of_margins_takes_one_more_round_per_factor_of_256_in_the_rows():
    assert [len(Fit(10.0**power, 10).summaries) for power in (6, 7, 9, 12)] == [2, 3, 4, 5]
    assert cost(Fit(1e12, 100)).back < 1e7


def test_stragglers_and_failures_cost_time():
    calm = simulate(FIT, replace(WORKER, n_workers=2))
    slow = np.mean([simulate(FIT, replace(WORKER, n_workers=2, spread=0.5), k) for k in range(20)])
    lost = simulate(FIT, replace(WORKER, n_workers=2, failures=1e5))
    assert (
        calm * np.exp(0.125) < slow < 2 * calm
    )  # the mean of a lognormal distribution, and idle time
    assert lost > calm + 10


def test_more_workers_are_never_slower():
    times = [simulate(FIT, replace(WORKER, n_workers=w, spread=0.5)) for w in (1, 2, 4, 8, 16)]
    assert all(a >= b for a, b in pairwise(times))


def test_the_page_shows_the_tables_of_the_simulation():
    page = Path(__file__).parents[1] / "docs" / "scaling.md"
    text = page.read_text()
    assert all(table in text for table in tables().split("\n\n"))


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "n_workers", "measured"),
    [(640_000, 250, 1, 2.79), (640_000, 250, 2, 1.89), (1_600_000, 100, 1, 2.59)],
)
def test_small_cases_match_measurements(n_rows, n_columns, n_workers, measured):
    """The measured seconds are those of docs/scaling.md."""
    fit = Fit(n_rows, n_columns, block_bytes=6.4e7, sweeps=4)
    assert simulate(fit, Cluster(n_workers)) == pytest.approx(measured, rel=0.2)
