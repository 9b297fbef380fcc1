"""Columns of numbers: separators that have two readings, and cells in other formats."""

import numpy as np
import pytest
from scipy import sparse

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

from cli_calls import call  # noqa: E402

from marginpursuit.tables import (  # noqa: E402
    Column,
    TableError,
    TableVectoriser,
    read_frame,
    unreadable_rows,
    vectorise,
)
from marginpursuit.tables.columns import parse  # noqa: E402

DATES = pd.date_range("2024-01-01", periods=9)


def column_of(cells, **options):
    (column,) = TableVectoriser(**options).describe(pd.DataFrame({"a": cells}))
    return column


def read(cells, decimal=".", thousands=""):
    cells = pd.Series(cells)
    column = Column("a", "number", "", decimal, thousands)
    numbers = parse(cells, column)
    np.testing.assert_array_equal(unreadable_rows(cells, column), np.flatnonzero(np.isnan(numbers)))
    return numbers


def test_a_group_of_thousands_does_not_start_with_zero():
    column = column_of(["0,123", "1,500", "12,250"] * 3)
    assert (column.decimal, column.thousands) == (",", "")
    np.testing.assert_array_equal(read(["0,123", "1,234"], ".", ","), [np.nan, 1234])


@pytest.mark.parametrize(
    ("cells", "decimal", "thousands", "reason"),
    [
        (
            ["1,234", "5,678"],
            *(".", ","),
            "decimal '.', thousands ',', but ',' could be the decimal separator",
        ),
        (["1.234", "5.678"], *(".", ""), "decimal '.', but '.' could be the thousands separator"),
        (["1,234", "5,67"], *(",", ""), "decimal ','"),
        (["1,234", "5,678.5"], *(".", ","), "decimal '.', thousands ','"),
        (["1", "25"], *(".", ""), ""),
        (["5%", "25 %"], *(".", ""), ""),
        (["5%", "0.25"], *(".", ""), "per cent signs in some cells only, without conversion"),
    ],
)
def test_separators_with_two_readings_are_named(cells, decimal, thousands, reason):
    column = column_of(cells * 5)
    assert (column.decimal, column.thousands, column.reason) == (decimal, thousands, reason)


def test_semicolons_decide_where_no_column_does(tmp_path):
    path = tmp_path / "a.csv"
    for other, decimal, thousands in [("2", ",", ""), ("0,5", ",", ""), ("0.5", ".", ",")]:
        rows = "".join(f"{k},250;{other};{'xyz'[k % 3]}\n" for k in range(1, 9))
        path.write_text(f"a;b;c\n{rows}")
        raw = read_frame(path)
        column = TableVectoriser(decimal=raw.decimal).describe(raw.frame)[0]
        assert (column.decimal, column.thousands) == (decimal, thousands)
        column = vectorise(path).vectoriser.columns_[0]
        assert (column.decimal, column.thousands) == (decimal, thousands)
        has_doubt = "could be" in column.reason
        assert has_doubt == (other == "2")
    with pytest.raises(TableError, match=r"decimal must be '.' or ','; got ';'"):
        TableVectoriser(decimal=";").fit(raw.frame)


def test_cells_of_another_format_are_missing_and_counted():
    """Removing the separators would turn 1234.567 into 1234567."""
    assert np.isnan(read(["12€50", "3 4", "5%3", "1 2 3", "0x10", "--5", "+-5", "1_0"])).all()
    assert np.isnan(read(["1234.567", "1,234.5", "1.2345", "1.23"], ",", ".")).all()
    assert np.isnan(read(["1.234,567", "12,34", "1,234,5"], ".", ",")).all()
    np.testing.assert_array_equal(
        read(["1.234,567", "5", "-1.234 €"], ",", "."), [1234.567, 5, -1234]
    )
    values = [f"{k}.50 €" for k in range(96)] + ["12€50", "3 4"]
    assert column_of(values).n_missing == 2


@pytest.mark.parametrize("blank", ["\u00a0", "\u202f", "\u2009"])
def test_typographic_blanks_and_apostrophes_separate_thousands(blank):
    cells = [f"1{blank}234,56{blank}€", f"12{blank}000,00{blank}€", f"3,5{blank}%"]
    column = column_of(cells * 3)
    assert (column.kind, column.decimal, column.thousands) == ("number", ",", " ")
    np.testing.assert_array_equal(parse(pd.Series(cells), column), [1234.56, 12000, 3.5])
    swiss = column_of(["1\u2019234.50", "12'000.00", "3.5"] * 3)
    assert (swiss.kind, swiss.decimal, swiss.thousands) == ("number", ".", "'")


def test_several_currencies_are_named():
    assert (
        column_of(["$5", "€7.5", "12 CHF"] * 3).reason == "currencies $, CHF, € without conversion"
    )
    assert column_of(["$5", "$7.5"] * 3).reason == ""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model of numbers, m, that predicts whether v is more than 15."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"v": rng.uniform(0, 30, 100).round(3)})
    frame.assign(y=np.where(frame.v > 15, "hot", "cold")).to_csv("n.csv", index=False)
    call("fit", "n.csv", "-t", "y", "-o", "m", "--folds", "2", "--bootstrap", "0",
         "--method", "MarginPursuitClassifier")  # fmt: skip
    return tmp_path


def test_a_model_of_numbers_does_not_guess_thousands(model):
    (model / "new.csv").write_text("v;z\n2,345;x\n28,500;y\n0,123;x\n")
    assert call("predict", "m", "new.csv").stdout.split() == ["prediction", "cold", "hot", "cold"]
    (model / "new.csv").write_text("v;z\n2,345;x\n28,500;y\n")
    done = call("predict", "m", "new.csv")
    assert done.stdout.split() == ["prediction", "cold", "hot"]
    assert "column v: number, decimal ',', but ',' could be the thousands sep" in done.stderr
    (model / "new.csv").write_text('v,z\n5,x\n"2,345",x\n"28,500",y\n')
    refused = call("predict", "m", "new.csv", code=3).stderr
    assert (
        "column 'v': ',' could be the decimal or the thousands separator of '2,345' and" in refused
    )
    assert refused.endswith("Write the numbers without thousands separators.\n")


@pytest.mark.parametrize("dtype", [bool, "boolean", object, "category"])
def test_booleans_are_categories_unless_asked_for_as_numbers(dtype):
    missing = [] if dtype is bool else [None]
    cells = pd.Series([True, False, *missing] * 5, dtype=dtype)
    assert column_of(cells).kind == "category"
    column = column_of(cells, numeric=["a"])
    assert column.kind == "number"
    np.testing.assert_array_equal(parse(cells, column), [1, 0, *[np.nan] * len(missing)] * 5)


@pytest.mark.parametrize("cells", [DATES, DATES.to_period("M")])
def test_dates_are_not_numbers(cells):
    with pytest.raises(
        TableError, match=r"column 'a': expected numbers, found (datetime64|period)"
    ):
        column_of(cells, numeric=["a"])
    vectoriser = TableVectoriser().fit(pd.DataFrame({"a": [1.5, 2.5, 5] * 3}))
    with pytest.warns(UserWarning, match="'a': no cell can be read as a number"):
        matrix = vectoriser.transform(pd.DataFrame({"a": cells}))
    median = vectoriser.transform(pd.DataFrame({"a": [2.5] * 9}))
    np.testing.assert_array_equal(matrix, median)
    assert vectoriser.unknown_values(pd.DataFrame({"a": cells})) == {"a": 9}


def test_lists_and_sparse_matrices():
    arrow = pytest.importorskip("pyarrow")
    lists = pd.Series([[1], [2]] * 5, dtype=pd.ArrowDtype(arrow.list_(arrow.int64())))
    assert column_of(lists).kind == "category"
    with pytest.raises(TableError, match=r"'a.csv'; expected a data frame. Read the file with"):
        TableVectoriser().fit("a.csv")
    with pytest.raises(TableError, match="X is a sparse matrix; expected a data frame"):
        TableVectoriser().fit(sparse.csr_array(np.eye(3)))
