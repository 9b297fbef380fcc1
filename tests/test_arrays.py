"""Arrays of other libraries, read where they are, against the same data in NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit._namespaces import is_device_array, to_device_of, to_numpy
from marginpursuit.classifiers._input import encode_labels
from marginpursuit.classifiers._margins import ArrayMargins, Margins
from marginpursuit.classifiers._probabilities import exact_probabilities
from marginpursuit.classifiers._scale import SCALE_RULES
from marginpursuit.design import ArrayDesign, arrays, design_for
from marginpursuit.design.arrays import ArrayPolicy
from marginpursuit.losses import MarginLoss
from marginpursuit.tasks import Labels, Tasks

strict = pytest.importorskip("array_api_strict")
ELSEWHERE = strict.Device("device1")

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
has_cuda = torch is not None and torch.cuda.is_available()
DEVICE = "cuda" if has_cuda else "cpu"


def in_strict(values, dtype=None):
    return strict.asarray(np.array(values), dtype=dtype, device=ELSEWHERE)


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
    """A matrix elsewhere, the same in float64, labels of 3 classes, weights, and a precision.

    `both` makes blocks and groups small, so that there are several, and the last is not full.
    """
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


def both(matrix, rows, weights):
    """Return the same data as two designs, the first of which is to be tested."""
    policy = ArrayPolicy(block_elements=64 * 7, small_group_rows=16)
    tested, trusted = ArrayDesign(matrix, policy), design_for(rows)
    return (
        tested,
        trusted,
        tested.standardisation_and_gram(weights, centred=True),
        trusted.standardisation_and_gram(weights, centred=True),
    )


@pytest.mark.parametrize("positive", [[2], [0, 1, 2], [0, 2, 2, 1]])
def test_sweeps(case, positive):
    matrix, rows, labels, weights, precision = case
    parts = np.stack([weights, np.roll(weights, 20)])
    losses = [MarginLoss(1.0, 0.7, 0.4), MarginLoss(2.0, 0.3, 0.0), MarginLoss(1.0, 9.0, 1.0)] * 2
    tasks = Tasks(
        labels.codes,
        parts,
        np.array(positive),
        np.arange(len(positive)) % 2,
        tuple(losses[: len(positive)]),
    )
    tested, trusted, _, (z, _) = both(matrix, rows, weights)
    rng = np.random.default_rng(4)
    coef, intercept = rng.normal(size=(7, len(positive))), rng.normal(size=len(positive))
    here, there = (design.sweep(coef, intercept, tasks, z) for design in (tested, trusted))
    for name in ("value", "gradient", "slope"):
        assert_allclose(getattr(here, name), getattr(there, name), rtol=precision, atol=precision)
    scores = trusted.scores(coef, intercept, z)
    found = tested.scores(coef, intercept, z)
    assert type(found) is type(matrix)
    assert_allclose(to_numpy(found), scores, rtol=precision, atol=10 * precision)
    chosen = parts > np.median(parts)
    found = tested.held_out_scores(*z.to_data((coef, intercept)), chosen, tasks.fold)
    for k, fold in enumerate(found):
        assert fold.dtype == np.float64
        true = scores[chosen[k]][:, tasks.fold == k]
        assert_allclose(fold, true, rtol=precision, atol=10 * precision)
    assert tested.n_passes == trusted.n_passes + 1


def test_moments(case):
    matrix, rows, _, weights, precision = case
    tested, trusted, (ours, gram), (z, oracle) = both(matrix, rows, weights)
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
def test_the_fit_is_that_of_numpy(options, y, weighted):
    rng = np.random.default_rng(0)
    weight = rng.random(len(X)) * (rng.random(len(X)) > 0.2) if weighted else None
    near = MarginPursuitClassifier(**options).fit(X, y, weight)
    weight = None if weight is None else in_strict(weight)
    far = MarginPursuitClassifier(**options).fit(in_strict(X), in_strict(y), weight)
    assert_array_equal(far.classes_, near.classes_)
    assert far.classes_.dtype == near.classes_.dtype
    for name in ("coef_", "intercept_", "objective_", "scale_", "n_iter_", "n_passes_"):
        assert_allclose(getattr(far, name), getattr(near, name), rtol=1e-7, atol=1e-9)
    for name in ("location", "mean", "variance", "skewness", "quantiles"):
        found, true = (getattr(fit.margin_statistics_, name) for fit in (far, near))
        assert_allclose(found, true, rtol=1e-7, atol=1e-9)


def test_a_fit_that_newton_steps_finish():
    options = {"overconfidence": 0.0, "scale": 0.3}
    near = MarginPursuitClassifier(**options).fit(X, Y2)
    far = MarginPursuitClassifier(**options).fit(in_strict(X), in_strict(Y2))
    assert near.n_iter_ > 20
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-6)


@pytest.mark.parametrize("shape", [(60, 90), (90, 60)])
def test_few_rows(shape):
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=shape), rng.integers(0, 3, shape[0])
    near = MarginPursuitClassifier(alpha=0.1).fit(rows, y)
    far = MarginPursuitClassifier(alpha=0.1).fit(in_strict(rows), y)
    assert_allclose(far.coef_, near.coef_, rtol=1e-7, atol=1e-9)
    warm = MarginPursuitClassifier(alpha=0.1, warm_start=True).fit(in_strict(rows), y)
    warm.fit(in_strict(rows), y)
    assert_allclose(warm.coef_, near.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
@needs_torch
def test_narrow_data(dtype):
    """Pixels from 0 to 16 are exact in all of these."""
    near = MarginPursuitClassifier().fit(X, Y)
    tensor = in_torch(X, dtype)
    if not is_device_array(tensor):
        far = MarginPursuitClassifier().fit(tensor, torch.asarray(Y))
        assert_array_equal(far.coef_, MarginPursuitClassifier().fit(tensor.numpy(), Y).coef_)
    far = MarginPursuitClassifier().fit(in_strict(X, strict.float32), Y)
    for fit in (far, MarginPursuitClassifier().fit(tensor, Y)):
        assert fit.objective_ == pytest.approx(near.objective_, rel=1e-6)
        assert_allclose(fit.decision_function(X), near.decision_function(X), atol=1e-3)
        statistics = fit.margin_statistics_
        assert_allclose(statistics.quantiles, near.margin_statistics_.quantiles, atol=1e-3)
        assert_allclose(statistics.location, near.margin_statistics_.location, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, "auto"])
def test_columns_that_depend_on_each_other(alpha):
    """Their Gram matrix is singular, and what float32 adds to it may be negative."""
    rng = np.random.default_rng(0)
    once, classes = rng.normal(size=(20_000, 10)), np.eye(6)[rng.integers(0, 6, 20_000)]
    rows = np.hstack([once, once, 5 + 3 * classes, classes, 1e4 + 1e3 * once]).astype(np.float32)
    y = (once[:, 0] + rng.normal(size=len(once)) > 0) * 1
    near = MarginPursuitClassifier(alpha=alpha).fit(once, y)
    far = MarginPursuitClassifier(alpha=alpha).fit(in_strict(rows), y)
    assert far.objective_ == pytest.approx(near.objective_, rel=2e-3)


def test_probabilities_where_the_link_is_flat():
    scores = np.array([[-3.0, -2.0, -5.0], [2.0, 3.0, 4.0], [0.1, -0.2, 0.3], [1.0, 1.0, -1.0]])
    loss = MarginLoss(1.0, 0.6)
    found = exact_probabilities(in_strict(scores), loss)
    assert_allclose(to_numpy(found), exact_probabilities(scores, loss), rtol=1e-12)


@pytest.mark.parametrize("y", [Y, Y2, Y2 == 0], ids=["ten", "two", "bool"])
def test_predictions_stay_where_the_samples_are(y):
    model = MarginPursuitClassifier().fit(X, y)
    here = in_strict(X)
    for method in ("decision_function", "predict", "predict_proba"):
        found, true = getattr(model, method)(here), getattr(model, method)(X)
        assert found.device == ELSEWHERE
        assert found.shape == true.shape
        assert_allclose(to_numpy(found), true, rtol=1e-12, atol=1e-12)
    assert model.score(here, in_strict(y)) == model.score(here, y) == model.score(X, y)


def test_text_labels_are_answered_in_numpy():
    text = np.array(["even", "odd"])[Y2]
    model = MarginPursuitClassifier().fit(in_strict(X), text)
    assert_array_equal(model.predict(in_strict(X)), model.predict(X))
    assert model.score(in_strict(X), text) > 0.85


@pytest.mark.parametrize("y", [Y2, Y % 3], ids=["two", "three"])
@pytest.mark.parametrize("link", ["exact", "fitted"])
def test_predictions_of_a_selection_stay_where_the_samples_are(y, link):
    model = MarginPursuitClassifierCV(
        scales=[1.0], alphas=[1e-3], cv=2, link=link, scoring="neg_log_loss"
    )
    here = in_strict(X, strict.float32)
    model.fit(here, in_strict(y))
    for method in ("decision_function", "predict", "predict_proba"):
        found, true = getattr(model, method)(here), getattr(model, method)(X)
        assert found.device == ELSEWHERE
        assert_allclose(to_numpy(found), true, atol=1e-4)
    weights = 1.0 + Y
    true = model.score(X, y, weights)
    for labels in (y, in_strict(y)):
        assert model.score(here, labels, in_strict(weights)) == pytest.approx(true, rel=1e-5)


def test_a_stream_of_arrays_is_one_of_numpy():
    near, far = MarginPursuitClassifier(), MarginPursuitClassifier()
    for rows in (slice(0, 900), slice(900, 1797)):
        near.partial_fit(X[rows], Y2[rows], classes=[0, 1])
        far.partial_fit(in_strict(X[rows]), in_strict(Y2[rows]), classes=[0, 1])
    assert_array_equal(far.coef_, near.coef_)


def test_selection_moves_labels_weights_and_held_out_scores_and_no_rows(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(9000, 40))
    y = (rows[:, 0] > 0) * 1
    far, sizes = in_strict(rows), []
    leave, enter = np.from_dlpack, strict.asarray
    monkeypatch.setattr(np, "from_dlpack", lambda a, **o: sizes.append(a.size) or leave(a, **o))
    monkeypatch.setattr(strict, "asarray", lambda a, **o: sizes.append(np.size(a)) or enter(a, **o))
    MarginPursuitClassifierCV(scales=[1.0], alphas=[1e-3, 1e-4], cv=3).fit(far, y)
    assert max(sizes) == 3 * 9000  # the weights of three folds
    assert sum(size > 41 * 41 for size in sizes) < 40


def test_what_crosses_has_the_size_of_the_coefficients(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(5000, 6))
    y = (rows[:, 0] > 0) * 1
    far, labels = in_strict(rows), in_strict(y)
    sizes = {"out": [], "in": []}
    leave, enter = np.from_dlpack, strict.asarray

    def leaving(array, **options):
        sizes["out"].append(array.size)
        return leave(array, **options)

    def entering(values, **options):
        sizes["in"].append(np.size(values) if not hasattr(values, "size") else values.size)
        return enter(values, **options)

    monkeypatch.setattr(np, "from_dlpack", leaving)
    monkeypatch.setattr(strict, "asarray", entering)
    model = MarginPursuitClassifier().fit(far, labels)
    assert len(sizes["out"]) > model.n_passes_
    assert max(sizes["out"]) <= 7 * 7
    assert max(sizes["in"]) <= 7 * 7
    MarginPursuitClassifier().fit(far, y)
    assert sorted(sizes["in"])[-1] == 5000  # labels move once
    assert sorted(sizes["in"])[-2] <= 7 * 7


@pytest.mark.parametrize("factor", [1e25, 1e-25])
def test_columns_whose_squares_leave_float32(factor):
    scaled = (X * np.where(np.arange(64) % 2, 1.0, factor)).astype(np.float32)
    near = MarginPursuitClassifier().fit(scaled, Y2)
    far = MarginPursuitClassifier().fit(in_strict(scaled), Y2)
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-6)
    assert_allclose(far.coef_, near.coef_, rtol=1e-3, atol=1e-3 * np.abs(near.coef_).min())


def test_bad_input_is_refused():
    model = MarginPursuitClassifier()
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
    near = Margins.from_scores(scores.copy(), Labels(codes, 5), weights, 400.0, 1.0)
    labels = Labels(in_strict(codes), 5)
    far = ArrayMargins.from_scores(in_strict(scores), labels, in_strict(weights), 400.0, 1.0)
    monkeypatch.setattr(type(far), "group_elements", 900)
    assert SCALE_RULES[rule](far) == pytest.approx(SCALE_RULES[rule](near), rel=1e-12)
    found, true = far.statistics(0.3), near.statistics(0.3)
    for name in ("location", "mean", "variance", "skewness", "quantiles"):
        assert_allclose(getattr(found, name), getattr(true, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "labels",
    [[0, 1], [3, 4], [-3, 5, 7], [4, 19], [4, 20], [-128, 127], [False, True], [0.5, 2.0]],
    ids=str,
)
def test_labels_are_coded_in_rising_order(labels):
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
        assert found.device == ELSEWHERE
        assert found.dtype == strict.float32
    assert not any(is_device_array(x) for x in (X, X[0, 0], [1.0], None, strict.asarray([1.0])))


@needs_torch
class TestFusedKernel:
    """In Triton's interpreter where there is no CUDA device."""

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

    def test_rows_apart_and_equal_weights(self, kernel):
        """A row may begin far behind the one before; weights may share their place."""
        wide = in_torch(np.random.default_rng(0).normal(size=(90, 20)), "float32")
        codes, weight = in_torch(np.arange(90) % 2, "uint8"), in_torch(1 / 90, "float64")
        coef = np.linspace(-1, 1, 7)
        common = (codes, 1, weight.expand(90), coef, 0.0, MarginLoss())
        narrow = wide[:, 3:10]
        assert narrow.stride(0) == 20
        found = kernel.sweep(narrow, *common)
        # Other loads are in other lanes, and added up in another order.
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
        there = in_torch(weights, "float64")
        there = there[:1].expand(shape[0]) if equal else there
        first, second = kernel.moments(matrix, there, centre)
        assert_allclose(first, weights @ (rows - centre), rtol=1e-12, atol=1e-10)
        assert_allclose(second, weights @ (rows - centre) ** 2, rtol=1e-12, atol=1e-8)

    def test_nan_is_handed_on(self, kernel):
        matrix = torch.ones((40, 3), device=DEVICE)
        matrix[20, 1] = np.nan
        equal = torch.full((40,), 1 / 40, dtype=torch.float64, device=DEVICE)
        found = kernel.sweep(matrix, equal.to(torch.uint8), 1, equal, np.ones(3), 0.0, MarginLoss())
        assert np.isnan(found[-2])

    def test_a_whole_fit(self, kernel, monkeypatch):
        monkeypatch.setattr(arrays, "_fused_kernels", lambda _: kernel)
        calls = []
        monkeypatch.setattr(
            kernel, "sweep", lambda *args, sweep=kernel.sweep: calls.append(1) or sweep(*args)
        )
        few, y = X[:200, 20:44], Y2[:200]
        near = MarginPursuitClassifier().fit(few, y)
        far = MarginPursuitClassifier().fit(in_torch(few, "bfloat16"), torch.asarray(y))
        assert len(calls) >= near.n_iter_
        assert far.objective_ == pytest.approx(near.objective_, rel=1e-6)
        assert_allclose(far.decision_function(few), near.decision_function(few), atol=1e-3)


@pytest.mark.skipif(not has_cuda, reason="there is no CUDA device")
class TestCuda:
    """What only a CUDA device can show."""

    def test_fits_repeat_bit_for_bit(self):
        tensor, labels = in_torch(X, "float32"), torch.asarray(Y2, device="cuda")
        fits = [MarginPursuitClassifier().fit(tensor, labels) for _ in range(3)]
        for fit in fits[1:]:
            assert_array_equal(fit.coef_, fits[0].coef_)

    def test_tf32_is_kept_off_and_left_as_it_was(self):
        torch.set_float32_matmul_precision("high")
        try:
            fit = MarginPursuitClassifier().fit(in_torch(X, "float32"), Y)
            assert torch.get_float32_matmul_precision() == "high"
        finally:
            torch.set_float32_matmul_precision("highest")
        near = MarginPursuitClassifier().fit(X, Y)
        assert fit.objective_ == pytest.approx(near.objective_, rel=1e-6)

    def test_cupy(self):
        cupy = pytest.importorskip("cupy")
        near = MarginPursuitClassifier().fit(X, Y)
        far = MarginPursuitClassifier().fit(cupy.asarray(X), cupy.asarray(Y))
        assert_allclose(far.coef_, near.coef_, rtol=1e-7, atol=1e-9)
        assert isinstance(far.predict_proba(cupy.asarray(X)), cupy.ndarray)
        assert far.score(cupy.asarray(X), cupy.asarray(Y)) == near.score(X, Y)
