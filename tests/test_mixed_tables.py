"""Mixed tables: files of all kinds, kinds of columns, and their matrices."""

import gzip
import tracemalloc

import numpy as np
import pytest
from scipy import sparse

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

from mixed_table import mixed_table  # noqa: E402
from sklearn import config_context  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from marginpursuit import (  # noqa: E402
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    save_model,
)
from marginpursuit.experiments.cross_validation import Split, vectorised_splits  # noqa: E402
from marginpursuit.model_files import ModelFileError  # noqa: E402
from marginpursuit.tables import (  # noqa: E402
    TableError,
    TableVectoriser,
    column_counts,
    guess_target,
    labels_of,
    missing_code,
    read_frame,
    read_table,
    vectorise,
)


def kinds(frame, **options):
    return {column.name: column.kind for column in TableVectoriser(**options).describe(frame)}


def column_of(cells, **options):
    (column,) = TableVectoriser(**options).describe(pd.DataFrame({"a": cells}))
    return column


def numbers(cells, **options):
    """Return the numbers that a column of text is read as, without its standardisation."""
    vectoriser = TableVectoriser(numeric=["a"], **options)
    matrix = vectoriser.fit_transform(pd.DataFrame({"a": cells}))
    scaler = vectoriser.encoder_.transformers_[0][1][-1]
    return matrix[:, 0] * scaler.scale_[0] + scaler.mean_[0]


def test_kinds_of_an_ordinary_table():
    assert kinds(mixed_table().drop(columns="status")) == {
        "customer": "dropped",
        "age": "number",
        "income": "number",
        "plan": "category",
        "city": "category",
        "active": "category",
        "signup": "date",
        "note": "text",
        "constant": "dropped",
        "empty": "dropped",
    }


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "2.5", "-3e2"], [1, 2.5, -300]),
        (["1,5", "2", "3,25"], [1.5, 2, 3.25]),
        (["1,234", "5,678", "12,345,678"], [1234, 5678, 12345678]),
        (["1.234,5", "2.000,0", "7,25"], [1234.5, 2000, 7.25]),
        (["1 234,5", "2 000,0", "7,25"], [1234.5, 2000, 7.25]),
        (["1'234.5", "2'000", "7.25"], [1234.5, 2000, 7.25]),
        (["$1,200", "-$5", "€3.50"], [1200, -5, 3.5]),
        (["12 %", "7%", "0.5 %"], [12, 7, 0.5]),
        (["1.234,50-", "7,25", "1.000,00-"], [-1234.5, 7.25, -1000]),
        (["+4", ".5", "5."], [4, 0.5, 5]),
        (["(1,234.00)", "1,234.00", "($7.50)", "$(3)"], [-1234, 1234, -7.5, -3]),
        (["₹1,200", "-₹5", "3.50 ₪"], [1200, -5, 3.5]),
        (["USD 13,384.33", "1,684.10 EUR", "5CHF"], [13384.33, 1684.1, 5]),
        (["\u22121.5", "2.25"], [-1.5, 2.25]),
    ],
)
def test_formats_of_numbers(cells, values):
    np.testing.assert_allclose(numbers(cells), values, rtol=1e-12)
    assert column_of([*cells] * 3).kind == "number"


def test_ambiguous_numbers_follow_the_other_columns():
    cells = ["1.234", "5.678"] * 3
    alone = TableVectoriser().describe(pd.DataFrame({"a": cells}))
    assert (alone[0].decimal, alone[0].thousands) == (".", "")
    frame = pd.DataFrame({"a": cells, "b": ["0,5", "12,75"] * 3, "n": ["1", "2"] * 3})
    column = TableVectoriser().describe(frame)[0]
    assert (column.decimal, column.thousands) == (",", ".")
    commas = pd.DataFrame({"a": ["1,234", "5,678"] * 3, "b": ["0.5", "12.75"] * 3})
    column = TableVectoriser().describe(commas)[0]
    assert (column.decimal, column.thousands) == (".", ",")


def test_a_decimal_part_is_not_a_group_of_thousands():
    """A comma before other than three digits: 45,3 and 1,5 are not 453 and 15."""
    known = pd.DataFrame({"a": [f"{k},250.5" for k in range(1, 40)]})
    vectoriser = TableVectoriser().fit(known)
    assert vectoriser.columns_[0].thousands == ","
    new = pd.DataFrame({"a": ["45,3", "1,5", "1,2345", "2,500", "2500", "1,234,567.5"]})
    assert vectoriser.unknown_rows(new)["a"].tolist() == [0, 1, 2]
    matrix = vectoriser.transform(new)
    assert matrix[3, 0] == matrix[4, 0]


def test_a_few_cells_that_are_no_numbers_are_missing():
    column = column_of([*map(str, np.arange(98) * 1.5), "n/a", "unknown"])
    assert (column.kind, column.n_missing) == ("number", 2)
    assert column_of(["1", "2", "three", "four"] * 5).kind == "category"


def test_a_word_in_many_cells_of_numbers_or_dates_is_missing():
    """One such word made a category of several hundred values, and lost the numbers."""
    numbers = [f"{1.5 * k:.1f}" for k in range(90)]
    column = column_of([*numbers, *["unknown"] * 30])
    assert (column.kind, column.n_missing) == ("number", 30)
    days = pd.date_range("2024-01-01", periods=90).strftime("%d.%m.%Y")
    column = column_of([*days, *["unknown"] * 30])
    assert (column.kind, column.n_missing) == ("date", 30)
    assert column_of([*"12345" * 20, *["unknown"] * 30]).kind == "category"


def test_numbers_that_may_stand_for_missing_values():
    ages = np.repeat(np.arange(20, 80), 2)
    assert missing_code(np.append(ages, [-1] * 3)) is None  # few, and near
    assert missing_code(np.append(ages, [-999] * 10)) == -999
    assert missing_code(np.append(ages, [999.0] * 10 + [np.nan])) == 999
    assert missing_code(np.repeat([0, 200], 20)) is None
    assert missing_code(np.arange(120, dtype=np.uint8) // 8) is None  # differences would wrap


def test_columns_that_are_mostly_numbers_name_the_option_that_reads_them():
    cells = [f"<{k}" if k % 5 == 0 else f"{k},5 €" for k in range(60)]
    column = column_of(cells)
    assert column.kind == "dropped"
    assert "an identifier; most are numbers: --numeric reads them" in column.reason
    assert "most are numbers" in column_of(cells[:40] * 2).reason
    asked = column_of(cells, numeric=["a"])
    assert (asked.kind, asked.decimal, asked.n_missing) == ("number", ",", 12)


@pytest.mark.parametrize("unit", ["kg", " kg", " m²"])
def test_numbers_with_a_unit_are_not_called_identifiers(unit):
    column = column_of([f"{6019.6 + k}{unit}" for k in range(99)] + ["unknown"])
    assert (column.kind, column.reason) == (
        "dropped",
        f"looks like numbers with the unit {unit.strip()!r}; remove the unit to use them",
    )
    assert column_of([f"{k}{'ABC'[k % 3]}" for k in range(60)]).reason.endswith("an identifier")


def test_codes_with_leading_zeros_are_categories():
    assert column_of(["007", "008", "123"] * 10).kind == "category"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["2024-01-31", "2023-12-01"] * 5, "date"),
        (["31.01.2024", "01.12.2023"] * 5, "date"),
        (["2024-01-31 10:15", "2023-12-01 00:30"] * 5, "date"),
        (["Jan 31, 2024", "Dec 01, 2023"] * 5, "date"),
        (["20-29", "30-39"] * 5, "category"),
        (["a", "b"] * 5, "category"),
        ([True, False] * 5, "category"),
        ([1, 0, None] * 5, "number"),
        ([pd.Timestamp("2024-01-31"), pd.NaT, pd.Timestamp("2023-01-01")] * 4, "date"),
        ([f"user{k}@example.org" for k in range(40)], "dropped"),
        ([f"the product {k} is good" for k in range(40)], "text"),
        (list(range(40)), "dropped"),
        (list(range(0, 400, 10)), "number"),
    ],
)
def test_kinds_of_columns(cells, kind):
    assert column_of(cells).kind == kind


def test_options_choose_the_kind():
    frame = mixed_table().drop(columns="status")
    chosen = kinds(frame, categorical=["age"], text=["plan"], numeric=["city"], drop=["note"])
    assert [chosen[name] for name in ("age", "plan", "city", "note")] == [
        "category",
        "text",
        "number",
        "dropped",
    ]
    assert kinds(frame, text=["customer"])["customer"] == "text"
    assert kinds(frame, ids=["age"], target="plan")["age"] == "dropped"
    with pytest.raises(TableError, match="no column 'x'"):
        TableVectoriser(text=["x"]).fit(frame)
    with pytest.raises(TableError, match="'age' is chosen as number and as text"):
        TableVectoriser(text=["age"], numeric=["age"]).fit(frame)
    with pytest.raises(TableError, match="no column is left: constant: dropped, one value"):
        TableVectoriser().fit(frame[["constant"]])


def test_columns_are_named_by_numbers_and_in_sequences():
    """A target that is not text would leak into the features, and "id" would drop 'i' and 'd'."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 4))).round(3)
    frame[4] = ["a", "b"] * 20
    assert kinds(frame, target=4, drop=[0], categorical=[1]) == {
        **{"0": "dropped", "1": "category", "2": "number", "3": "number", "4": "dropped"}
    }
    assert vectorise(frame, target=4, numeric=[0]).X.shape == (40, 4)
    with pytest.raises(TableError, match="there is no column '5'; there are '0', '1'"):
        vectorise(frame, target=5)
    for option in ("numeric", "categorical", "text", "drop", "ids"):
        words = rf"{option} must be a sequence of names; got 'id'; write \['id'\]"
        with pytest.raises(TableError, match=words):
            TableVectoriser(**{option: "id"}).fit(frame)
    with pytest.raises(TableError, match=r"drop must be a sequence of names; got 4; write \[4\]"):
        TableVectoriser(drop=4).fit(frame)


def test_features_are_named_as_the_encoder_orders_them():
    """A row with a value has a one in the feature of that name, also with rare and two values."""
    frame = pd.DataFrame(
        {
            "a": ["x"] * 10 + ["y"] * 10 + ["z"] * 2,
            "b": ["yes"] * 11 + ["no"] * 11,
            "c": ["q"] * 20 + ["r", "s"],
            "d": [""] * 8 + ["t"] * 14,
        }
    )
    vectoriser = TableVectoriser()
    matrix = vectoriser.fit_transform(frame)
    names = vectoriser.get_feature_names_out().tolist()
    assert names == ["a = x", "a = y", "a = (rare)", "b = yes", "c = (rare)", "d = t"]
    expected = np.column_stack(
        [
            frame.a == "x",
            frame.a == "y",
            frame.a == "z",
            frame.b == "yes",
            frame.c != "q",
            frame.d == "t",
        ]
    )
    np.testing.assert_array_equal(matrix, expected)
    new = vectoriser.transform(frame[:1].assign(a="new"))
    assert new[0, :3].tolist() == [0, 0, 1]


def test_missing_numbers_are_imputed_with_an_indicator():
    frame = pd.DataFrame({"a": ["1", "3", "", "100"] * 5})
    vectoriser = TableVectoriser().fit(frame)
    assert vectoriser.get_feature_names_out().tolist() == ["a", "a is missing"]
    matrix = vectoriser.transform(pd.DataFrame({"a": ["3", ""]}))
    assert matrix[0, 0] == matrix[1, 0]
    assert matrix[0, 1] < matrix[1, 1]
    scale = vectoriser.features_[0].scale
    assert scale == pytest.approx(np.std([1, 3, 3, 100]))


def test_infinite_numbers_are_missing():
    matrix = TableVectoriser().fit_transform(pd.DataFrame({"a": [1.0, np.inf, 3.0] * 9}))
    assert matrix.shape == (27, 2)
    assert np.isfinite(matrix).all()


def test_differences_and_new_values():
    frame = mixed_table().drop(columns="status")
    vectoriser = TableVectoriser(drop=["customer"]).fit(frame)
    same = vectoriser.transform(frame)
    other = frame[frame.columns[::-1]].assign(further=1).drop(columns=["empty", "constant"])
    found = vectoriser.differences(other)
    assert (found.missing, found.extra, found.is_reordered) == ((), ("further",), True)
    np.testing.assert_array_equal(vectoriser.transform(other), same)
    changed = frame.assign(plan=["new", *frame.plan[1:]], age=["x", "y", *frame.age[2:]])
    assert vectoriser.unknown_values(changed) == {"plan": 1, "age": 2}
    assert vectoriser.unknown_values(frame) == {}
    with pytest.raises(TableError, match="lacks 2 of 7 columns: 'age', 'note'; it has 'customer'"):
        vectoriser.transform(frame.drop(columns=["age", "note"]))


def test_columns_that_cannot_be_read_at_prediction_are_warned_of():
    frame = pd.DataFrame({"price": [f"1,{k}34.50" for k in range(1, 9)] * 5})
    frame["day"] = [f"{day}/03/2024" for day in range(1, 32)] + ["1/04/2024"] * 9
    vectoriser = TableVectoriser().fit(frame)
    vectoriser.transform(frame[:1].assign(price=""))  # no value is not a warning
    with pytest.warns(
        UserWarning, match="'price': no cell can be read as a number with decimal '.' and thousands"
    ):
        vectoriser.transform(frame.assign(price="1.234k"))
    with pytest.warns(UserWarning, match="'day': no cell can be read as a date of the format %d/"):
        vectoriser.transform(frame.assign(day="March 3"))


@pytest.mark.filterwarnings("error")
def test_single_cells_and_columns_that_the_fit_could_not_read_are_not_warned_of():
    frame = pd.DataFrame({"a": ["1.5", "2.5", "x"] * 10, "b": ["much", "little", "none"] * 10})
    vectoriser = TableVectoriser(numeric=["a", "b"]).fit(frame)
    vectoriser.transform(frame)
    vectoriser.transform(frame.assign(a=["bad"] + [""] * 29))
    with pytest.warns(UserWarning, match="'a': no cell can be read as a number"):
        vectoriser.transform(frame[2:3])


@pytest.mark.filterwarnings("error")
def test_the_folds_of_a_table_are_not_warned_of():
    frame = pd.DataFrame({"a": ["1.5", "2.5"] * 19 + ["bad", "bad"], "b": ["u", "v"] * 20})
    split = Split(np.arange(38), np.arange(38, 40))
    (found,) = vectorised_splits([split], TableVectoriser(numeric=["a"]), frame)
    assert found.matrices[1].shape == (2, 2)


def test_arrays_and_empty_tables_are_refused_by_a_fitted_step():
    frame = mixed_table().drop(columns="status")
    vectoriser = TableVectoriser().fit(frame)
    array = "X is of type ndarray, which has no names of columns; expected a data frame with the 7 "
    with pytest.raises(TableError, match=array):
        vectoriser.transform(frame.to_numpy())
    for method in (vectoriser.transform, TableVectoriser().fit):
        with pytest.raises(TableError, match="the table has no rows; expected at least one"):
            method(frame[:0])
    numbered = TableVectoriser().fit(np.array([["a", "b"], ["c", "d"]] * 5))
    assert numbered.transform(np.array([["a", "d"]])).shape == (1, 2)


def test_wide_tables_are_sparse():
    frame = mixed_table().drop(columns="status")
    dense = TableVectoriser().fit_transform(frame)
    wide = TableVectoriser(max_dense_features=10).fit_transform(frame)
    assert sparse.issparse(wide)
    np.testing.assert_array_equal(wide.toarray(), dense)


def test_matrices_do_not_depend_on_the_output_of_transformers_in_general():
    frame = mixed_table()
    y = frame.pop("status")
    expected = TableVectoriser().fit_transform(frame)
    with config_context(transform_output="pandas"):
        vectoriser = TableVectoriser()
        fitted = vectoriser.fit_transform(frame)
        np.testing.assert_array_equal(fitted, expected)
        assert fitted.columns.tolist() == vectoriser.get_feature_names_out().tolist()
        np.testing.assert_allclose(vectoriser.transform(frame), expected)
        model = make_pipeline(TableVectoriser(), MarginPursuitClassifier()).fit(frame, y)
        assert model[-1].feature_names_in_.tolist() == fitted.columns.tolist()
    names = TableVectoriser().set_output(transform="polars").fit_transform(frame).columns
    assert names == fitted.columns.tolist()


def test_what_is_no_table_or_not_fitted_is_named():
    for values in ({"a": [1, 2]}, None, np.zeros((2, 2, 2))):
        with pytest.raises(TableError, match=r"X is of type .* dimensions; expected a data frame"):
            TableVectoriser().fit(values)
    frame, vectoriser = mixed_table(), TableVectoriser()
    for method in ("differences", "unknown_values", "empty_columns", "transform"):
        with pytest.raises(NotFittedError):
            getattr(vectoriser, method)(frame)


def test_pipelines_are_cloned_and_cross_validated():
    frame = mixed_table()
    model = make_pipeline(TableVectoriser(target="status"), MarginPursuitClassifier())
    scores = cross_val_score(clone(model), frame, frame.status, cv=3)
    assert scores.mean() > 0.85


@pytest.mark.filterwarnings("ignore:Found unknown categories:UserWarning")
def test_pipelines_of_skrub(tmp_path):
    """skrub's vectoriser leaves missing numbers; its whole pipeline imputes them."""
    skrub = pytest.importorskip("skrub")
    frame = mixed_table()
    X, y = frame.drop(columns="status"), frame["status"]
    complete = X.drop(columns="age")
    model = make_pipeline(skrub.TableVectorizer(), MarginPursuitClassifierCV(cv=3))
    model.fit(complete, y)
    assert model.score(complete, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(complete).sum(axis=1), 1)
    assert model[-1].feature_names_in_[0] == model[0].get_feature_names_out()[0]
    with pytest.raises(ValueError, match="got nan in column 'age'"):
        clone(model).fit(X, y)
    whole = skrub.tabular_pipeline(MarginPursuitClassifier())
    assert whole.fit(X[:140], y[:140]).score(X[140:], y[140:]) > 0.75
    with pytest.raises(ModelFileError, match="it is of type TableVectorizer; a file holds"):
        save_model(model, tmp_path / "m")


def test_typed_frames_and_text_frames_agree():
    text = mixed_table().drop(columns="status")
    typed = text.assign(
        age=pd.to_numeric(text.age),
        income=text.income.str.replace(",", "").astype(float),
        plan=text.plan.astype("category"),
        signup=pd.to_datetime(text.signup, format="%d.%m.%Y"),
    )
    a, b = TableVectoriser(), TableVectoriser()
    np.testing.assert_allclose(a.fit_transform(text), b.fit_transform(typed), rtol=1e-6)
    np.testing.assert_allclose(a.transform(typed), a.transform(text), rtol=1e-6)


@pytest.mark.parametrize(
    ("cells", "n_features"),
    [
        (["1e300", "-1e300", "1", "2"], 2),
        ([[1, 2], [3], [4]], 3),
        (["\ud800", "b", "c"], 3),
        ([1, "two", None, 3.5], 4),
        (["<script>", "&", '"'], 3),
        ([True, None, False], 3),
    ],
)
def test_odd_cells(cells, n_features):
    """Numbers whose squares overflow are missing; everything else is text at worst."""
    frame = pd.DataFrame({"a": pd.Series(cells * 9, dtype=object)})
    vectoriser = TableVectoriser()
    matrix = vectoriser.fit_transform(frame)
    assert matrix.shape == (len(frame), n_features)
    assert np.isfinite(matrix).all()
    np.testing.assert_array_equal(vectoriser.transform(frame), matrix)


def test_rows_keep_their_places_under_any_index():
    """Selected rows, as those of a fold, have an index with gaps."""
    frame = mixed_table().drop(columns="status")
    odd = frame.set_axis(np.arange(len(frame))[::-1] * 7 + 3, axis=0)
    np.testing.assert_array_equal(
        TableVectoriser().fit_transform(odd), TableVectoriser().fit_transform(frame)
    )


def test_long_cells_take_the_memory_of_their_text():
    """One cell of 4 MB in 2,000 rows: an array of fixed width would take 32 GB."""
    notes = [f"word{k % 40} is here" for k in range(2000)]
    notes[7] = "long " * 800_000
    frame = pd.DataFrame({"note": notes, "plan": ["a", "b"] * 1000})
    vectoriser = TableVectoriser()
    tracemalloc.start()
    try:
        matrix = vectoriser.fit_transform(frame)
        vectoriser.unknown_values(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert matrix.shape[0] == 2000
    assert peak < 500e6


def test_arrays_polars_and_equal_names():
    polars = pytest.importorskip("polars")
    assert TableVectoriser().fit_transform(np.array([["a", "b"]] * 3 + [["c", "b"]])).shape == (
        4,
        1,
    )
    frame = polars.DataFrame({"a": [1.5, None, 2.5], "b": ["x", "y", "x"]})
    assert TableVectoriser().fit_transform(frame).shape == (3, 3)
    with pytest.raises(TableError, match="several columns 'a'"):
        TableVectoriser().fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def write_all(frame, folder):
    """Write a table in all formats; return the paths."""
    text = frame.to_csv(index=False)
    files = {
        "comma.csv": text.encode(),
        "semicolon.csv": frame.to_csv(index=False, sep=";").encode("utf-8-sig"),
        "tab.tsv": frame.to_csv(index=False, sep="\t").encode("utf-16"),
        "packed.csv.gz": gzip.compress(text.encode()),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    frame.to_excel(folder / "book.xlsx", index=False)
    frame.to_parquet(folder / "file.parquet")
    return [*files, "book.xlsx", "file.parquet"]


def test_files_of_all_kinds_hold_the_same_table(tmp_path):
    pytest.importorskip("openpyxl")
    pytest.importorskip("pyarrow")
    frame = mixed_table(60)
    expected = vectorise(frame, "status")
    for name in write_all(frame, tmp_path):
        found = vectorise(tmp_path / name, "status")
        np.testing.assert_allclose(found.X, expected.X, rtol=1e-12, err_msg=name)
        assert found.y.tolist() == expected.y.tolist()


def test_windows_files_and_bars(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("Stadt|y\nKöln|1\nBonn|0\n".encode("cp1252"))
    table = read_frame(path)
    assert table.frame["Stadt"].tolist() == ["Köln", "Bonn"]
    assert table.notes == ("line 2 is not UTF-8; the file is read as Windows-1252",)
    assert column_counts(path) == {"Stadt": 2, "y": 2}
    with pytest.raises(TableError, match="line 2: expected text in UTF-8, found byte 0xf6"):
        read_table(path, "y")


def test_names_are_made_different(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,,a,a (2), b \nx,1,2,3,4\n")
    table = read_frame(path)
    assert table.frame.columns.tolist() == ["a", "column 2", "a (3)", "a (2)", "b"]
    assert table.notes == (
        "column 2 has no name; it is called 'column 2'",
        "column 3 has the name 'a' again; it is called 'a (3)'",
    )
    assert (table.rows.tolist(), table.row_word) == ([2], "line")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"a,b\n1\n", "line 2: found 1 cell, expected 2 as in the first line"),
        ("a.csv", b"a,b\n", "found 0 rows and 2 columns; expected at least one of each"),
        ("a.csv.gz", b"not gzip", "expected a gzip file"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], "expected a gzip file"),
        ("a.xlsx", b"PK\x03\x04 no", "no .xlsx file, or a damaged one"),
        ("a.parquet", b"PAR1 no", "no Parquet file, or a damaged one"),
        ("a.doc", b"a", "found the suffix '.doc', expected one of .csv, .tsv, .txt, .xlsx, "),
        ("a.csv", b"\x89PNG\0\xff", "line 1: expected text in UTF-8, found byte 0x89"),
    ],
)
def test_files_that_are_no_tables(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message):
        read_frame(tmp_path / name)


def test_targets():
    labels, present = labels_of(pd.Series(["b", None, "a", " ", "NA"], name="y"))
    assert (labels.tolist(), present.tolist()) == (["b", "a"], [True, False, True, False, False])
    assert labels_of(pd.Series([1.0, 0.0, np.nan]))[0].tolist() == [1, 0]
    with pytest.raises(TableError, match="found no values"):
        labels_of(pd.Series(["", None], name="y"))
    with pytest.raises(TableError, match="200 different values in 200 rows; expected classes"):
        labels_of(pd.Series(np.arange(200), name="price"))
    with pytest.raises(TableError, match="100 different values in 900 rows; expected classes"):
        labels_of(pd.Series([f"text {k % 100}" for k in range(900)], name="note"))
    assert guess_target(["a", "b"], [500, 21]) is None
    assert guess_target(["a", "b", "c"], [3, 2, 500]) == "b"


def test_column_counts(tmp_path):
    frame = mixed_table(40)
    for name in write_all(frame, tmp_path):
        counts = column_counts(tmp_path / name)
        assert (counts["plan"], counts["customer"], counts["status"]) == (3, 21, 2)


def test_without_the_extra_a_clear_error(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    (tmp_path / "a.csv").write_text("a,b\nx,1\n")
    with pytest.raises(TableError, match=r"pip install 'marginpursuit\[tables\]'"):
        read_frame(tmp_path / "a.csv")
