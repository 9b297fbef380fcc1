"""Device arrays of other libraries, compared with the same data in NumPy."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit._namespaces import is_device_array, to_device_of, to_numpy
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.classifiers._labels import encode_labels
from marginpursuit.classifiers._leverage import bounded_weights
from marginpursuit.classifiers._link import exact_probabilities
from marginpursuit.classifiers._margins import ArrayMargins, Margins
from marginpursuit.classifiers._parameters import SCALE_RULES
from marginpursuit.design import ArrayDesign, arrays, design_for
from marginpursuit.design.arrays import ArrayPolicy
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, Tasks

# One solver for rows in memory and elsewhere: two solvers differ by their tolerance.
classifier = partial(MarginPursuitClassifier, solver="gram")
published = partial(MarginPursuitClassifier.as_published, solver="gram")

strict = pytest.importorskip("array_api_strict")
DEVICE1 = strict.Device("device1")

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
has_cuda = torch is not None and torch.cuda.is_available()
DEVICE = "cuda" if has_cuda else "cpu"


def in_strict(values, dtype=None):
    return strict.asarray(np.array(values), dtype=dtype, device=DEVICE1)


def in_torch(values, dtype):
    return torch.asarray(np.array(values), device=DEVICE).to(getattr(torch, dtype))


KINDS = {
    **{f"strict-{name}": name for name in ("float64", "float32", "uint8", "int64", "bool")},
    **{
        f"torch-{name}": pytest.param(name, marks=needs_torch)
        for name in ("float64", "float32", "float16", "bfloat16", "uint8", "int16")
    },
}


@pytest.fixture(params=[pytest.param(k, marks=getattr(v, "marks", ())) for k, v in KINDS.items()])
def case(request):
    """A device array, the same in float64, labels of 3 classes, weights, and a tolerance."""
    library, _, name = request.param.partition("-")
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2 if name == "bool" else 9, (203, 7))
    matrix = (
        in_torch(values, name) if library == "torch" else in_strict(values, getattr(strict, name))
    )
    weights = rng.random(203) * (rng.random(203) > 0.1)
    exact = name in ("float64", "int64")
    return (
        matrix,
        values.astype(float),
        Labels(rng.integers(0, 3, 203), 3),
        weights / weights.sum(),
        1e-12 if exact else 2e-6,
    )


def designs(matrix, rows, weights):
    """Return an `ArrayDesign` and the reference design, with standardisation and Gram matrix.

    Small blocks and groups give several of each; the last ones are partly filled.
    """
    policy = ArrayPolicy(block_elements=64 * 7, small_group_rows=16)
    tested, trusted = ArrayDesign(matrix, policy=policy), design_for(rows)
    return (
        tested,
        trusted,
        tested.standardisation_and_gram(weights, centred=True),
        trusted.standardisation_and_gram(weights, centred=True),
    )


@pytest.mark.parametrize("factor", [1, 40], ids=["all near", "some far away"])
def test_bounded_weights_stay_on_the_device(factor):
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(203, 7))
    rows[:9] *= factor
    labels = Labels(rng.integers(0, 3, 203), 3)
    weights = rng.integers(0, 4, 203).astype(float)
    data = TrainingData(rows, labels, weights / weights.sum(), 203.0)
    own = TrainingData(
        in_strict(rows),
        Labels(in_strict(labels.codes, strict.uint8), 3),
        in_strict(data.weights),
        203.0,
    )
    true = bounded_weights(design_for(rows), data, 1.0, centred=True)
    found = bounded_weights(design_for(own.matrix), own, 1.0, centred=True)
    assert (true.variance_weights is None) == (factor == 1)
    for name in ("weights", "variance_weights"):
        ours, theirs = getattr(found, name), getattr(true, name)
        if theirs is not None:
            assert type(ours) is type(own.matrix)
            assert_allclose(to_numpy(ours), theirs, rtol=1e-12)


@pytest.mark.parametrize("positive", [[2], [0, 1, 2], [0, 2, 2, 1]])
def test_sweeps(case, positive):
    matrix, rows, labels, weights, precision = case
    fold_weights = np.stack([weights, np.roll(weights, 20)])
    losses = [MarginLoss(1.0, 0.7, 0.4), MarginLoss(2.0, 0.3, 0.0), MarginLoss(1.0, 9.0, 1.0)] * 2
    tasks = Tasks(
        labels.codes,
        fold_weights,
        np.array(positive),
        np.arange(len(positive)) % 2,
        tuple(losses[: len(positive)]),
    )
    tested, trusted, _, (z, _) = designs(matrix, rows, weights)
    rng = np.random.default_rng(4)
    coef, intercept = rng.normal(size=(7, len(positive))), rng.normal(size=len(positive))
    found, true = (design.sweep(coef, intercept, tasks, z) for design in (tested, trusted))
    for name in ("value", "gradient", "slope"):
        assert_allclose(getattr(found, name), getattr(true, name), rtol=precision, atol=precision)
    scores = trusted.scores(coef, intercept, z)
    found = tested.scores(coef, intercept, z)
    assert type(found) is type(matrix)
    assert_allclose(to_numpy(found), scores, rtol=precision, atol=10 * precision)
    held_out = fold_weights > np.median(fold_weights)
    found = tested.held_out_scores(*z.to_data((coef, intercept)), held_out, tasks.fold)
    for k, fold in enumerate(found):
        assert fold.dtype == np.float64
        true = scores[held_out[k]][:, tasks.fold == k]
        assert_allclose(fold, true, rtol=precision, atol=10 * precision)
    assert tested.n_passes == trusted.n_passes + 1


def test_moments(case):
    matrix, rows, _, weights, precision = case
    tested, trusted, (ours, gram), (z, oracle) = designs(matrix, rows, weights)
    closely = {"rtol": precision, "atol": precision}
    assert_allclose(gram, oracle, **closely)
    assert_allclose(ours.mean, z.mean, **closely)
    other = np.random.default_rng(5).random(203)
    for call in (
        lambda design: design.gram(other, z) / other.sum(),
        lambda design: design.adjoint(other, z) / other.sum(),
        lambda design: design.fold_variances(np.stack([weights, weights[::-1]]), z, centred=True),
        lambda design: design.row_products(np.arange(1.0, 8.0), z) / 7,
        lambda design: design.mean_square(weights) / 100,
        lambda design: design.standardisation(weights, centred=False).inverse_deviation,
    ):
        assert_allclose(call(tested), call(trusted), rtol=10 * precision, atol=10 * precision)


def test_constant_columns():
    for constant in (0.0, 0.1, 1e6):
        rows = np.random.default_rng(0).normal(size=(5000, 3)).astype(np.float32)
        rows[:, 1] = constant
        for n_rows in (3, 5000):
            design, weights = ArrayDesign(in_strict(rows[:n_rows])), np.arange(1.0, n_rows + 1.0)
            z = design.standardisation(weights / weights.sum(), centred=True)
            assert_array_equal(z.varies, [True, False, True])


X, Y = load_digits(return_X_y=True)
Y2 = Y % 2


@pytest.mark.filterwarnings("ignore:.*took all steps:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("y", [Y % 3, Y2 == 1, Y2 - 0.0], ids=["three", "bool", "float"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"class_weight": "balanced", "scale": "variance"},
        {"class_weight": {0: 3.0, 1: 0.5, 2: 0.7}, "scale": "quantile"},
        {"fit_intercept": False, "scale": "confidence"},
        {"solver": "lbfgs", "alpha": 1e-1, "alpha_unit": "standardised"},
        {"solver": "steepest", "max_iter": 7, "scale": 2.0},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*took all steps")
def test_fit_equals_the_fit_in_numpy(options, y, weighted):
    rng = np.random.default_rng(0)
    weight = rng.random(len(X)) * (rng.random(len(X)) > 0.2) if weighted else None
    reference = published(**options).fit(X, y, weight)
    weight = None if weight is None else in_strict(weight)
    on_device = published(**options).fit(in_strict(X), in_strict(y), weight)
    assert_array_equal(on_device.classes_, reference.classes_)
    assert on_device.classes_.dtype == reference.classes_.dtype
    for name in ("coef_", "intercept_", "objective_", "scale_", "n_iter_", "n_passes_"):
        assert_allclose(getattr(on_device, name), getattr(reference, name), rtol=1e-7, atol=1e-9)
    for name in ("location", "mean", "variance", "skewness", "quantiles"):
        found, true = (getattr(fit.margin_statistics_, name) for fit in (on_device, reference))
        assert_allclose(found, true, rtol=1e-7, atol=1e-9)


def test_fit_with_newton_steps():
    options = {"overconfidence": 0.0, "scale": 0.3}
    reference = classifier(**options).fit(X, Y2)
    on_device = classifier(**options).fit(in_strict(X), in_strict(Y2))
    assert on_device.n_iter_ > 10
    assert on_device.objective_ == pytest.approx(reference.objective_, rel=1e-6)


@pytest.mark.parametrize("shape", [(60, 90), (90, 60)])
def test_wide_and_narrow_shapes(shape):
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=shape), rng.integers(0, 3, shape[0])
    exact = classifier(alpha=0.1, tol=1e-12)
    reference = clone(exact).fit(rows, y)
    on_device = clone(exact).fit(in_strict(rows), y)
    assert_allclose(on_device.coef_, reference.coef_, rtol=1e-7, atol=1e-9)
    warm = clone(exact).set_params(warm_start=True).fit(in_strict(rows), y)
    warm.fit(in_strict(rows), y)
    assert_allclose(warm.coef_, reference.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
@needs_torch
def test_dtypes_exact_in_float32(dtype):
    """Pixels from 0 to 16 are exact in all of these dtypes.

    Pixels that are rarely set have little curvature: a suboptimality of 2e-8 leaves 2e-3 in the
    scores of the few rows that have them.
    """
    model = classifier(overconfidence=1.0, tol=2e-8)
    reference = clone(model).fit(X, Y)
    tensor = in_torch(X, dtype)
    if not is_device_array(tensor):
        on_device = clone(model).fit(tensor, torch.asarray(Y))
        assert_array_equal(on_device.coef_, clone(model).fit(tensor.numpy(), Y).coef_)
    on_device = clone(model).fit(in_strict(X, strict.float32), Y)
    for fit in (on_device, clone(model).fit(tensor, Y)):
        assert fit.objective_ == pytest.approx(reference.objective_, rel=1e-6)
        assert_allclose(fit.decision_function(X), reference.decision_function(X), atol=3e-3)
        statistics = fit.margin_statistics_
        assert_allclose(statistics.quantiles, reference.margin_statistics_.quantiles, atol=1e-3)
        assert_allclose(statistics.location, reference.margin_statistics_.location, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, "negligible"])
def test_linearly_dependent_columns(alpha):
    """The Gram matrix is singular; errors of float32 may make eigenvalues negative."""
    rng = np.random.default_rng(0)
    once, classes = rng.normal(size=(20_000, 10)), np.eye(6)[rng.integers(0, 6, 20_000)]
    rows = np.hstack([once, once, 5 + 3 * classes, classes, 1e4 + 1e3 * once]).astype(np.float32)
    y = (once[:, 0] + rng.normal(size=len(once)) > 0) * 1
    reference = published(alpha=alpha).fit(once, y)
    on_device = published(alpha=alpha).fit(in_strict(rows), y)
    assert on_device.objective_ == pytest.approx(reference.objective_, rel=2e-3)


def test_probabilities_where_the_link_is_flat():
    scores = np.array([[-3.0, -2.0, -5.0], [2.0, 3.0, 4.0], [0.1, -0.2, 0.3], [1.0, 1.0, -1.0]])
    loss = MarginLoss(1.0, 0.6)
    found = exact_probabilities(in_strict(scores), loss)
    assert_allclose(to_numpy(found), exact_probabilities(scores, loss), rtol=1e-12)


@pytest.mark.parametrize("y", [Y, Y2, Y2 == 0], ids=["ten", "two", "bool"])
def test_predictions_stay_on_the_device(y):
    model = classifier().fit(X, y)
    samples = in_strict(X)
    for method in ("decision_function", "predict", "predict_proba"):
        found, true = getattr(model, method)(samples), getattr(model, method)(X)
        assert found.device == DEVICE1
        assert found.shape == true.shape
        assert_allclose(to_numpy(found), true, rtol=1e-12, atol=1e-12)
    assert model.score(samples, in_strict(y)) == model.score(samples, y) == model.score(X, y)


def test_predicted_text_labels_are_numpy_arrays():
    text = np.array(["even", "odd"])[Y2]
    model = classifier().fit(in_strict(X), text)
    assert_array_equal(model.predict(in_strict(X)), model.predict(X))
    assert model.score(in_strict(X), text) > 0.85


@pytest.mark.parametrize("y", [Y2, Y % 3], ids=["two", "three"])
@pytest.mark.parametrize("link", ["exact", "fitted"])
def test_predictions_after_selection_stay_on_the_device(y, link):
    model = MarginPursuitClassifierCV(
        scales=[1.0], alphas=[1e-3], cv=2, link=link, scoring="neg_log_loss"
    )
    samples = in_strict(X, strict.float32)
    model.fit(samples, in_strict(y))
    for method in ("decision_function", "predict", "predict_proba"):
        found, true = getattr(model, method)(samples), getattr(model, method)(X)
        assert found.device == DEVICE1
        assert_allclose(to_numpy(found), true, atol=1e-4)
    weights = 1.0 + Y
    true = model.score(X, y, weights)
    for labels in (y, in_strict(y)):
        assert model.score(samples, labels, in_strict(weights)) == pytest.approx(true, rel=1e-5)


def test_partial_fit_equals_numpy():
    reference, on_device = classifier(), classifier()
    for rows in (slice(0, 900), slice(900, 1797)):
        reference.partial_fit(X[rows], Y2[rows], classes=[0, 1])
        on_device.partial_fit(in_strict(X[rows]), in_strict(Y2[rows]), classes=[0, 1])
    assert_array_equal(on_device.coef_, reference.coef_)


def test_selection_copies_labels_weights_and_held_out_scores_and_no_rows(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(9000, 40))
    y = (rows[:, 0] > 0) * 1
    on_device, sizes = in_strict(rows), []
    to_host, to_device = np.from_dlpack, strict.asarray
    monkeypatch.setattr(np, "from_dlpack", lambda a, **o: sizes.append(a.size) or to_host(a, **o))
    monkeypatch.setattr(
        strict, "asarray", lambda a, **o: sizes.append(np.size(a)) or to_device(a, **o)
    )
    MarginPursuitClassifierCV(scales=[1.0], alphas=[1e-3, 1e-4], cv=3).fit(on_device, y)
    assert max(sizes) == 3 * 9000  # the weights of three folds
    assert sum(size > 41 * 41 for size in sizes) < 40


def test_copies_have_the_size_of_the_coefficients(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(5000, 6))
    y = (rows[:, 0] > 0) * 1
    on_device, labels = in_strict(rows), in_strict(y)
    sizes = {"host": [], "device": []}
    to_host, to_device = np.from_dlpack, strict.asarray

    def counted_to_host(array, **options):
        sizes["host"].append(array.size)
        return to_host(array, **options)

    def counted_to_device(values, **options):
        sizes["device"].append(np.size(values) if not hasattr(values, "size") else values.size)
        return to_device(values, **options)

    monkeypatch.setattr(np, "from_dlpack", counted_to_host)
    monkeypatch.setattr(strict, "asarray", counted_to_device)
    model = published().fit(on_device, labels)
    assert len(sizes["host"]) > model.n_passes_
    assert max(sizes["host"]) <= 7 * 7
    assert max(sizes["device"]) <= 7 * 7
    published().fit(on_device, y)
    assert sorted(sizes["device"])[-1] == 5000  # labels are copied once
    assert sorted(sizes["device"])[-2] <= 7 * 7


@pytest.mark.parametrize("factor", [1e25, 1e-25])
def test_columns_whose_squares_overflow_float32(factor):
    scaled = (X * np.where(np.arange(64) % 2, 1.0, factor)).astype(np.float32)
    alpha = 0.3 / 1797  # that of the choice, 0.1/n, determines the coefficients less
    reference = classifier(alpha=alpha).fit(scaled, Y2)
    on_device = classifier(alpha=alpha).fit(in_strict(scaled), Y2)
    assert on_device.objective_ == pytest.approx(reference.objective_, rel=1e-6)
    assert_allclose(
        on_device.coef_, reference.coef_, rtol=1e-3, atol=1e-3 * np.abs(reference.coef_).min()
    )


def test_bad_input():
    model = classifier()
    broken = X.copy()
    broken[1234, 5] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*column 5, row 1234"):
        model.fit(in_strict(broken), Y2)
    with pytest.raises(ValueError, match=r"y must have shape \(1797,\).*got \(1796,\)"):
        model.fit(in_strict(X), in_strict(Y2[1:]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(in_strict(X), Y2[1:])
    with pytest.raises(ValueError, match="Expected 2D array"):
        model.fit(in_strict(X[0]), Y2)
    with pytest.raises(ValueError, match="real numbers; got dtype complex128"):
        model.fit(in_strict(X + 1j), Y2)
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(in_strict(X), in_strict(X[:, 20] + 0.5))
    with pytest.raises(ValueError, match="missing labels; got nan in row 7, the first of 2 among"):
        model.fit(in_strict(X), in_strict(np.where(np.isin(np.arange(1797), (7, 9)), np.nan, Y)))
    with pytest.raises(ValueError, match="2 classes"):
        model.fit(in_strict(X), in_strict(0 * Y))
    with pytest.raises(ValueError, match=r"sample_weight.*-1"):
        model.fit(in_strict(X), Y2, in_strict(np.where(Y2, 1.0, -1.0)))
    model.fit(in_strict(X), Y2)
    with pytest.raises(ValueError, match="expecting 64 features"):
        model.predict(in_strict(X[:, 1:]))
    with pytest.raises(ValueError, match=r"NaN.*row 1234"):
        model.predict(in_strict(broken))


@pytest.mark.parametrize("rule", SCALE_RULES)
@pytest.mark.parametrize("equal", [True, False])
def test_margins_in_groups(rule, equal, monkeypatch):
    rng = np.random.default_rng(1)
    scores, codes = rng.standard_t(3, size=(400, 5)), rng.integers(0, 5, 400)
    weights = np.ones(400) if equal else rng.integers(0, 3, 400) + 0.0
    weights /= weights.sum()
    reference = Margins.from_scores(scores.copy(), Labels(codes, 5), weights, 400.0, 1.0)
    labels = Labels(in_strict(codes), 5)
    on_device = ArrayMargins.from_scores(in_strict(scores), labels, in_strict(weights), 400.0, 1.0)
    monkeypatch.setattr(type(on_device), "group_elements", 900)
    assert SCALE_RULES[rule](on_device) == pytest.approx(SCALE_RULES[rule](reference), rel=1e-12)
    found, true = on_device.statistics(0.3), reference.statistics(0.3)
    for name in ("location", "mean", "variance", "skewness", "quantiles"):
        assert_allclose(getattr(found, name), getattr(true, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "labels",
    [[0, 1], [3, 4], [-3, 5, 7], [4, 19], [4, 20], [-128, 127], [False, True], [0.5, 2.0]],
    ids=str,
)
def test_label_codes_are_ascending(labels):
    labels = np.array(labels)
    labels = labels.astype(np.int8) if labels.min() == -128 else labels
    y = np.random.default_rng(0).permutation(np.repeat(labels, 5))
    classes, codes = encode_labels(in_strict([[1.0]]), in_strict(y))
    true = np.unique(y, return_inverse=True)
    assert classes.dtype == y.dtype
    assert codes.dtype == strict.uint8
    assert_array_equal(classes, true[0])
    assert_array_equal(to_numpy(codes), true[1])


def test_values_of_any_type_are_copied_to_the_device():
    array = in_strict([1.0])
    for values in (2.0, [2.0], np.array([2.0]), in_strict([2.0])):
        found = to_device_of(array, values, strict.float32)
        assert found.device == DEVICE1
        assert found.dtype == strict.float32
    assert not any(is_device_array(x) for x in (X, X[0, 0], [1.0], None, strict.asarray([1.0])))


@needs_torch
class TestFusedKernel:
    """The kernels run in Triton's interpreter if there is no CUDA device."""

    @pytest.fixture
    def kernel(self):
        pytest.importorskip("triton", reason="triton is not installed")
        from marginpursuit._kernels import _triton

        return _triton

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
    @pytest.mark.parametrize("shape", [(1, 1), (75, 5), (67, 54), (23, 130), (5, 1100)])
    def test_sweep(self, kernel, dtype, shape):
        rng = np.random.default_rng(0)
        matrix = in_torch(rng.integers(0, 100, shape), dtype)
        rows = matrix.to(torch.float64).cpu().numpy()
        codes = rng.integers(0, 3, shape[0]).astype(np.uint8)
        weights = rng.random(shape[0]) / shape[0]
        coef = rng.normal(size=shape[1]).astype(np.float32) / 100
        for loss in (MarginLoss(1.0, 0.7, 0.4), MarginLoss(2.0, 1e-3, 0.0), MarginLoss(1.0, 1e30)):
            found = kernel.sweep(
                matrix,
                in_torch(codes, "uint8"),
                1,
                in_torch(weights, "float64"),
                coef,
                0.1,
                loss,
            )
            sign = np.where(codes == 1, 1.0, -1.0)
            margins = sign * (rows @ coef.astype(float) + 0.1)
            factors = weights * sign * loss.derivative(margins)
            true = [*(factors @ rows), weights @ loss.value(margins), factors.sum()]
            size = np.append(np.abs(factors) @ np.abs(rows), [true[-2], np.abs(factors).sum()])
            assert_array_equal(np.abs(found - true) <= 1e-5 * size + 1e-12, True)

    def test_strided_rows_and_broadcast_weights(self, kernel):
        """Rows may have a larger stride than their length; weights may have stride zero."""
        wide = in_torch(np.random.default_rng(0).normal(size=(90, 20)), "float32")
        codes, weight = in_torch(np.arange(90) % 2, "uint8"), in_torch(1 / 90, "float64")
        coef = np.linspace(-1, 1, 7)
        common = (codes, 1, weight.expand(90), coef, 0.0, MarginLoss())
        narrow = wide[:, 3:10]
        assert narrow.stride(0) == 20
        found = kernel.sweep(narrow, *common)
        # Other strides are loaded by other lanes, whose sums have another order.
        assert_allclose(found, kernel.sweep(narrow.contiguous(), *common), rtol=1e-5, atol=1e-7)
        full = kernel.sweep(narrow, codes, 1, weight.expand(90).contiguous(), *common[3:])
        assert_array_equal(found, full)
        same = narrow[:1].expand(90, 7)
        assert_array_equal(kernel.sweep(same, *common), kernel.sweep(same.contiguous(), *common))

    @pytest.mark.parametrize("equal", [True, False])
    @pytest.mark.parametrize(("dtype", "shape"), [("float32", (75, 5)), ("uint8", (37, 54))])
    def test_moments(self, kernel, dtype, shape, equal):
        rng = np.random.default_rng(0)
        matrix = in_torch(rng.integers(0, 100, shape) + 100, dtype)
        rows, centre = matrix.to(torch.float64).cpu().numpy(), 100.0 + rng.integers(0, 9, shape[1])
        weights = np.full(shape[0], 0.3) if equal else rng.normal(size=shape[0])
        on_device = in_torch(weights, "float64")
        on_device = on_device[:1].expand(shape[0]) if equal else on_device
        first, second = kernel.moments(matrix, on_device, centre)
        assert_allclose(first, weights @ (rows - centre), rtol=1e-12, atol=1e-10)
        assert_allclose(second, weights @ (rows - centre) ** 2, rtol=1e-12, atol=1e-8)

    def test_nan_propagates(self, kernel):
        matrix = torch.ones((40, 3), device=DEVICE)
        matrix[20, 1] = np.nan
        equal = torch.full((40,), 1 / 40, dtype=torch.float64, device=DEVICE)
        found = kernel.sweep(matrix, equal.to(torch.uint8), 1, equal, np.ones(3), 0.0, MarginLoss())
        assert np.isnan(found[-2])

    def test_complete_fit(self, kernel, monkeypatch):
        monkeypatch.setattr(arrays, "_fused_kernels", lambda _: kernel)
        calls = []
        monkeypatch.setattr(
            kernel, "sweep", lambda *args, sweep=kernel.sweep: calls.append(1) or sweep(*args)
        )
        few, y = X[:200, 20:44], Y2[:200]
        reference = classifier().fit(few, y)
        on_device = classifier().fit(in_torch(few, "bfloat16"), torch.asarray(y))
        assert len(calls) >= reference.n_iter_
        assert on_device.objective_ == pytest.approx(reference.objective_, rel=1e-6)
        assert_allclose(
            on_device.decision_function(few), reference.decision_function(few), atol=1e-3
        )


def assert_same_minimum(fit, reference):
    """Two fits are within 10 tol of the minimum F*, and so are their coefficients.

    The penalty α d Σ_j v_j w_j²/2 makes F strongly convex: the distance of each fit from the
    minimiser is at most √(20 tol F*/(α d)) in standardised coefficients.
    """
    assert fit.objective_ == pytest.approx(reference.objective_, rel=10 * fit.tol)
    deviation = X.std(axis=0)
    penalty = reference.alpha_ * np.count_nonzero(deviation)
    distance = 2 * np.sqrt(20 * fit.tol * reference.objective_ / penalty)
    assert_allclose(fit.coef_ * deviation, reference.coef_ * deviation, rtol=0, atol=distance)


def test_fits_elsewhere_have_the_same_minimum():
    model = classifier(tol=1e-10, leverage_bound=None)
    reference = clone(model).fit(X, Y)
    assert_same_minimum(model.fit(in_strict(X), in_strict(Y)), reference)


@pytest.mark.parametrize("alpha", [1e-4, 1e-3, 1e-2])
def test_few_rows_in_float32_reach_the_tolerance_without_a_warning(alpha):
    options = {"alpha": alpha, "probability": None}
    reference = classifier(**options).fit(X[:80], Y[:80])
    fit = classifier(**options).fit(in_strict(X[:80], strict.float32), Y[:80])
    assert fit.objective_ == pytest.approx(reference.objective_, rel=10 * fit.tol)


@pytest.mark.skipif(not has_cuda, reason="there is no CUDA device")
class TestCuda:
    """Tests that need a CUDA device."""

    def test_fits_are_bitwise_reproducible(self):
        tensor, labels = in_torch(X, "float32"), torch.asarray(Y2, device="cuda")
        fits = [classifier().fit(tensor, labels) for _ in range(3)]
        for fit in fits[1:]:
            assert_array_equal(fit.coef_, fits[0].coef_)

    def test_tf32_is_disabled_and_restored(self):
        torch.set_float32_matmul_precision("high")
        try:
            fit = classifier(tol=1e-6).fit(in_torch(X, "float32"), Y)
            assert torch.get_float32_matmul_precision() == "high"
        finally:
            torch.set_float32_matmul_precision("highest")
        reference = classifier(tol=1e-6).fit(X, Y)
        assert fit.objective_ == pytest.approx(reference.objective_, rel=1e-6)

    def test_cupy(self):
        cupy = pytest.importorskip("cupy")
        # The three iterations of the published loss hardly amplify the rounding of sums.
        reference = published().fit(X, Y)
        on_device = published().fit(cupy.asarray(X), cupy.asarray(Y))
        assert_allclose(on_device.coef_, reference.coef_, rtol=1e-7, atol=1e-9)
        # The iterations of the default do: a permutation of the rows changes its objective by as
        # much as `tol` allows, which is 10 tol by the property test of convergence.
        model = classifier(tol=1e-10, leverage_bound=None)
        reference = clone(model).fit(X, Y)
        on_device = model.fit(cupy.asarray(X), cupy.asarray(Y))
        assert_same_minimum(on_device, reference)
        assert isinstance(on_device.predict_proba(cupy.asarray(X)), cupy.ndarray)
        assert on_device.score(cupy.asarray(X), cupy.asarray(Y)) == reference.score(X, Y)
