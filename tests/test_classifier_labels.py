"""Labels, weights and extreme numbers given to MarginPursuitClassifier."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from classifier_data import make_data
from scipy import sparse
from sklearn.exceptions import DataConversionWarning, NotFittedError

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    PegasosClassifier,
)

X, Y = make_data()
N_ROWS, N_COLUMNS = X.shape
NAMES = [f"c{k}" for k in range(N_COLUMNS)]
REFERENCE = MarginPursuitClassifier().fit(X, Y)


def changed(value, row=3, column=2, dtype=np.float64):
    result = X.astype(dtype)
    result[row, column] = value
    return result


def assert_same_fit(fitted, reference=REFERENCE, rtol=1e-9):
    np.testing.assert_allclose(fitted.coef_, reference.coef_, rtol=rtol)
    np.testing.assert_allclose(fitted.intercept_, reference.intercept_, rtol=rtol)
    np.testing.assert_allclose(fitted.objective_, reference.objective_, rtol=rtol)


# --- labels --------------------------------------------------------------------------------------

LABELS = {
    "text": np.array(["no", "yes"]),
    "text objects": np.array(["no", "yes"], dtype=object),
    "bool": np.array([False, True]),
    "uint8": np.array([3, 7], np.uint8),
    "float": np.array([-1.0, 1.0]),
    "dates": np.array(["2020-01-01", "2021-01-01"], "M8[D]"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind_come_back(kind):
    labels = LABELS[kind][Y]
    fitted = MarginPursuitClassifier().fit(X, labels)
    assert_same_fit(fitted)
    predicted = fitted.predict(X)
    assert predicted.dtype == labels.dtype
    np.testing.assert_array_equal(predicted, LABELS[kind][REFERENCE.predict(X)])
    if kind != "dates":  # which scikit-learn takes from an array only
        assert_same_fit(MarginPursuitClassifier().fit(X, labels.tolist()))


def test_labels_in_data_frames():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    text = np.array(["no", "yes"])[Y]
    for labels in (
        pandas.Series(text),
        pandas.Series(text, dtype="category"),
        pandas.Series(Y, dtype="category"),
        pandas.Series(Y > 0, dtype="category"),
        pandas.Series(Y, dtype="Int64"),
        polars.Series(text),
        polars.Series(Y),
    ):
        assert_same_fit(MarginPursuitClassifier().fit(X, labels))


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "object", "string", "category", "list"])
def test_missing_labels_are_counted(dtype):
    pandas = pytest.importorskip("pandas")
    text = dtype not in ("Int64", "boolean")
    labels = pandas.Series(np.array(["no", "yes"])[Y] if text else Y)
    labels = labels.astype("object" if dtype == "list" else dtype)
    labels[[3, 7]] = pandas.NA
    value = "nan" if dtype in ("Int64", "category") else "<NA>"
    words = rf"y must not have missing labels; got {value} in row 3, the first of 2 among 120 "
    frame = labels.to_frame()
    forms = [labels.tolist()] if dtype == "list" else [labels, frame, np.asarray(frame)]
    for model in (MarginPursuitClassifier(), PegasosClassifier()):
        for form in forms:
            with pytest.raises(ValueError, match=words):
                model.fit(X, form)


def test_missing_labels_of_frames_are_counted():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    labels = [None if row in (3, 7) else label for row, label in enumerate(Y.tolist())]
    text = [None if label is None else "ab"[label] for label in labels]
    words = "y must not have missing labels; got {} in row 3, the first of 2 among {} "
    for y, value, n_labels in (
        (polars.DataFrame({"y": text}), "None", 120),
        (polars.DataFrame({"y": labels}), "nan", 120),
        (polars.DataFrame({"y": labels, "z": Y}), "nan", 240),
        (pandas.DataFrame({"y": labels, "z": Y}).astype("Int64"), "<NA>", 240),
    ):
        for model in (MarginPursuitClassifier(), PegasosClassifier()):
            with pytest.raises(ValueError, match=words.format(value, n_labels)):
                model.fit(X, y)


def test_lazy_frames_are_refused():
    polars = pytest.importorskip("polars")
    lazy, fitted = polars.DataFrame(X, schema=NAMES).lazy(), MarginPursuitClassifier()
    fitted.fit(lazy.collect(), Y)
    for call in (
        lambda: MarginPursuitClassifier().fit(lazy, Y),
        lambda: MarginPursuitClassifierCV().fit(lazy, Y),
        lambda: MarginPursuitClassifier(kernel="rbf").fit(lazy, Y),
        lambda: MarginPursuitClassifier().partial_fit(lazy, Y, classes=[0, 1]),
        lambda: fitted.predict(lazy),
        lambda: fitted.predict_proba(lazy),
        lambda: REFERENCE.decision_function(lazy),
    ):
        with pytest.raises(TypeError, match=r"^X is a LazyFrame, .* Call \.collect\(\) first\.$"):
            call()
    with pytest.raises(TypeError, match=r"^y is a LazyFrame"):
        MarginPursuitClassifier().fit(X, polars.DataFrame({"y": Y}).lazy())
    with pytest.raises(TypeError, match=r"^sample_weight is a LazyFrame, .* \.collect\(\) first"):
        MarginPursuitClassifier().fit(X, Y, polars.DataFrame({"w": Y + 1}).lazy())


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(DataConversionWarning):
        assert_same_fit(MarginPursuitClassifier().fit(X, Y[:, np.newaxis]))


NAN_LABELS = np.where(np.arange(N_ROWS) == 3, np.nan, Y)

BAD_Y = {
    "NaN": (NAN_LABELS, ValueError, "got nan in row"),
    "one class": (np.full(N_ROWS, 7), ValueError, r"at least 2 classes .* got 1 class: \[7\]"),
    "one class of text": (["a"] * N_ROWS, ValueError, r"got 1 class: \['a'\]"),
    "continuous": (X[:, 0] + 0.5, ValueError, "Unknown label type: continuous"),
    # Two columns of 0 and 1 are two labels; other values and more of them are not.
    "two columns": (np.column_stack([Y, Y]) + 1, ValueError, "indicator matrix of 0 and 1; got"),
    "columns of three classes": (
        np.column_stack([Y, 2 * Y]),
        ValueError,
        r"1d array, got .* \(120, 2\)",
    ),
    "none": (None, ValueError, "requires y"),
    "mixed": (np.array([0, "a"] * 60, dtype=object), TypeError, "mixed label types; got str and"),
    "mixed list": ([0, "a"] * 60, TypeError, "mixed label types; got str and int"),
    "integers as objects": (
        Y.astype(object),
        ValueError,
        r"dtype object with labels of type int; expected numbers or text.* y\.astype\(int\)",
    ),
    "booleans as objects": ((Y > 0).astype(object), ValueError, r"type bool.* y\.astype\(bool\)"),
    "indicator of objects": (
        np.column_stack([Y, Y]).astype(object),
        ValueError,
        "dtype object with labels of type int; expected numbers or text",
    ),
    "missing text": (["a", None] * 60, ValueError, "missing labels; got None"),
    "NaN among text": (["a", np.nan] * 60, ValueError, "missing labels; got nan"),
    "masked": (np.ma.masked_array(Y, Y == 1), ValueError, "y must not be a masked array"),
    # scikit-learn 1.6 only warns of what it refuses later.
    "bytes": (np.array([b"a", b"b"])[Y], (TypeError, FutureWarning), "bytes"),
}


@pytest.mark.parametrize("case", BAD_Y)
def test_bad_labels_are_refused(case):
    labels, kind, message = BAD_Y[case]
    with pytest.raises(kind, match=message):
        MarginPursuitClassifier().fit(X, labels)


def test_one_sample_is_refused():
    with pytest.raises(ValueError, match="1 class"):
        MarginPursuitClassifier().fit(X[:1], Y[:1])


def test_two_samples_of_two_classes_are_separated():
    with pytest.warns(UserWarning, match=r"classes with a single sample: \[0, 1\]"):
        fitted = MarginPursuitClassifier().fit([[1.0, 2.0], [3.0, 5.0]], [0, 1])
    assert fitted.predict([[1.0, 2.0], [3.0, 5.0]]).tolist() == [0, 1]


def test_a_class_with_one_sample_is_warned_of_by_name():
    labels = np.where(np.arange(N_ROWS) == 5, "rare", "common")
    with pytest.warns(UserWarning, match=r"single sample: \['rare'\]") as caught:
        fitted = MarginPursuitClassifier().fit(X, labels)
    assert caught[0].filename == __file__
    assert np.all(np.isfinite(fitted.coef_))
    with pytest.warns(UserWarning, match=r"single sample: \[0, 1, 2, 3, 4, 5, \.\.\.\]\."):
        MarginPursuitClassifier().fit(X, np.minimum(np.arange(N_ROWS), 30))


# --- weights -------------------------------------------------------------------------------------

ONES = np.ones(N_ROWS)
BAD_WEIGHTS = {
    "negative": (
        np.where(np.arange(N_ROWS) == 3, -1.0, 1.0),
        ValueError,
        r"got -1 at index \(3,\)",
    ),
    "NaN": (np.where(np.arange(N_ROWS) == 3, np.nan, 1.0), ValueError, "must not be NaN"),
    "infinite": (np.where(np.arange(N_ROWS) == 3, np.inf, 1.0), ValueError, r"got inf at index"),
    "all zero": (0.0 * ONES, ValueError, "at least one non-zero"),
    "one class left": (1.0 * (Y == 1), ValueError, r"2 classes with positive .*1 class: \[1\]"),
    "one large weight": (
        np.where(np.arange(N_ROWS) == np.argmax(Y), 1e200, 1.0),
        ValueError,
        r"got 1 class: \[1\]. Weights below 1e-100 of their sum count as zero",
    ),
    "too few": (ONES[1:], ValueError, r"shape \(120,\), one weight a sample; got \(119,\)"),
    "column": (ONES[:, np.newaxis], ValueError, r"shape \(120,\).*got \(120, 1\)"),
    "text": (ONES.astype(str), TypeError, "sample_weight must hold real numbers"),
    "complex": (ONES * 1j, TypeError, "sample_weight must hold real numbers"),
    "none": ([None] * N_ROWS, TypeError, "sample_weight must hold real numbers"),
    "masked": (np.ma.masked_array(ONES, Y == 1), TypeError, "sample_weight must not be a masked"),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weights_are_refused(case):
    weights, kind, message = BAD_WEIGHTS[case]
    with pytest.raises(kind, match=message):
        MarginPursuitClassifier().fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize("weight", [1e-320, 1e-300, 2, 1e300, 1.7e308])
@pytest.mark.parametrize("scale", ["auto", "variance", 0.5])
def test_equal_weights_of_any_size_change_nothing(weight, scale):
    reference = MarginPursuitClassifier.as_published(scale=scale).fit(X, Y)
    for weights in (np.full(N_ROWS, weight), weight):
        fitted = MarginPursuitClassifier.as_published(scale=scale).fit(X, Y, sample_weight=weights)
        assert_same_fit(fitted, reference, rtol=1e-12)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({0: -1.0}, r"class_weight\[0\] must be in \[0, 1e\+300\]; got -1"),
        ({0: np.nan}, r"class_weight\[0\] must not be NaN"),
        ({0: "a"}, r"class_weight\[0\] must hold real numbers; got 'a'"),
        ({0: 1.0, 7: 2.0}, r"class_weight must name classes of y, \[0, 1\]; got \[7\]"),
        ({0: 0.0, 1: 0.0}, "class_weight must give at least one sample a positive weight"),
        ({0: 0.0}, r"at least 2 classes with positive weight; got 1 class: \[1\]"),
    ],
)
def test_bad_class_weights_are_refused(class_weight, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MarginPursuitClassifier(class_weight=class_weight).fit(X, Y)


def test_a_class_that_y_lacks_may_have_a_weight():
    fitted = MarginPursuitClassifier(class_weight={0: 1, 1: 2, "absent": 5}).fit(X, Y)
    assert_same_fit(fitted, MarginPursuitClassifier(class_weight={1: 2}).fit(X, Y))


# --- extreme numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-306, 1e-300, 1e-200, 1e-150, 1e150, 1e200, 1e300, 1e306])
@pytest.mark.parametrize("make", [np.array, sparse.csr_array])
def test_predictions_do_not_depend_on_the_size_of_X(factor, make):
    scaled, reference = make(X * factor), MarginPursuitClassifier().fit(make(X), Y)
    fitted = MarginPursuitClassifier().fit(scaled, Y)
    assert np.all(np.isfinite(fitted.coef_))
    np.testing.assert_allclose(
        fitted.decision_function(scaled), reference.decision_function(X), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("factor", [1e-30, 1e30, 6e36])
def test_float32_of_any_size(factor):
    scaled = (X * factor).astype(np.float32)
    fitted = MarginPursuitClassifier().fit(scaled, Y)
    np.testing.assert_array_equal(fitted.predict(scaled), REFERENCE.predict(X))


def test_every_column_of_its_own_size():
    factors = 10.0 ** np.array([-300, -150, 0, 150, 300])
    fitted = MarginPursuitClassifier().fit(X * factors, Y)
    np.testing.assert_allclose(fitted.coef_ * factors, REFERENCE.coef_, rtol=1e-6)
    np.testing.assert_array_equal(fitted.predict(X * factors), REFERENCE.predict(X))


def test_coefficients_beyond_the_largest_float_are_an_error():
    model = MarginPursuitClassifier()
    with pytest.raises(OverflowError, match="coefficients exceed the largest float"):
        model.fit(X * 1e-312, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    ("factor", "parameters"),
    [(1e-160, {"alpha": 0.1}), (1e160, {"alpha": 0.1}), (1e160, {"solver": "steepest"})],
)
def test_what_depends_on_the_unit_does_not_guess_one(factor, parameters):
    with pytest.raises(OverflowError, match="unit"):
        MarginPursuitClassifier.as_published(**parameters).fit(X * factor, Y)


def test_no_penalty_does_not_depend_on_the_unit():
    for factor in (1e-200, 1.0, 1e200):
        fitted = MarginPursuitClassifier(alpha=0).fit(X * factor, Y)
        np.testing.assert_array_equal(fitted.predict(X * factor), REFERENCE.predict(X))


def test_scores_beyond_the_largest_float_are_an_error():
    fitted = MarginPursuitClassifier().fit(X / 1e10, Y)
    with pytest.raises(OverflowError, match="too large for this fit"):
        fitted.predict(np.full((1, N_COLUMNS), 1e308))


def test_long_doubles_beyond_double_are_an_error():
    if np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("long double is double here")
    with pytest.raises((OverflowError, ValueError)):
        MarginPursuitClassifier().fit(X.astype(np.longdouble) * np.longdouble("1e400"), Y)


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_floating_point_settings_of_the_user_do_not_matter(factor):
    with np.errstate(all="raise"):
        fitted = MarginPursuitClassifier().fit(X * factor, Y)
        fitted.predict_proba(X * factor)
    assert_same_fit(fitted, MarginPursuitClassifier().fit(X * factor, Y), rtol=0)


@pytest.mark.parametrize("shape", [(40, 3), (4, 10)])
@pytest.mark.parametrize("value", [0.0, 3.3])
@pytest.mark.parametrize("make", [np.array, sparse.csr_array])
def test_constant_X_predicts_the_majority(shape, value, make):
    constant = make(np.full(shape, value))
    labels = np.arange(shape[0]) % 4 == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one sample of a class
        fitted = MarginPursuitClassifier().fit(constant, labels)
    assert np.all(fitted.coef_ == 0)
    assert not fitted.predict(constant).any()


def test_a_constant_column_has_coefficient_zero():
    fitted = MarginPursuitClassifier().fit(np.column_stack([X, np.full(N_ROWS, 0.1)]), Y)
    assert fitted.coef_[0, -1] == 0
    np.testing.assert_allclose(fitted.coef_[:, :-1], REFERENCE.coef_, rtol=1e-9)


def test_duplicate_columns_have_equal_coefficients():
    fitted = MarginPursuitClassifier.as_published().fit(np.column_stack([X, X[:, 0]]), Y)
    assert fitted.coef_[0, 0] == pytest.approx(fitted.coef_[0, -1], rel=1e-6)
    np.testing.assert_allclose(
        fitted.decision_function(np.column_stack([X, X[:, 0]])),
        MarginPursuitClassifier.as_published().fit(X, Y).decision_function(X),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("overconfidence", [1.0, 0.0])
@pytest.mark.parametrize("alpha", ["auto", 0.0])
def test_separable_data_has_finite_coefficients(overconfidence, alpha):
    apart = X + 100.0 * Y[:, np.newaxis]
    fitted = MarginPursuitClassifier(overconfidence=overconfidence, alpha=alpha).fit(apart, Y)
    assert np.all(np.isfinite(fitted.coef_))
    assert fitted.score(apart, Y) == 1.0


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    wide, labels = rng.normal(size=(50, 5000)), np.arange(50) % 2
    fitted = MarginPursuitClassifier.as_published().fit(wide, labels)
    assert fitted.score(wide, labels) == 1.0
    stored = MarginPursuitClassifier.as_published().fit(sparse.csr_array(wide), labels)
    np.testing.assert_allclose(stored.coef_, fitted.coef_, rtol=1e-5, atol=1e-8)


def test_a_thousand_classes():
    rng = np.random.default_rng(0)
    labels = np.arange(2000) % 1000
    many = 10.0 * rng.normal(size=(1000, 10))[labels] + rng.normal(size=(2000, 10))
    fitted = MarginPursuitClassifier.as_published(scale=100.0).fit(many, labels)
    assert fitted.coef_.shape == (1000, 10)
    # Newton's method takes two steps to the tolerance, one that verifies the gap by the second
    # derivatives themselves, and that of the last Hessian. Each has three passes, for all classes
    # together; four more are for the columns, the start and the margins.
    assert fitted.n_iter_ <= 4
    assert fitted.n_passes_ <= 4 + 3 * fitted.n_iter_
    assert fitted.predict_proba(many[:5]).shape == (5, 1000)
    assert fitted.score(many, labels) > 0.1


def test_far_more_of_one_class():
    labels = np.arange(N_ROWS) >= N_ROWS - 2
    fitted = MarginPursuitClassifier().fit(X, labels)
    assert fitted.score(X, labels) >= 1 - 2 / N_ROWS


# --- surroundings --------------------------------------------------------------------------------


def test_no_terminal_no_home_no_utf8_no_matplotlib(tmp_path):
    """A fit prints plain text and needs neither a writable home nor optional packages."""
    script = (
        'import sys; sys.modules["matplotlib"] = None\n'
        "import numpy as np; from marginpursuit import MarginPursuitClassifier\n"
        "X = np.arange(40.0).reshape(20, 2); y = np.arange(20) > 9\n"
        "model = MarginPursuitClassifier(verbose=1).fit(X, y); print(model.score(X, y))\n"
    )
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    environment = os.environ | {
        "HOME": str(home),
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode("ascii").splitlines()[-1] == "1.0"


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["2026-01-01", "NaT"], "datetime64[D]"),
        np.array([1, "NaT"], "timedelta64[s]"),
        np.array([np.datetime64("2026-01-01"), np.datetime64("NaT", "D")], dtype=object),
        [np.timedelta64(1, "s"), np.timedelta64("NaT", "s")],
    ],
    ids=["dates", "durations", "objects", "list"],
)
def test_missing_times_are_no_class(labels):
    with pytest.raises(ValueError, match="y must not have missing labels; got NaT"):
        MarginPursuitClassifier().fit(
            np.eye(4), [*labels, *labels] if isinstance(labels, list) else np.tile(labels, 2)
        )
