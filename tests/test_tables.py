"""Tables from files: what is read, and errors that say where."""

import re
import time
import tracemalloc

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from marginpursuit.tables import MixedTableError, TableError, read_labels, read_table


def write(folder, text, name="pets.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_with_names(tmp_path):
    table = read_table(write(tmp_path, "w,kind,age\n4,cat,3.5\n-3e1,dog,5\n"), "kind")
    assert table.name == "pets"
    assert table.columns == ("w", "age")
    assert table.has_names
    np.testing.assert_array_equal(table.X, [[4, 3.5], [-30, 5]])
    assert table.y.tolist() == ["cat", "dog"]


def test_csv_without_names_counts_its_columns(tmp_path):
    table = read_table(write(tmp_path, "1,2,0\n3,4,1\n"), "3")
    assert table.columns == ("1", "2")
    assert not table.has_names
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    assert table.y.dtype == np.int64


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffa,b,y\r\n1,2,0\r\n\r\n3,4,1\r\n",
        "a;b;y\n1;2;0\n3;4;1",
        "a\tb\ty\n1\t2\t0\n\n3\t4\t1\n",
        '"a", b,"y"\n"1", 2,0\n3,4,1\n',
        "sep=;\r\na;b;y\r\n1;2;0\r\n3;4;1\r\n",
        "SEP=:\na:b:y\n1:2:0\n3:4:1\n",
        "\n\r\na;b;y\n1;2;0\n3;4;1\n",
        "a;b;y\r1;2;0\r3;4;1\r",
        'a;b;"y"\n1;"2";0\n3;4;1',
    ],
    ids=[
        *("BOM and CRLF", "semicolons", "tabs", "quotes and blanks", "sep=;", "sep=:"),
        *("blank lines", "carriage returns", "quotes"),
    ],
)
def test_csv_of_other_habits(text, tmp_path):
    table = read_table(write(tmp_path, text), "y")
    assert table.columns == ("a", "b")
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    assert table.y.tolist() == [0, 1]


def test_a_blank_may_precede_a_quote(tmp_path):
    text = 'a, "b", y\n1, "2", "no, never"\n3, "4", yes\n'
    table = read_table(write(tmp_path, text), "y")
    assert (table.columns, table.y.tolist()) == (("a", "b"), ["no, never", "yes"])
    assert table.X.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "name", ["Price, EUR", "Size, in cm, net", "Size\nin cm", "Size,\r\n5,6,7", '5" long, 6" wide']
)
def test_separators_and_lines_within_quotes_are_part_of_a_name(name, tmp_path):
    """Separators within quotes do not count; a quote is written twice."""
    quoted = name.replace('"', '""')
    path = write(tmp_path, f'"{quoted}";y\n1;0\n2;1\n')
    table = read_table(path, "y")
    assert table.columns == (name,)
    first = 2 + name.count("\n")
    assert list(table.lines) == [first, first + 1]
    assert read_table(write(tmp_path, '5" long;y\n1;0\n2;1\n'), "y").columns == ('5" long',)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a", "ö"])
def test_utf16_without_a_byte_order_mark_is_named(encoding, name, tmp_path):
    path = write(tmp_path, f"{name},y\n1,0\n2,1\n".encode(encoding))
    with pytest.raises(
        TableError, match=r"UTF-16 without a byte order mark. Save the table as UTF-8"
    ):
        read_table(path, "y")


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["0", " 1"], "i", [0, 1]),
        (["0.5", "1"], "U", ["0.5", "1"]),
        (["2.0", "1"], "f", [2.0, 1.0]),
        (["1e999", "1"], "U", ["1e999", "1"]),
        (["9" * 30, "1"], "U", ["9" * 30, "1"]),
        (["-1", "1"], "i", [-1, 1]),
        (["1.0", "2.0"], "f", [1.0, 2.0]),
        (["1_0", "10"], "U", ["1_0", "10"]),
        (["007", "7"], "U", ["007", "7"]),
        (["007", "008"], "U", ["007", "008"]),
        (["1.0", "1"], "U", ["1.0", "1"]),
        (["0.50", "0.5"], "U", ["0.50", "0.5"]),
        (
            ["9007199254740993.0", "9007199254740992.0"],
            "U",
            ["9007199254740993.0", "9007199254740992.0"],
        ),
        (["9223372036854775807", "1"], "i", [2**63 - 1, 1]),
        (["9223372036854775808", "1"], "U", ["9223372036854775808", "1"]),
        (["٣", "3"], "U", ["٣", "3"]),
        (["-0", "0"], "U", ["-0", "0"]),
        (["yes", "1"], "U", ["yes", "1"]),
    ],
)
def test_labels_are_numbers_where_all_are(cells, kind, values, tmp_path):
    text = "a,y\n" + "".join(f"1,{cell}\n" for cell in cells)
    y = read_table(write(tmp_path, text), "y").y
    assert y.dtype.kind == kind
    assert y.tolist() == values


def test_columns_are_dropped_or_chosen(tmp_path):
    path = write(tmp_path, "id,b,a,y\nx1,2,1,0\nx2,4,3,1\n")
    dropped = read_table(path, "y", drop=["id"])
    assert dropped.columns == ("b", "a")
    only = read_table(path, only=["a", "b"])
    assert only.columns == ("a", "b")
    np.testing.assert_array_equal(only.X, [[1, 2], [3, 4]])
    assert only.y is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,0\ntwo,1\n", "line 3, column 'a': expected a number, found 'two'"),
        ("a,y\n1,0\n1_000,1\n", "line 3, column 'a': expected a number, found '1_000'"),
        ("a,y\n1,0\n٣,1\n", "line 3, column 'a': expected a number, found '٣'"),
        ("a,b,y\n1,1,0\n1,１2,1\n", "line 3, column 'b': expected a number, found '１2'"),
        ("a,y\n1,0\n ,1\n", "line 3, column 'a': expected a number, found a missing value"),
        ("a,y\n1,0\n1,\n", "line 3, column 'y': the target is missing"),
        (
            "a,y\n1,0\n\nnan,1\n",
            "line 4, column 'a': expected a finite number, found NaN, a missing value",
        ),
        ("a,y\n1,0\n1e999,1\n", "line 3, column 'a': expected a finite number, found inf"),
        ("a,y\n1,0\n1,1,1\n", "line 3: found 3 cells, expected 2 as in the first line"),
        ('a,y\n"1\n",0\nx,1\n', "line 4, column 'a'"),
        ('a,y\n"1,0\n', "line 2: a quoted cell has no end. Add the closing quote."),
        ('a,y\n"say \\"1\\"",0\n', "line 2: a cell goes on after its closing quote. Write quotes"),
        ("a,b\n1,0\n", "no column 'y'; there are 'a', 'b'"),
        ("a,a,y\n1,0,1\n", "column 'a' is there 2 times"),
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("a,y\n", "found 0 rows and 1 column besides the target"),
        ("y\n1\n", "found 1 row and 0 columns besides the target; expected"),
        (b"a,y\n1,0\n\xff,1\n", "line 3: expected text in UTF-8, found byte 0xff"),
        (b"\x00\x01\x02", "no column"),
    ],
)
def test_errors_say_where(text, message, tmp_path):
    path = write(tmp_path, text)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path, "y")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("word", ["NA", "NaN", "none", "?", " "])
def test_words_for_missing_labels_are_the_same_in_all_tables(word, tmp_path):
    """`read_frame` and `labels_of` leave out these rows, also next to other columns of text."""
    found = f", {word!r}" if word.strip() else ""
    with pytest.raises(
        MixedTableError, match=re.escape(f"line 4, column 'y': the target is missing{found}")
    ):
        read_table(write(tmp_path, f"a,y\n1,yes\n2,no\n3,{word}\n"), "y")
    frame = polars.DataFrame({"a": [1, 2, 3], "y": ["yes", "no", word]})
    frame.write_parquet(tmp_path / "f.parquet")
    with pytest.raises(
        MixedTableError, match=re.escape(f"row 2, column 'y': the target is missing{found}")
    ):
        read_table(tmp_path / "f.parquet", "y")


def test_fractions_are_labels_in_all_files(tmp_path):
    """scikit-learn takes fractions for the values of a regression."""
    y = np.array([0.5, 1.0, 1.5])
    write(tmp_path, "a,y\n" + "".join(f"{k},{label}\n" for k, label in enumerate(y)))
    polars.DataFrame({"a": [1, 2, 3], "y": y}).write_parquet(tmp_path / "pets.parquet")
    np.savez(tmp_path / "pets.npz", X=np.eye(3), y=y)
    expected = {"csv": ["0.5", "1.0", "1.5"]}
    for suffix in ("csv", "parquet", "npz"):
        labels = read_table(tmp_path / f"pets.{suffix}", "y").y.tolist()
        assert labels == expected.get(suffix, ["0.5", "1", "1.5"])
    np.savez(tmp_path / "pets.npz", X=np.eye(3), y=2 * y)
    assert read_table(tmp_path / "pets.npz").y.dtype == float


def test_missing_numbers_are_no_labels(tmp_path):
    polars.DataFrame({"a": [1, 2], "y": [1.0, float("nan")]}).write_parquet(tmp_path / "f.parquet")
    with pytest.raises(MixedTableError, match="row 1, column 'y': the target is missing, 'nan'"):
        read_table(tmp_path / "f.parquet", "y")


def test_the_index_of_a_frame_is_no_column(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "y": [0, 1]}, index=[7, 9])
    frame.to_parquet(tmp_path / "f.parquet")
    assert read_table(tmp_path / "f.parquet", "y").columns == ("a",)
    assert read_table(tmp_path / "f.parquet", only=["a"]).further == ("y",)


def test_columns_without_names_are_asked_for_by_text(tmp_path):
    path = write(tmp_path, "1,2,0\n3,4,1\n")
    with pytest.raises(TableError, match=r"there is no column 1; there are '1', .* mean '1'\?"):
        read_table(path, "3", drop=[1])


@given(st.binary(max_size=200) | st.text(alphabet='a1,;."\n\r\t ', max_size=60).map(str.encode))
def test_any_bytes_are_a_table_or_an_error(tmp_path_factory, content):
    path = write(tmp_path_factory.mktemp("any"), content)
    try:
        table = read_table(path)
    except TableError:
        return
    assert np.isfinite(table.X).all()
    assert table.X.shape[1] == len(table.columns)


def test_parquet(tmp_path):
    frame = polars.DataFrame(
        {"a": [1, 2], "b": [0.5, 1.5], "c": [True, False], "y": ["u", "v"], "t": ["x", "y"]}
    )
    frame.write_parquet(tmp_path / "f.parquet")
    table = read_table(tmp_path / "f.parquet", "y", drop=["t"])
    np.testing.assert_array_equal(table.X, [[1, 0.5, 1], [2, 1.5, 0]])
    assert table.y.tolist() == ["u", "v"]
    with pytest.raises(TableError, match=r"column 't': expected numbers, found .*string"):
        read_table(tmp_path / "f.parquet", "y")
    with pytest.raises(TableError, match="no column 'z'"):
        read_table(tmp_path / "f.parquet", "z")


@pytest.mark.parametrize(("value", "message"), [(None, "missing"), (float("inf"), "found inf")])
def test_parquet_errors_say_where(value, message, tmp_path):
    polars.DataFrame({"a": [1.0, value], "y": [0, 1]}).write_parquet(tmp_path / "f.parquet")
    with pytest.raises(TableError, match=rf"row 1, column 'a': .*{message}"):
        read_table(tmp_path / "f.parquet", "y")
    path = write(tmp_path, b"PAR1 no", "g.parquet")
    with pytest.raises(TableError, match="no Parquet file"):
        read_table(path, "y")


def test_archives(tmp_path):
    X, y = np.arange(6, dtype=np.int16).reshape(2, 3), np.array([0, 1])
    np.savez(tmp_path / "dense.npz", X=X, y=y, other=y + 1)
    table = read_table(tmp_path / "dense.npz")
    assert table.X.dtype == np.int16
    assert read_table(tmp_path / "dense.npz", "other").y.tolist() == [1, 2]
    matrix = sparse.csr_array(X)
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "sparse.npz", y=y, **parts)
    np.testing.assert_array_equal(read_table(tmp_path / "sparse.npz").X.toarray(), X)
    np.savez(tmp_path / "broken.npz", y=y, **{**parts, "indices": parts["indices"] + 7})
    for name, message, arrays in [
        ("a", "there must be an array X", {"y": y}),
        ("b", "must be a matrix of numbers", {"X": y, "y": y}),
        ("c", "must be a matrix of numbers", {"X": X.astype(str), "y": y}),
        ("d", "a label for each of 2 rows", {"X": X, "y": X}),
        ("e", "row 0, column '1': expected a finite number, found NaN", {"X": X * np.nan, "y": y}),
        ("f", "damaged", {"X": np.array([[None]]), "y": y}),
    ]:
        np.savez(tmp_path / f"{name}.npz", **arrays)
        with pytest.raises(TableError, match=message):
            read_table(tmp_path / f"{name}.npz")
    with pytest.raises(TableError, match="no sparse matrix"):
        read_table(tmp_path / "broken.npz")
    with pytest.raises(TableError, match="no array 'z'"):
        read_table(tmp_path / "dense.npz", "z")
    with pytest.raises(TableError, match="no names"):
        read_table(tmp_path / "dense.npz", drop=["1"])


@given(st.lists(st.text("0123456789.-+e_", min_size=1, max_size=4), min_size=2, max_size=6))
def test_labels_are_never_merged(cells):
    labels = read_labels(cells)
    assert len(set(labels.tolist())) == len(set(cells))


def test_columns_of_a_csv_file_take_linear_time(tmp_path):
    """A quadratic search of 100,000 names takes more than a minute."""
    names = [f"c{k}" for k in range(100_000)]
    path = write(tmp_path, "\n".join([",".join([*names, "y"]), ",".join(["1"] * 100_001)]))
    start = time.perf_counter()
    table = read_table(path, "y", drop=names[:50_000])
    assert time.perf_counter() - start < 10
    assert table.columns == tuple(names[50_000:])


def sparse_archive(path, shape, **changes):
    parts = {"data": np.ones(3), "indices": np.arange(3), "indptr": np.arange(4)}
    np.savez(path, y=np.arange(3), shape=np.array(shape), **parts | changes)
    return path


def test_archives_with_a_huge_shape_are_refused(tmp_path):
    path = sparse_archive(tmp_path / "a.npz", (3, 10**12))
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match="1000000000000 columns; expected at most 1000000"):
            read_table(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert read_table(sparse_archive(path, (3, 10**5))).X.shape == (3, 10**5)
    for shape in ((10**12, 3), (3,), (3, -1), (3.5, 3), ("a", "b"), (3, 10**18)):
        with pytest.raises(TableError):
            read_table(sparse_archive(path, shape))


def test_labels_of_archives(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.eye(2), y=np.array(["é".encode(), b"b"]))
    assert read_table(path).y.tolist() == ["é", "b"]
    for y, message in [
        (np.array([b"\xff", b"b"]), "text in UTF-8"),
        (np.array(["2026-01-01", "NaT"], "datetime64[D]"), "numbers or text; got dtype"),
        (np.array([1j, 2.0]), "numbers or text; got dtype complex128"),
    ]:
        np.savez(path, X=np.eye(2), y=y)
        with pytest.raises(TableError, match=message):
            read_table(path)


def test_other_files(tmp_path):
    for suffix in (".xls", ".xlsx"):
        expected = rf"found the suffix '{suffix}', expected one of .csv, .tsv, .parquet, .npz \("
        with pytest.raises(MixedTableError, match=expected):
            read_table(write(tmp_path, "x", f"a{suffix}"))


def test_columns_without_a_name_get_one(tmp_path):
    path = write(tmp_path, ",a,,y\n0,5,2,1\n1,7,3,0\n")
    table = read_table(path, "y")
    assert table.columns == ("column 1", "a", "column 3")
    assert table.notes[0] == "column 1 has no name; it is called 'column 1'"
    assert read_table(path, only=["a"]).further == ("column 1", "column 3", "y")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "absent.csv")
