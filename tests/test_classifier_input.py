"""What MarginPursuitClassifier makes of input: every container and dtype, and everything bad."""

import os
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.exceptions import DataConversionWarning, NotFittedError

from marginpursuit import MarginPursuitClassifier


def make_data(n_rows=120, n_columns=5, n_classes=2, seed=0):
    """Small whole numbers, which every dtype holds exactly, and labels that follow them."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 50, (n_rows, n_columns)).astype(np.float64)
    score = X @ rng.normal(size=n_columns) + 10.0 * rng.normal(size=n_rows)
    return X, np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)


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


# --- containers and dtypes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["f2", "f4", "f8", "g", ">f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "O"],
)
def test_every_dtype_gives_the_fit_of_the_same_numbers(dtype):
    fitted = MarginPursuitClassifier().fit(X.astype(dtype), Y)
    assert_same_fit(fitted)
    np.testing.assert_allclose(
        fitted.decision_function(X.astype(dtype)), REFERENCE.decision_function(X), rtol=1e-9
    )


def test_bool_is_zero_and_one():
    fitted = MarginPursuitClassifier().fit(X > 25, Y)
    assert_same_fit(fitted, MarginPursuitClassifier().fit((X > 25).astype(float), Y))


def _unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    raw[...] = array
    return raw


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "negative row stride": lambda a: a[::-1].copy()[::-1],
    "negative column stride": lambda a: a[:, ::-1].copy()[:, ::-1],
    "every other row and column": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "every other column of Fortran order": lambda a: np.asfortranarray(np.repeat(a, 2, 1))[:, ::2],
    "unaligned": _unaligned,
    "list": lambda a: a.tolist(),
    "tuple of arrays": tuple,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
def test_every_layout_gives_the_same_fit(layout, dtype):
    laid_out = LAYOUTS[layout](X.astype(dtype))
    fitted = MarginPursuitClassifier().fit(laid_out, Y)
    assert_same_fit(fitted)
    np.testing.assert_array_equal(fitted.predict(laid_out), REFERENCE.predict(X))


def test_broadcast_columns_share_the_coefficient():
    wide = np.broadcast_to(X[:, :1], (N_ROWS, 4))
    fitted = MarginPursuitClassifier().fit(wide, Y)
    assert_same_fit(fitted, MarginPursuitClassifier().fit(wide.copy(), Y))


def test_read_only_memory_map_is_fitted_and_untouched(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert_same_fit(MarginPursuitClassifier().fit(mapped, Y))
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X)


SPARSE_TYPES = [
    sparse.csr_matrix,
    sparse.csc_matrix,
    sparse.coo_matrix,
    sparse.csr_array,
    sparse.csc_array,
    sparse.coo_array,
    sparse.lil_array,
]


@pytest.mark.parametrize("container", SPARSE_TYPES)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_sparse_equals_dense(container, index_dtype):
    stored = container(X)
    for name in ("indices", "indptr", "row", "col"):
        # Set on the object: SciPy's constructors would make them int32 again.
        if hasattr(stored, name) and stored.format != "coo":
            setattr(stored, name, getattr(stored, name).astype(index_dtype))
    fitted = MarginPursuitClassifier().fit(stored, Y)
    assert_same_fit(fitted)
    np.testing.assert_array_equal(fitted.predict(stored), REFERENCE.predict(X))


@pytest.mark.parametrize("dtype", ["f4", "u1", "i2", "?"])
def test_sparse_dtypes(dtype):
    narrow = X.astype(dtype)
    assert_same_fit(
        MarginPursuitClassifier().fit(sparse.csr_array(narrow), Y),
        MarginPursuitClassifier().fit(narrow.astype(float), Y),
    )


def test_csr_with_unsorted_indices():
    stored = sparse.csr_array(X + 1.0)
    for name in ("indices", "data"):
        reversed_rows = getattr(stored, name).reshape(N_ROWS, N_COLUMNS)[:, ::-1]
        setattr(stored, name, reversed_rows.ravel().copy())
    stored.has_sorted_indices = False
    assert_same_fit(
        MarginPursuitClassifier().fit(stored, Y), MarginPursuitClassifier().fit(X + 1.0, Y)
    )
    assert stored.indices[0] == N_COLUMNS - 1  # the input is as it was


@pytest.mark.parametrize("container", [sparse.coo_array, sparse.csr_array])
def test_entries_named_twice_are_added_up(container):
    columns = np.tile(np.arange(N_COLUMNS), (N_ROWS, 1))
    if container is sparse.coo_array:
        rows = np.repeat(np.arange(N_ROWS), N_COLUMNS)
        where = (np.tile(rows, 2), np.tile(columns.ravel(), 2))
        stored = sparse.coo_array((np.tile(X.ravel() / 2, 2), where), shape=X.shape)
    else:
        values, places = np.hstack([X / 4, 3 * X / 4]), np.hstack([columns, columns])
        offsets = 2 * N_COLUMNS * np.arange(N_ROWS + 1)
        stored = sparse.csr_array((values.ravel(), places.ravel(), offsets), shape=X.shape)
    n_stored = stored.nnz
    fitted = MarginPursuitClassifier().fit(stored, Y)
    assert_same_fit(fitted)
    np.testing.assert_allclose(fitted.decision_function(stored), REFERENCE.decision_function(X))
    assert stored.nnz == n_stored == 2 * N_ROWS * N_COLUMNS


@pytest.mark.parametrize("index", [-1, 10**6])
def test_csr_indices_out_of_range_are_refused(index):
    stored = sparse.csr_array(X + 1.0)
    stored.indices[0] = index
    with pytest.raises((ValueError, IndexError)):
        MarginPursuitClassifier().fit(stored, Y)


def test_input_is_never_modified():
    weights = np.arange(1.0, N_ROWS + 1)
    for make in (np.array, np.asfortranarray, sparse.csr_array, sparse.csc_array):
        held, labels, row_weights = make(X), Y.copy(), weights.copy()
        fitted = MarginPursuitClassifier().fit(held, labels, sample_weight=row_weights)
        fitted.predict_proba(held)
        fitted.partial_fit(held, labels, sample_weight=row_weights)
        dense = held.toarray() if sparse.issparse(held) else held
        np.testing.assert_array_equal(dense, X)
        np.testing.assert_array_equal(labels, Y)
        np.testing.assert_array_equal(row_weights, weights)


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_a_dense_fit_makes_no_copy_of_X(dtype):
    """At most a tenth of X, some d x d matrices, ten vectors of length n, and fixed buffers."""
    n_rows, n_columns = 30_000, 150
    rng = np.random.default_rng(0)
    big = rng.integers(0, 100, (n_rows, n_columns), np.uint8).astype(dtype)
    labels = (big[:, 0] > rng.integers(0, 100, n_rows)).astype(int)
    tracemalloc.start()
    try:
        MarginPursuitClassifier(n_threads=1).fit(big, labels)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    allowed = 0.1 * big.nbytes + 6 * 8 * n_columns**2 + 10 * 8 * n_rows + 3e6
    assert peak < allowed
    assert allowed < 8 * big.size / 4  # an up-cast copy would be far above


# --- data frames ---------------------------------------------------------------------------------


def pandas_frame(values=X):
    return pytest.importorskip("pandas").DataFrame(values, columns=NAMES[: values.shape[1]])


def polars_frame(values=X):
    return pytest.importorskip("polars").DataFrame(values, schema=NAMES[: values.shape[1]])


FRAMES = {"pandas": pandas_frame, "polars": polars_frame}


@pytest.mark.parametrize("library", FRAMES)
def test_frames_equal_arrays_and_names_are_kept(library):
    frame = FRAMES[library]()
    fitted = MarginPursuitClassifier().fit(frame, Y)
    assert_same_fit(fitted)
    assert list(fitted.feature_names_in_) == NAMES
    np.testing.assert_array_equal(fitted.predict(frame), REFERENCE.predict(X))


@pytest.mark.parametrize("library", FRAMES)
def test_names_are_checked_when_predicting(library):
    frame = FRAMES[library]()
    fitted = MarginPursuitClassifier().fit(frame, Y)
    with pytest.raises(ValueError, match="same order"):
        fitted.predict(frame[NAMES[::-1]])
    with pytest.raises(ValueError, match="now missing:\n- c4"):
        fitted.predict(frame[NAMES[:-1]])
    frame.columns = [*NAMES[:-1], "d"]
    with pytest.raises(ValueError, match="unseen at fit time:\n- d"):
        fitted.predict(frame)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        fitted.predict(X)


def test_pandas_nullable_numbers():
    frame = pandas_frame().astype("Int64").assign(c1=X[:, 1]).astype({"c1": "Float64"})
    assert_same_fit(MarginPursuitClassifier().fit(frame, Y))


def test_missing_values_of_frames_name_the_column():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    nullable = pandas_frame().astype("Int64")
    nullable.loc[3, "c2"] = pandas.NA
    nan = pandas_frame(changed(np.nan))
    null = polars_frame().with_columns(c2=polars.Series([None, *X[1:, 2]]))
    for frame in (nullable, nan, null):
        with pytest.raises(ValueError, match=r"MarginPursuitClassifier .* column 'c2'"):
            MarginPursuitClassifier().fit(frame, Y)


def test_duplicate_column_names_are_refused():
    frame = pandas_frame()
    frame.columns = ["a", "b", "a", "c", "a"]
    for bad in (frame, frame.astype(object)):
        with pytest.raises(ValueError, match="names that differ; got 'a' 3 times"):
            MarginPursuitClassifier().fit(bad, Y)


def test_mixed_column_name_types_are_refused():
    frame = pandas_frame()
    frame.columns = ["a", 1, "b", 2, "c"]
    with pytest.raises(TypeError, match="feature names"):
        MarginPursuitClassifier().fit(frame, Y)


def _pandas_columns():
    pandas = pytest.importorskip("pandas")
    return {
        "text": ["x"] * N_ROWS,
        "numbers as text": [str(value) for value in X[:, 2]],
        "numbers as bytes": [str(value).encode() for value in X[:, 2]],
        "objects as text": np.array(["1"] * N_ROWS, dtype=object),
        "string": pandas.array(["1"] * N_ROWS, dtype="string"),
        "category": pandas.Categorical(["u", "v"] * (N_ROWS // 2)),
        "category of numbers": pandas.Categorical([1, 2] * (N_ROWS // 2)),
        "time": pandas.to_datetime(["2020-01-01"] * N_ROWS),
        "duration": pandas.to_timedelta([1] * N_ROWS),
    }


@pytest.mark.parametrize(
    "kind",
    [
        "text",
        "numbers as text",
        "numbers as bytes",
        "objects as text",
        "string",
        "category",
        "category of numbers",
        "time",
        "duration",
    ],
)
def test_pandas_columns_without_numbers_are_named(kind):
    frame = pandas_frame().assign(c2=_pandas_columns()[kind])
    with pytest.raises(ValueError, match=r"X must hold numbers.*column 'c2' has dtype"):
        MarginPursuitClassifier().fit(frame, Y)
    fitted = MarginPursuitClassifier().fit(pandas_frame(), Y)
    with pytest.raises(ValueError, match="column 'c2'"):
        fitted.predict(frame)


@pytest.mark.parametrize("kind", ["String", "Categorical", "Enum", "Date"])
def test_polars_columns_without_numbers_are_named(kind):
    polars = pytest.importorskip("polars")
    column = {
        "String": polars.lit("1"),
        "Categorical": polars.lit("1").cast(polars.Categorical),
        "Enum": polars.lit("1").cast(polars.Enum(["1"])),
        "Date": polars.date(2020, 1, 1),
    }[kind]
    with pytest.raises(ValueError, match=f"column 'c2' has dtype {kind}"):
        MarginPursuitClassifier().fit(polars_frame().with_columns(c2=column), Y)


def test_arrow_table():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(dict(zip(NAMES, X.T, strict=True)))
    assert_same_fit(MarginPursuitClassifier().fit(table, Y))
    text = table.set_column(2, "c2", [["x"] * N_ROWS])
    with pytest.raises(ValueError, match="column 'c2' has dtype"):
        MarginPursuitClassifier().fit(text, Y)


# --- bad X ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["auto", "lbfgs", "steepest"])
@pytest.mark.parametrize("make", [np.array, sparse.csr_array, np.asfortranarray])
@pytest.mark.parametrize(
    ("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_missing_values_are_refused_with_their_place(value, word, make, solver):
    message = f"contains {word}: MarginPursuitClassifier needs finite .*; got .* column 2, row 3"
    with pytest.raises(ValueError, match=message):
        MarginPursuitClassifier(solver=solver).fit(make(changed(value)), Y)
    with pytest.raises(ValueError, match=message):
        REFERENCE.predict(make(changed(value)))
    with pytest.raises(ValueError, match=message):
        MarginPursuitClassifier().partial_fit(make(changed(value)), Y, classes=[0, 1])


def test_missing_values_are_refused_even_with_weight_zero():
    with pytest.raises(ValueError, match="NaN"):
        MarginPursuitClassifier().fit(changed(np.nan), Y, sample_weight=np.arange(N_ROWS) != 3)


def test_none_is_a_missing_value():
    with pytest.raises(ValueError, match="column 2, row 3"):
        MarginPursuitClassifier().fit(changed(None, dtype=object), Y)
    with pytest.raises(ValueError, match="column 2, row 3"):
        MarginPursuitClassifier().fit(changed(None, dtype=object).tolist(), Y)


def test_missing_values_are_refused_where_scikit_learn_assumes_none():
    with config_context(assume_finite=True), pytest.raises(ValueError, match="NaN"):
        MarginPursuitClassifier().fit(changed(np.nan), Y)


BAD_X = {
    "no rows": (X[:0], "0 sample"),
    "no columns": (X[:, :0], "0 feature"),
    "one dimension": (X[:, 0], "2D array"),
    "three dimensions": (X[np.newaxis], "dim 3"),
    "one row more": (X[1:], r"\[119, 120\]"),
    "complex": (X + 1j, "Complex data"),
    "complex csr": (sparse.csr_array(X + 1j), "Complex data"),
    "text": (X.astype(str), "X must hold numbers, not text"),
    "bytes": (X.astype("S"), "X must hold numbers, not text"),
    "objects that are text": (X.astype(str).astype(object), "X must hold numbers, not text"),
    "one text among numbers": (changed("7", dtype=object), "X must hold numbers, not text"),
    "list of text": (X.astype(str).tolist(), "X must hold numbers, not text"),
    "dates": (X.astype("M8[s]"), "X must hold numbers, not text or dates; got dtype datetime64"),
    "durations": (X.astype("m8[s]"), "X must hold numbers"),
    "structured": (np.zeros(N_ROWS, [("a", "f8"), ("b", "f8")]), "X must hold numbers"),
    "masked": (np.ma.masked_array(X, X > 40), "masked array: its mask would be ignored"),
    "ragged": ([[1.0, 2.0], [3.0]] * (N_ROWS // 2), "inhomogeneous"),
}


@pytest.mark.parametrize("case", BAD_X)
def test_bad_X_is_refused(case):
    bad, message = BAD_X[case]
    with pytest.raises(ValueError, match=message):
        MarginPursuitClassifier().fit(bad, Y)


@pytest.mark.parametrize("case", ["text", "masked", "complex", "dates"])
def test_bad_X_is_refused_when_predicting(case):
    bad, message = BAD_X[case]
    with pytest.raises(ValueError, match=message):
        REFERENCE.predict(bad)


def test_matrix_class_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        bad = np.matrix(X)
    with pytest.raises(TypeError, match=r"np\.matrix"):
        MarginPursuitClassifier().fit(bad, Y)


def test_another_number_of_columns_is_refused_when_predicting():
    with pytest.raises(ValueError, match=r"X has 4 features, but .* 5 features"):
        REFERENCE.predict(X[:, :4])


def test_predicting_before_fitting():
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(MarginPursuitClassifier(), method)(X)


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
        pandas.Series(Y, dtype="Int64"),
        polars.Series(text),
        polars.Series(Y),
    ):
        assert_same_fit(MarginPursuitClassifier().fit(X, labels))


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(DataConversionWarning):
        assert_same_fit(MarginPursuitClassifier().fit(X, Y[:, np.newaxis]))


NAN_LABELS = np.where(np.arange(N_ROWS) == 3, np.nan, Y)

BAD_Y = {
    "NaN": (NAN_LABELS, ValueError, "y contains NaN"),
    "one class": (np.full(N_ROWS, 7), ValueError, r"at least 2 classes .* got 1 class: \[7\]"),
    "one class of text": (["a"] * N_ROWS, ValueError, r"got 1 class: \['a'\]"),
    "continuous": (X[:, 0] + 0.5, ValueError, "Unknown label type: continuous"),
    "two columns": (np.column_stack([Y, Y]), ValueError, r"1d array, got .* \(120, 2\)"),
    "none": (None, ValueError, "requires y"),
    "mixed": (np.array([0, "a"] * 60, dtype=object), TypeError, "mixed label types; got str and"),
    "mixed list": ([0, "a"] * 60, TypeError, "mixed label types; got str and int"),
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
    with pytest.warns(UserWarning, match=r"classes with one: \[0, 1\]"):
        fitted = MarginPursuitClassifier().fit([[1.0, 2.0], [3.0, 5.0]], [0, 1])
    assert fitted.predict([[1.0, 2.0], [3.0, 5.0]]).tolist() == [0, 1]


def test_a_class_with_one_sample_is_warned_of_by_name():
    labels = np.where(np.arange(N_ROWS) == 5, "rare", "common")
    with pytest.warns(UserWarning, match=r"single sample .* \['rare'\]") as caught:
        fitted = MarginPursuitClassifier().fit(X, labels)
    assert caught[0].filename == __file__
    assert np.all(np.isfinite(fitted.coef_))


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
    reference = MarginPursuitClassifier(scale=scale).fit(X, Y)
    for weights in (np.full(N_ROWS, weight), weight):
        fitted = MarginPursuitClassifier(scale=scale).fit(X, Y, sample_weight=weights)
        assert_same_fit(fitted, reference, rtol=1e-12)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({0: -1.0}, r"class_weight\[0\] must be in \[0, 1e\+300\]; got -1"),
        ({0: np.nan}, r"class_weight\[0\] must not be NaN"),
        ({0: "a"}, r"class_weight\[0\] must hold real numbers; got 'a'"),
        ({0: 1.0, 7: 2.0}, r"class_weight must name classes of y, \[0, 1\]; got \[7\]"),
        ({0: 0.0, 1: 0.0}, "class_weight must leave a sample a weight"),
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
    scaled = make(X * factor)
    fitted = MarginPursuitClassifier().fit(scaled, Y)
    assert np.all(np.isfinite(fitted.coef_))
    np.testing.assert_allclose(
        fitted.decision_function(scaled), REFERENCE.decision_function(X), rtol=1e-6, atol=1e-9
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
    with pytest.raises(OverflowError, match="another unit"):
        model.fit(X * 1e-312, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    ("factor", "parameters"),
    [(1e-160, {"alpha": 0.1}), (1e160, {"alpha": 0.1}), (1e160, {"solver": "steepest"})],
)
def test_what_depends_on_the_unit_does_not_guess_one(factor, parameters):
    with pytest.raises(OverflowError, match="unit"):
        MarginPursuitClassifier(**parameters).fit(X * factor, Y)


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
    fitted = MarginPursuitClassifier().fit(np.column_stack([X, X[:, 0]]), Y)
    assert fitted.coef_[0, 0] == pytest.approx(fitted.coef_[0, -1], rel=1e-6)
    np.testing.assert_allclose(
        fitted.decision_function(np.column_stack([X, X[:, 0]])),
        REFERENCE.decision_function(X),
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
    fitted = MarginPursuitClassifier().fit(wide, labels)
    assert fitted.score(wide, labels) == 1.0
    stored = MarginPursuitClassifier().fit(sparse.csr_array(wide), labels)
    np.testing.assert_allclose(stored.coef_, fitted.coef_, rtol=1e-5, atol=1e-8)


def test_a_thousand_classes():
    rng = np.random.default_rng(0)
    labels = np.arange(2000) % 1000
    many = 10.0 * rng.normal(size=(1000, 10))[labels] + rng.normal(size=(2000, 10))
    fitted = MarginPursuitClassifier(scale=100.0).fit(many, labels)
    assert fitted.coef_.shape == (1000, 10)
    assert fitted.n_passes_ < 15
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
