"""Containers and dtypes of X that MarginPursuitClassifier takes, and those that it refuses."""

import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
from classifier_data import make_data
from scipy import sparse
from sklearn import config_context
from sklearn.exceptions import NotFittedError

from marginpursuit import MarginPursuitClassifier

# One solver for rows in memory and elsewhere: two solvers differ by their tolerance.
classifier = partial(MarginPursuitClassifier, solver="gram")

X, Y = make_data()
N_ROWS, N_COLUMNS = X.shape
NAMES = [f"c{k}" for k in range(N_COLUMNS)]
REFERENCE = classifier().fit(X, Y)


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
    fitted = classifier().fit(X.astype(dtype), Y)
    assert_same_fit(fitted)
    np.testing.assert_allclose(
        fitted.decision_function(X.astype(dtype)), REFERENCE.decision_function(X), rtol=1e-9
    )


def test_bool_is_zero_and_one():
    fitted = classifier().fit(X > 25, Y)
    assert_same_fit(fitted, classifier().fit((X > 25).astype(float), Y))


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
    fitted = classifier().fit(laid_out, Y)
    assert_same_fit(fitted)
    np.testing.assert_array_equal(fitted.predict(laid_out), REFERENCE.predict(X))


def test_broadcast_columns_share_the_coefficient():
    wide = np.broadcast_to(X[:, :1], (N_ROWS, 4))
    fitted = classifier().fit(wide, Y)
    assert_same_fit(fitted, classifier().fit(wide.copy(), Y))


def test_read_only_memory_map_is_fitted_and_untouched(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert_same_fit(classifier().fit(mapped, Y))
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
    fitted = classifier(leverage_bound=None, alpha_unit="inflated").fit(stored, Y)
    reference = classifier(leverage_bound=None).fit(X, Y)
    assert_same_fit(fitted, reference)
    np.testing.assert_array_equal(fitted.predict(stored), reference.predict(X))


@pytest.mark.parametrize("dtype", ["f4", "u1", "i2", "?"])
def test_sparse_dtypes(dtype):
    narrow = X.astype(dtype)
    assert_same_fit(
        classifier(leverage_bound=None, alpha_unit="standardised", alpha=0.01).fit(
            sparse.csr_array(narrow), Y
        ),
        classifier(leverage_bound=None, alpha_unit="standardised", alpha=0.01).fit(
            narrow.astype(float), Y
        ),
    )


def test_csr_with_unsorted_indices():
    stored = sparse.csr_array(X + 1.0)
    for name in ("indices", "data"):
        reversed_rows = getattr(stored, name).reshape(N_ROWS, N_COLUMNS)[:, ::-1]
        setattr(stored, name, reversed_rows.ravel().copy())
    stored.has_sorted_indices = False
    assert_same_fit(
        classifier(leverage_bound=None, alpha_unit="standardised").fit(stored, Y),
        classifier(leverage_bound=None, alpha_unit="standardised").fit(X + 1.0, Y),
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
    fitted = classifier(leverage_bound=None, alpha_unit="inflated").fit(stored, Y)
    reference = classifier(leverage_bound=None).fit(X, Y)
    assert_same_fit(fitted, reference)
    np.testing.assert_allclose(fitted.decision_function(stored), reference.decision_function(X))
    assert stored.nnz == n_stored == 2 * N_ROWS * N_COLUMNS


@pytest.mark.parametrize("index", [-1, 10**6])
def test_csr_indices_out_of_range_are_refused(index):
    stored = sparse.csr_array(X + 1.0)
    stored.indices[0] = index
    with pytest.raises((ValueError, IndexError)):
        classifier().fit(stored, Y)


@pytest.mark.filterwarnings("ignore:partial_fit begins a new stream:UserWarning")
def test_input_is_never_modified():
    weights = np.arange(1.0, N_ROWS + 1)
    for make in (np.array, np.asfortranarray, sparse.csr_array, sparse.csc_array):
        held, labels, row_weights = make(X), Y.copy(), weights.copy()
        fitted = classifier().fit(held, labels, sample_weight=row_weights)
        fitted.predict_proba(held)
        fitted.partial_fit(held, labels, sample_weight=row_weights)
        dense = held.toarray() if sparse.issparse(held) else held
        np.testing.assert_array_equal(dense, X)
        np.testing.assert_array_equal(labels, Y)
        np.testing.assert_array_equal(row_weights, weights)


@pytest.mark.parametrize("dtype", ["u1", "f4"])
@pytest.mark.parametrize("overconfidence", [0.0, 1.0])
def test_a_dense_fit_makes_no_copy_of_X(dtype, overconfidence):
    """At most a tenth of X, some d x d matrices, ten vectors of length n, and fixed buffers.

    Without overconfidence a quarter of the rows is fitted first, in a copy of the same dtype: a
    quarter of X, which is 4.5 MB of the 11 MB allowed for float32.
    """
    n_rows, n_columns = 30_000, 150
    rng = np.random.default_rng(0)
    big = rng.integers(0, 100, (n_rows, n_columns), np.uint8).astype(dtype)
    labels = (big[:, 0] > rng.integers(0, 100, n_rows)).astype(int)
    tracemalloc.start()
    try:
        classifier(n_threads=1, overconfidence=overconfidence).fit(big, labels)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    fraction = 0.1 if overconfidence > 0 else 0.25
    allowed = fraction * big.nbytes + 6 * 8 * n_columns**2 + 10 * 8 * n_rows + 3e6
    assert peak < allowed
    assert allowed < 8 * big.size / 3  # an up-cast copy would be far above


# --- data frames ---------------------------------------------------------------------------------


def pandas_frame(values=X):
    return pytest.importorskip("pandas").DataFrame(values, columns=NAMES[: values.shape[1]])


def polars_frame(values=X):
    return pytest.importorskip("polars").DataFrame(values, schema=NAMES[: values.shape[1]])


FRAMES = {"pandas": pandas_frame, "polars": polars_frame}


@pytest.mark.parametrize("library", FRAMES)
def test_frames_equal_arrays_and_names_are_kept(library):
    frame = FRAMES[library]()
    fitted = classifier().fit(frame, Y)
    assert_same_fit(fitted)
    assert list(fitted.feature_names_in_) == NAMES
    np.testing.assert_array_equal(fitted.predict(frame), REFERENCE.predict(X))


@pytest.mark.parametrize("library", FRAMES)
def test_names_are_checked_when_predicting(library):
    frame = FRAMES[library]()
    fitted = classifier().fit(frame, Y)
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
    assert_same_fit(classifier().fit(frame, Y))


def test_missing_values_of_frames_name_the_column():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    nullable = pandas_frame().astype("Int64")
    nullable.loc[3, "c2"] = pandas.NA
    nan = pandas_frame(changed(np.nan))
    null = polars_frame().with_columns(c2=polars.Series([None, *X[1:, 2]]))
    for frame in (nullable, nan, null):
        with pytest.raises(ValueError, match=r"MarginPursuitClassifier .* column 'c2'"):
            classifier().fit(frame, Y)


def test_duplicate_column_names_are_refused():
    frame = pandas_frame()
    frame.columns = ["a", "b", "a", "c", "a"]
    for bad in (frame, frame.astype(object)):
        with pytest.raises(ValueError, match="names that differ; got 'a' 3 times"):
            classifier().fit(bad, Y)


def test_mixed_column_name_types_are_refused():
    frame = pandas_frame()
    frame.columns = ["a", 1, "b", 2, "c"]
    with pytest.raises(TypeError, match="feature names"):
        classifier().fit(frame, Y)


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
        "period": pandas.period_range("2020-01", periods=N_ROWS, freq="M"),
        "list": [[1.0, 2.0]] * N_ROWS,
        "missing object": [1.0, pandas.NA] * (N_ROWS // 2),
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
        "period",
        "list",
        "missing object",
    ],
)
def test_pandas_columns_without_numbers_are_named(kind):
    frame = pandas_frame().assign(c2=_pandas_columns()[kind])
    error = TypeError if kind in ("period", "list", "missing object") else ValueError
    with pytest.raises(error, match=r"X must hold numbers.*column 'c2' has dtype.*Encode"):
        classifier().fit(frame, Y)
    fitted = classifier().fit(pandas_frame(), Y)
    with pytest.raises(error, match="column 'c2'"):
        fitted.predict(frame)


def test_the_first_object_that_is_not_a_number_is_named():
    pandas = pytest.importorskip("pandas")
    cells = changed(pandas.NA, dtype=object)
    with pytest.raises(TypeError, match=r"got dtype object with <NA> in row 3: .* 'NAType'"):
        classifier().fit(cells, Y)
    frame = pandas.DataFrame(cells, columns=NAMES)
    with pytest.raises(TypeError, match="column 'c2' has dtype object with <NA> in row 3: "):
        classifier().fit(frame, Y)


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
        classifier().fit(polars_frame().with_columns(c2=column), Y)


def test_arrow_table():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(dict(zip(NAMES, X.T, strict=True)))
    assert_same_fit(classifier().fit(table, Y))
    text = table.set_column(2, "c2", [["x"] * N_ROWS])
    with pytest.raises(ValueError, match="column 'c2' has dtype"):
        classifier().fit(text, Y)


# --- bad X ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["auto", "lbfgs", "steepest"])
@pytest.mark.parametrize("make", [np.array, sparse.csr_array, np.asfortranarray])
@pytest.mark.parametrize(
    ("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_missing_values_are_refused_with_their_place(value, word, make, solver):
    message = f"contains {word}: MarginPursuitClassifier needs finite .*; got .* column 2, row 3"
    with pytest.raises(ValueError, match=message):
        classifier(solver=solver).fit(make(changed(value)), Y)
    with pytest.raises(ValueError, match=message):
        REFERENCE.predict(make(changed(value)))
    with pytest.raises(ValueError, match=message):
        classifier().partial_fit(make(changed(value)), Y, classes=[0, 1])


def test_missing_values_are_refused_even_with_weight_zero():
    with pytest.raises(ValueError, match="NaN"):
        classifier().fit(changed(np.nan), Y, sample_weight=np.arange(N_ROWS) != 3)


def test_none_is_a_missing_value():
    with pytest.raises(ValueError, match="column 2, row 3"):
        classifier().fit(changed(None, dtype=object), Y)
    with pytest.raises(ValueError, match="column 2, row 3"):
        classifier().fit(changed(None, dtype=object).tolist(), Y)


def test_missing_values_are_refused_where_scikit_learn_assumes_none():
    with config_context(assume_finite=True), pytest.raises(ValueError, match="NaN"):
        classifier().fit(changed(np.nan), Y)


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
        classifier().fit(bad, Y)


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
        classifier().fit(bad, Y)


def test_another_number_of_columns_is_refused_when_predicting():
    with pytest.raises(ValueError, match=r"X has 4 features, but .* 5 features"):
        REFERENCE.predict(X[:, :4])


def test_predicting_before_fitting():
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(classifier(), method)(X)
