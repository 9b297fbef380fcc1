"""LDM and ODM: each solver against the articles, against other libraries and against the others."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import check_grad, minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

from marginpursuit import LDMClassifier, ODMClassifier
from marginpursuit.bounds import leave_one_out_bound
from marginpursuit.classifiers._distribution import SolverLimits


def normal(n=120, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.3, 1.0, size=(n, d))
    score = X[:, :n_classes] + rng.normal(size=(n, n_classes))
    return X, np.argmax(score, axis=1)


def ldm_objective(w, X, sign, weights, lambda1, lambda2, lambda3):
    margins = sign * (X @ w)
    mean = weights @ margins
    variance = weights @ (margins - mean) ** 2
    hinge = weights @ np.maximum(1 - margins, 0)
    return 0.5 * w @ w + lambda1 * variance - lambda2 * mean + lambda3 * hinge


def odm_objective(w, X, sign, weights, loss_weight, mu, theta):
    margins = sign * (X @ w)
    short, above = np.maximum(1 - theta - margins, 0), np.maximum(margins - 1 - theta, 0)
    return 0.5 * w @ w + loss_weight / (1 - theta) ** 2 * weights @ (short**2 + mu * above**2)


def lamda_dual(gram, sign, lambda1, lambda2, lambda3):
    """Solve the dual as the authors write it, Q and its pseudo-inverse included, by L-BFGS-B."""
    n = len(sign)
    product = gram @ sign
    form = gram + 2 * lambda1 * (n * gram @ gram - np.outer(product, product)) / n**2
    scaled = gram * sign
    U = scaled.T @ np.linalg.pinv(form, rcond=1e-13, hermitian=True) @ scaled
    u = lambda2 / n * U.sum(axis=1) - 1
    found = minimize(
        lambda a: (0.5 * a @ U @ a + u @ a, U @ a + u),
        np.zeros(n),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, lambda3 / n)] * n,
        options={"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    # The part of the objective that the authors leave out as it does not depend on a.
    return -found.fun - 0.5 * (lambda2 / n) ** 2 * U.sum(), found.x, U


SETTINGS = [(0.0, 0.0, 50.0), (1.0, 1.0, 100.0), (20.0, 5.0, 500.0), (3.0, 0.0, 30.0)]
RBF = {"kernel": "rbf", "gamma": 0.3}


def product(rows, others):
    return np.asarray(rows @ others.T)


@pytest.mark.parametrize("kernel", [{}, {"solver": "dual"}, {"kernel": product, "solver": "dual"}])
@pytest.mark.parametrize("lambdas", SETTINGS)
def test_ldm_has_no_gap_to_the_dual_of_the_authors(lambdas, kernel):
    X, y = normal()
    sign = 2.0 * y - 1
    names = dict(zip(("lambda1", "lambda2", "lambda3"), lambdas, strict=True))
    model = LDMClassifier(
        **names, **kernel, fit_intercept=False, tol=1e-9, max_iter=20_000, random_state=0
    ).fit(X, y)
    least, alpha, U = lamda_dual(X @ X.T, sign, *lambdas)
    assert_allclose(model.objective_, least, rtol=1e-7)
    bound = leave_one_out_bound(alpha, np.diagonal(U), lambdas[2] / len(y), tolerance=1e-3)
    assert_allclose(model.leave_one_out_[0].bound, bound.bound, rtol=1e-3)
    if "kernel" not in kernel:
        weights = np.full(len(y), 1 / len(y))
        value = ldm_objective(model.coef_[0], X, sign, weights, *lambdas)
        assert_allclose(model.objective_, value, rtol=1e-10)


@pytest.mark.parametrize("solver", ["interior", "dual"])
@pytest.mark.parametrize("lambdas", SETTINGS)
def test_kernel_ldm_has_no_gap_to_the_dual_of_the_authors(lambdas, solver):
    X, y = normal(n=60)
    names = dict(zip(("lambda1", "lambda2", "lambda3"), lambdas, strict=True))
    model = LDMClassifier(
        **names, **RBF, solver=solver, fit_intercept=False, tol=1e-9, max_iter=20_000,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    gram = np.exp(-0.3 * ((X[:, np.newaxis] - X) ** 2).sum(axis=2))
    assert_allclose(model.objective_, lamda_dual(gram, 2.0 * y - 1, *lambdas)[0], rtol=1e-7)
    # The objective, of the expansion that was kept.
    coef = np.zeros(len(y))
    coef[model.support_] = model.dual_coef_[0]
    margins = (2 * y - 1) * model.decision_function(X)
    value = 0.5 * coef @ gram @ coef + lambdas[0] * margins.var() - lambdas[1] * margins.mean()
    value += lambdas[2] * np.maximum(1 - margins, 0).mean()
    assert_allclose(model.objective_, value, rtol=1e-9)


@pytest.mark.parametrize("solver", ["interior", "dual"])
def test_without_moments_ldm_is_a_support_vector_machine(solver):
    X, y = normal()
    model = LDMClassifier(
        lambda1=0, lambda2=0, lambda3=60, fit_intercept=False, solver=solver, tol=1e-10,
        max_iter=50_000, random_state=0,
    ).fit(X, y)  # fmt: skip
    peer = LinearSVC(
        loss="hinge", C=60 / len(y), fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0
    ).fit(X, y)
    assert_allclose(model.coef_, peer.coef_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("solver", ["interior", "dual"])
def test_ldm_is_a_support_vector_machine_of_whitened_rows(solver):
    X, y = normal()
    z = (2.0 * y - 1)[:, np.newaxis] * X
    values, vectors = np.linalg.eigh(np.eye(4) + 2 * 5.0 * np.cov(z.T, bias=True))
    root = vectors / np.sqrt(values) @ vectors.T
    peer = LinearSVC(
        loss="hinge", C=1.0, fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0
    ).fit(X @ root, y)
    model = LDMClassifier(
        lambda1=5, lambda2=0, lambda3=len(y), fit_intercept=False, solver=solver, tol=1e-10,
        max_iter=50_000, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert_allclose(model.coef_, peer.coef_ @ root, rtol=1e-4, atol=1e-5)


def test_pairwise_variance_is_twice_the_moment():
    X, y = normal()
    pairwise = LDMClassifier(lambda1=2, variance="pairwise").fit(X, y)
    assert_array_equal(pairwise.coef_, LDMClassifier(lambda1=4).fit(X, y).coef_)
    margins = (2 * y - 1) * pairwise.decision_function(X)
    assert_allclose(((margins[:, np.newaxis] - margins) ** 2).mean(), 2 * margins.var())


@pytest.mark.parametrize("solver", ["newton", "dual"])
@pytest.mark.parametrize("options", [(1.0, 0.8, 0.2), (100.0, 0.3, 0.0), (1000.0, 1.0, 0.7)])
def test_odm_against_a_minimiser_of_its_objective(options, solver):
    X, y = normal()
    arguments = X, 2.0 * y - 1, np.full(len(y), 1 / len(y)), *options
    names = dict(zip(("loss_weight", "mu", "theta"), options, strict=True))
    model = ODMClassifier(
        **names, solver=solver, fit_intercept=False, tol=1e-11, max_iter=50_000, random_state=0
    ).fit(X, y)
    best = minimize(odm_objective, np.zeros(4), arguments, method="BFGS", options={"gtol": 1e-5})
    assert_allclose(model.objective_, odm_objective(model.coef_[0], *arguments), rtol=1e-10)
    assert_allclose(model.objective_, best.fun, rtol=1e-8)
    assert_allclose(model.coef_[0], best.x, atol=1e-4)
    assert model.objective_ <= best.fun * (1 + 1e-12)


def test_the_slope_of_odm_is_that_of_finite_differences():
    X, y = normal()
    model = ODMClassifier(loss_weight=50.0)
    weights, sign = np.full(len(y), 1 / len(y)), 2.0 * y - 1
    terms = model._terms(weights)

    def gradient(w):
        return w - (sign * terms.minimiser(sign * (X @ w))) @ X

    def value(w):
        return odm_objective(w, X, sign, weights, 50.0, model.mu, model.theta)

    for seed in range(5):
        w = np.random.default_rng(seed).normal(size=4)
        assert check_grad(value, gradient, w) < 1e-4
        assert_allclose(value(w), 0.5 * w @ w + terms.loss(sign * (X @ w)).sum())


@pytest.mark.parametrize("solver", ["newton", "dual"])
def test_kernel_odm_against_the_dual_of_the_authors(solver):
    """With ζ and β as two blocks, as a bounded quadratic program."""
    X, y = normal(n=50)
    n, sign, (loss_weight, mu, theta) = len(y), 2.0 * y - 1, (20.0, 0.4, 0.3)
    gram = np.exp(-0.3 * ((X[:, np.newaxis] - X) ** 2).sum(axis=2))
    Q, c = sign[:, np.newaxis] * gram * sign, n * (1 - theta) ** 2 / (2 * loss_weight)
    eye = np.eye(n)
    H = np.block([[Q + c * eye, -Q], [-Q, Q + c / mu * eye]])
    slope = np.repeat([theta - 1, theta + 1], n)
    found = minimize(
        lambda a: (0.5 * a @ H @ a + slope @ a, H @ a + slope),
        np.zeros(2 * n),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * (2 * n),
        options={"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    model = ODMClassifier(
        loss_weight=loss_weight, mu=mu, theta=theta, **RBF, solver=solver, fit_intercept=False,
        tol=1e-10, max_iter=20_000, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert_allclose(model.objective_, -found.fun, rtol=1e-8)
    scores = gram @ (sign * (found.x[:n] - found.x[n:]))
    assert_allclose(model.decision_function(X), scores, atol=1e-4)


MACHINES = {
    "interior": LDMClassifier(tol=1e-10),
    "LDM dual": LDMClassifier(solver="dual", tol=1e-10, max_iter=50_000, random_state=0),
    "LDM rbf": LDMClassifier(**RBF, tol=1e-10),
    "LDM rbf dual": LDMClassifier(**RBF, solver="dual", tol=1e-10, max_iter=50_000, random_state=0),
    "newton": ODMClassifier(tol=1e-14),
    "ODM dual": ODMClassifier(solver="dual", tol=1e-12, max_iter=50_000, random_state=0),
    "ODM rbf": ODMClassifier(**RBF, tol=1e-14),
    "ODM rbf dual": ODMClassifier(**RBF, solver="dual", tol=1e-12, max_iter=50_000, random_state=0),
}
each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())


@pytest.mark.parametrize("names", [("interior", "LDM dual"), ("newton", "ODM dual")])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_solvers_and_forms_agree(names, fit_intercept):
    X, y = normal(n_classes=3)
    first, second = (
        clone(MACHINES[name]).set_params(fit_intercept=fit_intercept) for name in names
    )
    expected = first.fit(X, y).decision_function(X)
    assert_allclose(second.fit(X, y).decision_function(X), expected, atol=1e-4)
    for machine in (first, second):
        kernel = clone(machine).set_params(kernel=product).fit(X, y)
        assert_allclose(kernel.decision_function(X), expected, atol=1e-4)
    precomputed = clone(kernel).set_params(kernel="precomputed").fit(X @ X.T, y)
    assert_allclose(precomputed.decision_function(X @ X.T), expected, atol=1e-4)


@each_machine
def test_weights_count_as_repeated_rows(machine):
    X, y = normal(n_classes=3)
    weights = np.random.default_rng(1).integers(0, 3, len(y))
    weighted = clone(machine).fit(X, y, weights)
    repeated = clone(machine).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-4)
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-8)


@each_machine
def test_class_weights_are_sample_weights(machine):
    X, y = normal()
    by_class = clone(machine).set_params(class_weight={0: 1.0, 1: 3.0}).fit(X, y)
    by_sample = clone(machine).fit(X, y, np.where(y == 1, 3.0, 1.0))
    assert_allclose(by_class.decision_function(X), by_sample.decision_function(X), atol=1e-8)


@each_machine
def test_sparse_rows_are_fitted_as_dense_ones(machine):
    X, y = normal(n_classes=3)
    X[np.abs(X) < 0.5] = 0.0
    dense = clone(machine).fit(X, y).decision_function(X)
    rows = sparse.csr_matrix(X)
    assert_allclose(clone(machine).fit(rows, y).decision_function(rows), dense, atol=1e-6)


@pytest.mark.parametrize("machine", [LDMClassifier, ODMClassifier])
@pytest.mark.parametrize("solver", ["auto", "dual"])
def test_sparse_rows_are_never_made_dense(machine, solver):
    n, d = 20_000, 400
    rng = np.random.default_rng(0)
    rows = sparse.random(n, d, 0.01, "csr", random_state=rng)
    y = rows @ rng.normal(size=d) + 0.1 * rng.normal(size=n) > 0
    tracemalloc.start()
    machine(solver=solver, tol=1e-2, random_state=0).fit(rows, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * 8 * n * d


@each_machine
def test_several_classes_are_one_against_the_rest(machine):
    X, y = normal(n_classes=3)
    model = clone(machine).fit(X, y)
    for k in range(3):
        one = clone(machine).fit(X, y == k)
        assert_allclose(model.decision_function(X)[:, k], one.decision_function(X), atol=1e-4)
    assert model.duality_gap_.shape == (3,)
    assert np.all(model.duality_gap_ <= machine.tol)


@each_machine
def test_fits_are_reproducible(machine):
    X, y = normal(n_classes=3)
    first, second = clone(machine).fit(X, y), clone(machine).fit(X, y)
    assert_array_equal(first.decision_function(X), second.decision_function(X))
    generator = clone(machine).set_params(random_state=np.random.default_rng(0)).fit(X, y)
    assert_allclose(generator.decision_function(X), first.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int16, np.uint8, bool])
@pytest.mark.parametrize("name", ["interior", "LDM dual", "newton", "ODM dual"])
def test_any_dtype_is_read_as_it_is(name, dtype):
    X, y = normal()
    X = np.clip(np.round(X), 0, 3).astype(dtype)
    expected = clone(MACHINES[name]).fit(X.astype(np.float64), y).coef_
    assert_allclose(clone(MACHINES[name]).fit(X, y).coef_, expected, atol=1e-6)


@pytest.mark.parametrize("max_kernel_rows", [0, 1024])
@pytest.mark.parametrize("machine", [LDMClassifier, ODMClassifier])
def test_more_columns_than_a_matrix_is_made_for(machine, max_kernel_rows):
    class Limited(machine):
        _limits = SolverLimits(max_columns=3, max_kernel_rows=max_kernel_rows)

    X, y = normal()
    options = {"tol": 1e-10, "max_iter": 50_000, "random_state": 0}
    expected, found = (kind(**options).fit(X, y) for kind in (machine, Limited))
    assert (found.n_iter_ > 20) == (max_kernel_rows == 0), "coordinate descent takes more"
    assert_allclose(found.coef_, expected.coef_, atol=1e-4)


def test_the_leave_one_out_bound_holds():
    X, y = normal(n=40, d=3)
    options = {"lambda1": 0, "lambda2": 0, "lambda3": 40.0, "fit_intercept": False, "tol": 1e-8}
    model = LDMClassifier(**options).fit(X, y)
    wrong = []
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        # λ₃/n is what stays the same.
        fold = {**options, "lambda3": 39.0}
        wrong.append(LDMClassifier(**fold).fit(X[keep], y[keep]).predict(X[[i]])[0] != y[i])
    bound = model.leave_one_out_[0]
    assert np.mean(wrong) <= bound.counted <= bound.bound + 1e-9


@pytest.mark.parametrize("machine", [LDMClassifier, ODMClassifier])
@pytest.mark.parametrize("options", [{"solver": "dual"}, {"kernel": "rbf"}, {}])
def test_too_few_iterations_are_warned_of_with_the_gap(machine, options):
    X, y = normal()
    with pytest.warns(ConvergenceWarning, match=r"duality gap is \d.*Set max_iter above 1") as seen:
        model = machine(max_iter=1, tol=1e-12, random_state=0, **options).fit(X, y)
    assert seen[0].filename == __file__
    assert model.n_iter_ == 1
    assert model.duality_gap_[0] > 1e-12


@pytest.mark.parametrize("solver", ["auto", "dual"])
@pytest.mark.parametrize("machine", [LDMClassifier, ODMClassifier])
def test_a_kernel_must_be_symmetric_and_positive_semidefinite(machine, solver):
    y = np.arange(20) % 2
    asymmetric = np.eye(20)
    asymmetric[3, 4] = 0.5
    model = machine(kernel="precomputed", solver=solver)
    with pytest.raises(ValueError, match="symmetric"):
        model.fit(asymmetric, y)
    with pytest.raises(ValueError, match="positive semidefinite"):
        model.fit(-100.0 * np.eye(20), y)


@pytest.mark.parametrize("machine", [LDMClassifier, ODMClassifier])
def test_columns_whose_squares_overflow_are_refused(machine):
    X, y = normal()
    for options in ({}, {"kernel": "poly", "gamma": 1.0}):
        with pytest.raises(OverflowError, match=r"squares over- or underflow|kernel values exceed"):
            machine(**options).fit(X * 1e200, y)


@pytest.mark.parametrize(
    ("machine", "name", "value"),
    [
        (LDMClassifier, "lambda1", -1.0),
        (LDMClassifier, "lambda3", 0.0),
        (LDMClassifier, "variance", "mean"),
        (LDMClassifier, "solver", "newton"),
        (LDMClassifier, "kernel", "cosine"),
        (ODMClassifier, "loss_weight", np.inf),
        (ODMClassifier, "mu", 0.0),
        (ODMClassifier, "theta", 1.0),
        (ODMClassifier, "gamma", 0.0),
        (ODMClassifier, "degree", 2.5),
    ],
)
def test_parameters_are_checked(machine, name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        machine(**{name: value}).fit(*normal())


@pytest.mark.parametrize(
    ("machine", "direct"), [(LDMClassifier, "interior"), (ODMClassifier, "newton")]
)
@pytest.mark.parametrize("solver", ["sgd", "svrg"])
def test_an_unknown_solver_is_refused_with_the_known_ones(machine, direct, solver):
    with pytest.raises(ValueError, match=rf"solver must be one of \['auto', 'dual', '{direct}'\]"):
        machine(solver=solver).fit(*normal())


def test_missing_values_are_named():
    X, y = normal()
    X[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*column 1, row 5"):
        ODMClassifier().fit(X, y)


def test_folds_of_a_precomputed_kernel_are_cut_both_ways():
    X, y = normal()
    found = cross_val_score(LDMClassifier(kernel="precomputed"), X @ X.T, y)
    assert_allclose(found, cross_val_score(LDMClassifier(), X, y))
