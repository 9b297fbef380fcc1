"""The sweeps of dual coordinate descent: compiled against NumPy, and both against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize_scalar

from marginpursuit._kernels import coordinates
from marginpursuit._kernels.coordinates import MatrixCoordinates, RowCoordinates, Terms


def hinge(n):
    """Terms of a hinge loss, with an upper bound for each row."""
    zero = np.zeros(n)
    return Terms(zero, np.linspace(0.1, 2.0, n), zero, zero, 1.0, 1.0)


def band(n):
    """Terms of a loss that is quadratic on both sides of a band."""
    bound, up = np.full(n, np.inf), np.linspace(0.5, 3.0, n)
    return Terms(-bound, bound, up, up / 0.3, 0.5, 1.5)


def data(n=40, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0), rng


def make(form, terms, *, constant=True, seed=0):
    """Make coordinates of one form, on the same rows for all."""
    X, sign, rng = data(seed=seed)
    ones = np.column_stack([X, np.ones(len(X))]) if constant else X
    root = rng.normal(size=(ones.shape[1], ones.shape[1]))
    metric, start = root @ root.T / 9 + np.eye(len(root)), 0.1 * rng.normal(size=len(root))
    if form == "matrix":
        return MatrixCoordinates(ones @ metric @ ones.T, sign, terms, ones @ start)
    if form.endswith("plain"):
        metric = None
    curvature = np.sum(ones * (ones if metric is None else ones @ metric), axis=1)
    rows = sparse.csr_matrix(X) if form.startswith("sparse") else X
    return RowCoordinates(rows, sign, terms, start, curvature, metric, constant)


FORMS = ["matrix", "dense", "sparse", "dense plain", "sparse plain"]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("terms", [hinge, band])
@pytest.mark.parametrize("form", FORMS)
def test_compiled_and_numpy_sweeps_agree(form, terms, constant, monkeypatch):
    pytest.importorskip("marginpursuit._kernels._compiled")
    found = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(coordinates, "_compiled", None)
        descent, rng = make(form, terms(40), constant=constant), np.random.default_rng(1)
        order, trace = np.arange(40), []
        for threshold in (np.inf, np.inf, 0.5, 0.01):
            order = rng.permutation(order)
            kept, largest = descent.sweep(order, threshold)
            order = order[:kept]
            trace += [kept, largest]
        scores = descent.refresh()
        found.append((trace, order, descent.a, scores))
    assert found[0][0][-2] < 40, "nothing was left out"
    for ours, theirs in zip(*found, strict=True):
        assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("terms", [hinge, band])
@pytest.mark.parametrize("form", FORMS)
def test_scores_are_kept_up_to_date(form, terms):
    descent = make(form, terms(40))
    for _ in range(5):
        descent.sweep(np.arange(40), np.inf)
    kept = descent.scores.copy() if form == "matrix" else descent.coef.copy()
    fresh = descent.refresh()
    assert_allclose(kept, fresh if form == "matrix" else descent.coef, rtol=1e-10, atol=1e-12)


def test_forms_are_of_one_problem():
    ends = []
    for form in ("matrix", "dense", "sparse"):
        descent = make(form, hinge(40))
        for _ in range(2000):
            descent.sweep(np.arange(40), np.inf)
        ends.append((descent.a, descent.refresh()))
    for other in ends[1:]:
        assert_allclose(other[0], ends[0][0], atol=1e-7)
        assert_allclose(other[1], ends[0][1], atol=1e-7)


@pytest.mark.parametrize("terms", [hinge, band])
def test_a_visit_goes_to_the_minimum_in_one_variable(terms):
    descent = make("matrix", terms(40))
    descent.sweep(np.arange(40), np.inf)
    for i in range(0, 40, 7):
        before, scores = descent.a.copy(), descent.scores.copy()
        descent.sweep(np.array([i]), np.inf)

        def dual(a, i=i, before=before, scores=scores):
            step, moved = a - before[i], before.copy()
            moved[i] = a
            margin = descent.sign[i] * scores[i]
            square = 0.5 * descent.curvature[i] * step**2
            return square + margin * step + descent.terms.value(moved)[i]

        low = max(descent.terms.lower[i], -20.0)
        high = min(descent.terms.upper[i], 20.0)
        best = minimize_scalar(dual, bounds=(low, high), options={"xatol": 1e-12}).x
        assert_allclose(descent.a[i], best, atol=1e-5)


def test_the_largest_slope_vanishes_at_the_minimum_only():
    descent = make("matrix", band(40))
    first = descent.sweep(np.arange(40), np.inf)[1]
    for _ in range(3000):
        kept, last = descent.sweep(np.arange(40), np.inf)
    assert kept == 40
    assert last < 1e-10 < first


@settings(max_examples=100)
@given(st.floats(-5, 5), st.floats(0.1, 5), st.floats(0.1, 1), st.floats(0, 0.9))
def test_losses_are_the_conjugates_of_the_terms(margin, up, mu, theta):
    """Squares outside of a band, and the hinge, as the articles have them."""
    one = np.ones(1)
    terms = Terms(-np.inf * one, np.inf * one, up * one, up / mu * one, 1 - theta, 1 + theta)
    short, above = max(1 - theta - margin, 0.0), max(margin - 1 - theta, 0.0)
    expected = (short**2 + mu * above**2) / (2 * up)
    assert_allclose(terms.loss(margin * one), expected, atol=1e-12)
    assert_allclose(terms.minimiser(margin * one), (short - mu * above) / up, atol=1e-12)
    box = Terms(0 * one, up * one, 0 * one, 0 * one, 1.0, 1.0)
    assert_allclose(box.loss(margin * one), up * max(1 - margin, 0.0), atol=1e-12)


@settings(max_examples=100)
@given(st.floats(-3, 3), st.floats(-3, 3))
def test_the_excess_is_never_negative(a, margin):
    for terms in (hinge(5), band(5)):
        inside = np.clip(np.full(5, a), terms.lower, terms.upper)
        margins = np.full(5, margin)
        plain = inside * margins + terms.value(inside) + terms.loss(margins)
        assert np.all(plain >= -1e-12)
        assert_allclose(terms.excess(inside, margins), plain, atol=1e-12)


def test_wrong_arrays_are_refused_and_not_read():
    compiled = pytest.importorskip("marginpursuit._kernels._compiled")
    n, order, matrix = 5, np.arange(5), np.eye(5)
    vector = np.ones(n)
    good = [vector, vector, vector, vector, vector, 1.0, 1.0, vector, vector.copy(), order, np.inf]
    compiled.sweep_matrix(*good, matrix, vector.copy())
    for k, wrong in ((0, np.ones(4)), (3, np.ones(6)), (8, np.ones(4))):
        bad = [*good[:k], wrong, *good[k + 1 :]]
        with pytest.raises(ValueError, match="entry for each"):
            compiled.sweep_matrix(*bad, matrix, vector.copy())
    for bad_order in (np.array([5]), np.array([-1])):
        with pytest.raises(IndexError, match="order"):
            compiled.sweep_matrix(*good[:9], bad_order, np.inf, matrix, vector.copy())
    with pytest.raises(ValueError, match="coef must have length"):
        compiled.sweep_dense(*good, matrix, np.ones(5), None, True)
    with pytest.raises(ValueError, match="inverse_hessian"):
        compiled.sweep_dense(*good, matrix, np.ones(5), np.eye(4), False)
    with pytest.raises(ValueError, match="rows"):
        compiled.sweep_dense(*good, np.ones((4, 2)), np.ones(2), None, False)
    rows = sparse.csr_matrix(matrix)
    parts = rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    with pytest.raises(ValueError, match="one matrix"):
        compiled.sweep_sparse(*good, parts[0], parts[1], parts[2][:-1], np.ones(5), None, False)


def test_a_sweep_over_nothing_does_nothing():
    for form in FORMS:
        descent = make(form, hinge(40))
        assert descent.sweep(np.empty(0, dtype=np.int64), 1.0) == (0, 0.0)
        assert_array_equal(descent.a, 0.0)
