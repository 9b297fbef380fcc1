"""Rows L⁻¹ k, of which k and L are stored, and fits to them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import make_moons

from marginpursuit import MarginPursuitClassifier
from marginpursuit.classifiers._landmarks import KernelPolicy
from marginpursuit.design import FactoredRows, MemoryDesign, Standardisation, design_for
from marginpursuit.losses import MarginLoss
from marginpursuit.solvers import SOLVERS, Policy, Problem, Request, plan_gram
from marginpursuit.solvers._sampled_hessian import minimise_by_sampled_hessian
from marginpursuit.solvers.policy import SampledHessianPolicy
from marginpursuit.solvers.sampling import stratified_rows, subsample
from marginpursuit.tasks import Labels, Tasks


@pytest.fixture
def rows():
    """Factored rows, the same rows as an array, weights and classes."""
    rng = np.random.default_rng(0)
    lower = np.tril(rng.normal(size=(7, 7))) + 3.0 * np.eye(7)
    values, weights = rng.normal(size=(203, 7)), rng.random(203)
    explicit = np.linalg.solve(lower, values.T).T
    return FactoredRows(values, lower), explicit, weights / weights.sum(), rng.integers(0, 3, 203)


def both_designs(rows):
    factored, explicit, *_ = rows
    return design_for(factored), MemoryDesign(explicit)


def test_sums_over_rows_are_those_of_the_explicit_rows(rows):
    *_, weights, codes = rows
    factored, explicit = both_designs(rows)
    z, gram = explicit.standardisation_and_gram(weights, centred=True)
    own, own_gram = factored.standardisation_and_gram(weights, centred=True)
    assert_allclose(own.mean, z.mean, atol=1e-12)
    assert_allclose(own.inverse_deviation, z.inverse_deviation, rtol=1e-10)
    assert_allclose(own_gram, gram, atol=1e-10)
    folds = np.stack([weights, np.roll(weights, 1)])
    factors = np.random.default_rng(1).normal(size=203)
    for ask in (
        lambda design: design.gram(weights, z),
        lambda design: design.adjoint(factors, z),
        lambda design: design.fold_variances(folds, z, centred=True),
        lambda design: design.fold_variances(folds, z, centred=False),
        lambda design: design.row_norms(z),
        lambda design: design.row_products(np.arange(1.0, 8.0), z),
        lambda design: design.mean_square(weights),
        lambda design: design._largest(np.array([0, 6])),
    ):
        assert_allclose(ask(factored), ask(explicit), rtol=1e-9, atol=1e-10)
    coef, intercept = np.random.default_rng(2).normal(size=(7, 3)), np.arange(3.0)
    tasks = Tasks.of(Labels(codes, 3), weights, MarginLoss(1.0, 0.7, 0.4))
    a, b = (design.sweep(coef, intercept, tasks, z) for design in (factored, explicit))
    for x, y in zip((a.value, a.gradient, a.slope), (b.value, b.gradient, b.slope), strict=True):
        assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_scores_are_those_of_the_explicit_rows(rows):
    _, array, weights, codes = rows
    factored, explicit = both_designs(rows)
    z = explicit.standardisation(weights, centred=True)
    coef, intercept = np.random.default_rng(2).normal(size=(7, 3)), np.arange(3.0)
    expected = array @ coef + intercept
    assert_allclose(factored.scores(coef, intercept), expected, atol=1e-10)
    whole = explicit.scores(coef, intercept, z)
    assert_allclose(factored.scores(coef, intercept, z), whole, atol=1e-10)
    parts = factored.map_scores(lambda span, chunk: (span, chunk), coef, intercept, z)
    assert sum(len(chunk) for _, chunk in parts) == len(whole)
    for span, chunk in parts:
        assert_allclose(chunk, whole[span], atol=1e-10)
    for span, chunk in factored._score_chunks(coef, intercept):
        assert_allclose(chunk, expected[span], atol=1e-10)
    held_out, fold = np.stack([codes == 0, codes == 1]), np.array([0, 1, 1])
    first, second = factored.held_out_scores(coef, intercept, held_out, fold)
    assert_allclose(first, expected[codes == 0][:, :1], atol=1e-10)
    assert_allclose(second, expected[codes == 1][:, 1:], atol=1e-10)
    some = np.array([3, 5, 100])
    assert_allclose(factored.subset(some).scores(coef, intercept), expected[some], atol=1e-10)
    assert_allclose(factored.subset(slice(9, 11)).scores(coef, intercept), expected[9:11])
    assert_allclose(factored.from_dense_rows(array).scores(coef, intercept), expected)
    assert factored.n_passes == 4
    assert factored.n_stored == array.size


def test_deviations_of_a_subsample(rows):
    given, *_ = rows
    shifted = FactoredRows(given.values + given.lower @ np.full(7, 3.0), given.lower)
    factored = design_for(shifted)
    explicit = MemoryDesign(np.linalg.solve(given.lower, shifted.values.T).T)
    weights = np.full(203, 1 / 203)
    own = factored.standardisation(weights, centred=True)
    assert factored.n_passes == 1
    z = explicit.standardisation(weights, centred=True)
    assert_allclose(own.mean, z.mean, atol=1e-12)
    assert_allclose(own.inverse_deviation, z.inverse_deviation, rtol=0.5)
    assert_array_equal(factored.standardisation(weights, centred=False).mean, 0.0)
    zero = design_for(FactoredRows(np.zeros((203, 7)), np.eye(7)))
    assert_array_equal(zero.standardisation(weights, centred=True).inverse_deviation, 1.0)
    # A column that varies in a row outside of the subsample.
    lone = np.random.default_rng(0).normal(size=(203, 7))
    lone[:, 6] = np.arange(203) == 1
    found = design_for(FactoredRows(lone, np.eye(7))).standardisation(weights, centred=True)
    assert 1.0 < found.inverse_deviation[6] < 100.0
    lone[0, 0] = np.inf
    with pytest.raises(FloatingPointError, match="no finite mean"):
        design_for(FactoredRows(lone, np.eye(7))).standardisation(weights, centred=True)


@pytest.mark.parametrize("options", [{}, {"probability": None}, {"multi_class": "ovr"}])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_fit_to_factored_features_is_the_fit_to_explicit_ones(n_classes, options):
    X, y = make_moons(600, noise=0.3, random_state=0)
    y = y + (X[:, 0] > 1.5) * (n_classes == 3)
    parameters = {"kernel": "rbf", "n_components": 20, "alpha": 1e-3, "gamma": 1.0}
    parameters |= {"tol": 1e-6} | options
    explicit = MarginPursuitClassifier(**parameters).fit(X, y)
    factored = MarginPursuitClassifier(**parameters)
    factored._kernel_policy = KernelPolicy(max_double_elements=1, factored_block_elements=500)
    assert factored._reads_factored_rows
    factored.fit(X, y)
    assert_allclose(factored.decision_function(X), explicit.decision_function(X), atol=0.01)
    assert_allclose(factored.objective_, explicit.objective_, rtol=1e-4)
    assert_array_equal(factored.support_, explicit.support_)
    if options != {"probability": None}:  # half fits have a tolerance of 1e-3
        difference = factored.predict_proba(X) - explicit.predict_proba(X)
        assert np.abs(difference).mean() < 5e-3


@pytest.mark.parametrize("options", [{"alpha_unit": "common"}, {"solver": "stochastic"}])
def test_units_and_solvers_that_need_explicit_features(options):
    model = MarginPursuitClassifier(kernel="rbf", **options)
    assert not model._reads_factored_rows


def sampled(policy):
    """A problem of one task with many rows, prepared by the solver "gram"."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 20)) * np.geomspace(1.0, 1e-3, 20)
    y = (X @ rng.normal(size=20) / X.std(axis=0).mean() + 5 * rng.normal(size=4000) > 0).astype(int)
    weights, loss = np.full((1, 4000), 1 / 4000), MarginLoss(1.0, 0.3, 0.0)
    request = Request(MemoryDesign(X), weights, (loss,), "absolute", 1e-6, True, policy=policy)
    prepared = SOLVERS["gram"].prepare(request)
    tasks, alphas = Tasks.of(Labels(y, 2), weights[0], loss), np.array([1e-6])
    return Problem(prepared, tasks, alphas, prepared.zeros(1), 200, 1e-9, policy=policy)


def test_hessian_of_a_subsample_reaches_the_same_minimum_in_fewer_steps():
    never = SampledHessianPolicy(min_columns=1000)
    always = replace(never, min_columns=1, rows_per_column=20)
    steps: list[int] = []
    (by_gram, gram), (by_hessian, problem) = (
        (SOLVERS["gram"].solve(replace(own, report=report)), own)
        for own, report in (
            (sampled(Policy(sampled_hessian=never, max_active_fraction=0.0)), None),
            (
                sampled(Policy(sampled_hessian=always, max_active_fraction=0.0)),
                lambda step: steps.append(step.iteration),
            ),
        )
    )
    assert_allclose(by_hessian.value, by_gram.value, rtol=1e-8)
    assert by_hessian.n_iter < by_gram.n_iter
    assert [step.iteration for step in by_hessian.history] == steps
    assert max(steps) == by_hessian.n_iter
    # The Gram matrix of all rows is not needed, and the Hessian is kept for the next solve, which
    # starts at the better of its own start and the fit to the subsample.
    assert problem.prepared.preconditioner.gram is None
    hessian = problem.prepared.preconditioner.matrix
    majoriser = gram.prepared.preconditioner.matrix
    assert np.trace(hessian) < 0.9 * np.trace(majoriser)
    again = SOLVERS["gram"].solve(replace(problem, start=by_hessian.linear))
    assert again.n_iter <= 2 < by_hessian.n_iter
    assert_allclose(again.value, by_gram.value, rtol=1e-8)


def test_sparse_rows_take_the_hessian_of_a_subsample_without_a_gram_matrix():
    rng = np.random.default_rng(1)
    frequency = 1.0 / np.arange(1, 31)
    X = sparse.csr_matrix(rng.random((6000, 30)) < frequency)  # rare columns lack in the subsample
    y = (X @ rng.normal(size=30) + rng.normal(size=6000) > 0).astype(int)
    own = SampledHessianPolicy(min_sparse_elements=1)
    weights, loss = np.full((1, 6000), 1 / 6000), MarginLoss(1.0, 1.0, 0.0)
    solved = []
    for policy in (Policy(sampled_hessian=own), Policy()):
        design = MemoryDesign(X.astype(np.float64))
        request = Request(design, weights, (loss,), "row", 1e-4, True, policy=policy)
        prepared = SOLVERS["gram"].prepare(request)
        tasks, alphas = Tasks.of(Labels(y, 2), weights[0], loss), np.array([1e-4])
        problem = Problem(prepared, tasks, alphas, prepared.zeros(1), 200, 1e-8, policy=policy)
        assert plan_gram(problem).samples_hessian == (policy.sampled_hessian is own)
        solved.append((SOLVERS["gram"].solve(problem), prepared.preconditioner.gram))
    (by_hessian, no_gram), (by_gram, gram) = solved
    assert no_gram is None
    assert gram is not None
    assert_allclose(by_hessian.value, by_gram.value, rtol=2e-8)
    assert by_hessian.gap[0] <= 1e-8


def test_one_small_estimate_of_the_gap_suffices_with_the_hessian_of_a_subsample():
    for certain_fraction in (0.25, 1e-3):
        own = SampledHessianPolicy(
            min_columns=1, rows_per_column=20, certain_fraction=certain_fraction
        )
        problem = sampled(Policy(sampled_hessian=own))
        planned = replace(plan_gram(problem), n_confirmations=1000, tol=1e-5)
        gaps = [step.gap for step in minimise_by_sampled_hessian(problem, planned).history]
        assert gaps[-1] <= 1e-5 * certain_fraction < min(gaps[:-1])


def test_a_subsample_without_weight_leaves_the_gram_matrix():
    policy = Policy(sampled_hessian=SampledHessianPolicy(min_columns=1, rows_per_column=20))
    problem = sampled(policy)
    drawn = stratified_rows(4000, 400)
    weights = np.ones(4000)
    weights[drawn] = 0.0
    tasks = replace(problem.tasks, weights=weights[np.newaxis] / weights.sum())
    assert subsample(replace(problem, tasks=tasks), 400) is None
    found = minimise_by_sampled_hessian(
        replace(problem, tasks=tasks), replace(plan_gram(problem), max_steps=3)
    )
    assert found.n_iter <= 3


def test_identity_standardisation_of_factored_rows(rows):
    _, array, *_ = rows
    factored, _ = both_designs(rows)
    norms = factored.row_norms(Standardisation.identity(7))
    assert_allclose(norms, np.linalg.norm(array, axis=1))


def test_solves_in_parts_are_those_of_all_columns():
    rng = np.random.default_rng(8)
    lower = np.tril(rng.normal(size=(6, 6))) + 4.0 * np.eye(6)
    design = design_for(FactoredRows(rng.normal(size=(9, 6)), lower))
    columns = rng.normal(size=(6, 11))
    for size in (1, 4, 11):
        found = design._solve(columns, max_columns=size)
        assert_allclose(lower @ found, columns, atol=1e-12)
