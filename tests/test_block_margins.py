"""Statistics of margins in blocks: those of all margins, from summaries that are small."""

import pickle
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from marginpursuit import MarginPursuitClassifier
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers import _block_margins
from marginpursuit.classifiers._block_margins import CellPolicy, block_margins
from marginpursuit.classifiers._margins import Margins
from marginpursuit.classifiers._parameters import SCALE_RULES
from marginpursuit.design import Standardisation, design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels

RNG = np.random.default_rng(0)
SHAPES = {
    "normal": RNG.normal(1.0, 0.8, 5000),
    "heavy tails": RNG.standard_t(1.2, 5000),
    "ties": RNG.integers(-3, 4, 5000) / 2.0,
    "two values": np.where(RNG.random(5001) < 0.5, -2.0, 3.0),
    "near the level": 1.0 + 1e-9 * RNG.normal(size=5000),
    "one outlier": np.append(RNG.normal(1.0, 0.1, 4999), -1e8),
    "one margin": np.array([0.7]),
    "zeros of both signs": np.array([0.0, -0.0, 0.0, -0.0, 1.0, -1.0]),
    "few": np.array([1.0, 2.0, 3.0, 100.0]),
}


def both(values, weights=None, scale=1.0, n_blocks=4, n_passes=1, **options):
    """The margins of scores, in memory and from blocks."""
    values = values.reshape(len(values), -1)
    n_rows, n_problems = values.shape
    labels = Labels(np.ones(n_rows, dtype=np.intp), max(2, n_problems))
    labels.codes[: n_rows // 3] = 0
    loss = MarginLoss(1.0, scale)
    weights = np.full(n_rows, 1.0 / n_rows) if weights is None else weights / weights.sum()
    edges = np.linspace(0, n_rows, n_blocks + 1).astype(int)
    blocks = Blocks([lambda a=a, b=b: values[a:b] for a, b in pairwise(edges)])
    linear = np.eye(n_problems), np.zeros(n_problems)  # the columns are the scores
    with design_for(blocks) as design:
        identity = Standardisation.identity(n_problems)
        policy = CellPolicy(**options)
        found = block_margins(design, identity, linear, labels, weights, 123.0, loss, policy)
        assert design.n_passes == n_passes
    return Margins.from_scores(values.copy(), labels, weights, 123.0, loss.margin), found


def assert_same(whole, found, scale, rtol=1e-12):
    expected, statistics = whole.statistics(scale), found.statistics(scale)
    size = np.abs(expected.quantiles).max()
    # Equal, but for the rounding of a mean of two values.
    assert_allclose(statistics.quantiles, expected.quantiles, rtol=0, atol=2.3e-16 * size)
    for name, power in (("location", 1), ("mean", 1), ("variance", 2)):
        wanted = getattr(expected, name)
        assert_allclose(getattr(statistics, name), wanted, rtol=rtol, atol=1e-15 * size**power)
    if np.all(expected.variance > 1e-12 * size**2):
        assert_allclose(statistics.skewness, expected.skewness, rtol=rtol, atol=rtol)
    for rule in SCALE_RULES.values():
        assert_allclose(rule(found), rule(whole), rtol=rtol)


@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.5, 1e4])
@pytest.mark.parametrize("shape", SHAPES)
def test_statistics_are_those_of_all_margins(shape, scale):
    assert_same(*both(SHAPES[shape], scale=scale, n_blocks=min(4, len(SHAPES[shape]))), scale)


@pytest.mark.parametrize("weighted", [False, True])
def test_margins_of_many_classes_are_kept_in_tiles(weighted):
    values = RNG.normal(size=(600, 7))
    weights = RNG.exponential(size=600) if weighted else None
    assert_same(*both(values, weights, n_passes=4, max_margins=1250), 1.0)


@pytest.mark.parametrize("shape", ["normal", "heavy tails", "ties"])
def test_weights(shape):
    weights = RNG.exponential(size=5000) * (RNG.random(5000) < 0.7)
    assert_same(*both(SHAPES[shape], weights, scale=0.5), 0.5)


def test_several_problems_each_have_their_own_margins():
    values = np.column_stack([SHAPES["normal"], SHAPES["heavy tails"], SHAPES["ties"]])
    assert_same(*both(values, scale=0.5), 0.5)
    assert_same(*both(values, RNG.random(5000), scale=0.5), 0.5)


# Of margins below that not even the cubes are floats.
MARGINS = st.floats(-1e3, 1e3).map(lambda value: value if abs(value) > 1e-60 else 0.0)


@given(
    values=st.lists(MARGINS, min_size=1, max_size=40),
    scale=st.floats(1e-2, 1e2),
    n_blocks=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_any_margins(values, scale, n_blocks):
    n_blocks = min(n_blocks, len(values))
    assert_same(*both(np.array(values), scale=scale, n_blocks=n_blocks), scale, rtol=1e-9)


@pytest.mark.parametrize("few", [0, 50])
def test_cells_that_hold_too_many_margins_are_split(few):
    for shape in ("normal", "near the level", "two values"):
        assert_same(*both(SHAPES[shape], max_values=few), 1.0)


def test_what_leaves_a_block_hardly_grows_with_its_rows():
    sizes = []
    for n_rows in (10_000, 1_000_000):
        values = np.random.default_rng(1).normal(1.0, 0.8, (n_rows, 1))
        codes = np.ones(n_rows, dtype=np.intp)
        margins = partial(_block_margins._margins_against_rest, np.array([1]))
        held = _block_margins._sorted_margins(margins, [(slice(None), values)], codes)
        sizes.append(len(pickle.dumps(_block_margins._cells(held, None, 18))))
    assert sizes[1] < 2.5 * sizes[0] < 150_000


def test_a_fit_asks_for_no_scores(monkeypatch):
    X = RNG.normal(size=(2000, 5))
    y = X[:, 0] + RNG.normal(size=2000) > 0
    blocks = Blocks([lambda k=k: X[500 * k : 500 * (k + 1)] for k in range(4)])
    whole = MarginPursuitClassifier.as_published(solver="gram").fit(X, y)
    monkeypatch.setattr("marginpursuit.design.BlockDesign.scores", None)
    fit = MarginPursuitClassifier.as_published(solver="gram").fit(blocks, y)
    assert_allclose(fit.margin_location_, whole.margin_location_, rtol=1e-12)
    assert fit.scale_ == pytest.approx(whole.scale_, rel=1e-12)
