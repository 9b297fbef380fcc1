"""The base of the kernel classifiers, through a ridge fit that scikit-learn makes too."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from marginpursuit import PegasosClassifier
from marginpursuit.classifiers._kernel_expansion import KernelClassifier


class Ridge(KernelClassifier):
    """Fits signs by least squares in the feature space of the kernel."""

    def __init__(self, kernel="rbf", gamma="scale", degree=3, coef0=0.0, class_weight=None):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight

    def fit(self, X, y, sample_weight=None):
        data = self._check_training(X, y, sample_weight)
        self._set_kernel(data)
        gram = self._kernel_matrix(data.matrix, data.matrix)
        signs = np.column_stack([data.labels.sign(k) for k in data.labels.positive_classes])
        coef = np.linalg.solve(gram + np.eye(len(gram)), signs)
        self._keep_expansion(data.matrix, coef, np.zeros(signs.shape[1]))
        return self


def normal(n=60, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(1.0, 2.0, size=(n, d))
    return X, np.argmax(X[:, :n_classes] + rng.normal(size=(n, n_classes)), axis=1)


def product(rows, others):
    return np.asarray((rows @ others.T) ** 2)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid", "precomputed", product])
def test_scores_are_those_of_kernel_ridge(kernel, n_classes):
    X, y = normal(n_classes=n_classes)
    X = X @ X.T if kernel == "precomputed" else X
    # KernelRidge calls a function for each pair of rows, and takes no name for gamma.
    theirs = "poly" if kernel is product else kernel
    options = {"gamma": 0.001 if kernel == "sigmoid" else 0.1, "degree": 3, "coef0": 0.5}
    other = {"gamma": 1.0, "degree": 2, "coef0": 0.0} if kernel is product else options
    signs = np.where(y[:, np.newaxis] == np.arange(n_classes), 1.0, -1.0)[:, -n_classes:]
    signs = signs[:, 1] if n_classes == 2 else signs
    expected = KernelRidge(kernel=theirs, **other).fit(X, signs).predict(X)
    found = Ridge(kernel=kernel, **options).fit(X, y).decision_function(X)
    assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_gamma_is_that_of_scikit_learn():
    X, y = normal()
    for rows in (X, X / 10):
        assert_allclose(Ridge().fit(rows, y).gamma_, SVC().fit(rows, y)._gamma)
    assert Ridge(gamma="auto").fit(X, y).gamma_ == 1 / 4


def test_gamma_counts_weights_and_reads_sparse_rows():
    X, y = normal()
    X[np.abs(X) < 1.0] = 0.0
    weights = np.random.default_rng(1).integers(0, 3, len(X))
    doubled = Ridge().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights)).gamma_
    assert_allclose(Ridge().fit(X, y, weights).gamma_, doubled)
    assert_allclose(Ridge().fit(sparse.csr_matrix(X), y, weights).gamma_, doubled)


def test_gamma_of_a_constant_matrix_is_one():
    assert Ridge().fit(np.ones((4, 2)), [0, 1, 0, 1]).gamma_ == 1.0


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_sparse_and_dense_rows_have_the_same_scores(kernel):
    X, y = normal()
    X[np.abs(X) < 1.0] = 0.0
    dense, rows = Ridge(kernel).fit(X, y), Ridge(kernel).fit(sparse.csr_matrix(X), y)
    assert_allclose(rows.decision_function(sparse.csr_matrix(X)), dense.decision_function(X))
    assert sparse.issparse(rows.support_vectors_)


@pytest.mark.parametrize("convert", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_samples_of_a_dense_fit_and_dense_samples_of_a_sparse_fit(convert):
    X, y = normal()
    X[np.abs(X) < 1.0] = 0.0
    dense, rows = Ridge("rbf").fit(X, y), Ridge("rbf").fit(convert(X), y)
    expected = dense.decision_function(X)
    assert_allclose(dense.decision_function(convert(X)), expected)
    assert_allclose(rows.decision_function(X), expected)


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", product])
def test_only_the_linear_kernel_has_coefficients_of_the_columns(kernel):
    X, y = normal()
    model = PegasosClassifier(kernel=kernel, max_iter=50, random_state=0).fit(X, y)
    assert hasattr(model, "coef_") == (kernel == "linear")
    assert hasattr(model, "dual_coef_") == (kernel != "linear")


def test_blocks_do_not_matter():
    class InBlocks(Ridge):
        _block_elements = 130

    X, y = normal()
    whole, blocks = (kind().fit(X, y).decision_function(X) for kind in (Ridge, InBlocks))
    assert_allclose(blocks, whole)


def test_a_fit_does_not_follow_later_changes_of_the_data():
    X, y = normal()
    model = Ridge().fit(X, y)
    before = model.decision_function(X[:5])
    rows = X[:5].copy()
    X[:] = 0.0
    assert_allclose(model.decision_function(rows), before)


def test_a_precomputed_matrix_must_be_square():
    with pytest.raises(ValueError, match="square"):
        Ridge("precomputed").fit(np.ones((4, 3)), [0, 1, 0, 1])


def test_a_function_must_return_a_matrix_of_kernel_values():
    with pytest.raises(ValueError, match=r"shape \(4, 4\)"):
        Ridge(lambda rows, others: np.ones(3)).fit(np.ones((4, 3)), [0, 1, 0, 1])


def test_missing_values_are_named():
    X, y = normal()
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*column 2, row 3"):
        Ridge().fit(X, y)
