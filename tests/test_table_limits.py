"""Tables whose content is larger than the file: a limit, checked before the memory is taken."""

import gzip
import os
import re
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest
from typer.testing import CliRunner

from marginpursuit.cli.app import app
from marginpursuit.tables import TableError, column_counts, read_frame, read_table

N_BYTES = 10**6  # the limit of these tests


def gzip_bomb(path, n_bytes):
    """Write `n_bytes` of rows as a gzip file of a thousandth of the size."""
    packer = zlib.compressobj(6, wbits=31)
    rows = b"1,2\n" * 250_000
    with open(path, "wb") as file:
        file.write(packer.compress(b"a,b\n"))
        for _ in range(n_bytes // len(rows) + 1):
            file.write(packer.compress(rows))
        file.write(packer.flush())
    return path


def workbook(path, rows):
    """Write a workbook whose only sheet has the given XML."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    book.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    inner = "<sheetData>" + rows + "</sheetData>"
    members[sheet] = re.sub(rb"<sheetData>.*</sheetData>", inner.encode(), members[sheet])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def cell(place, value=1):
    return f'<c r="{place}"><v>{value}</v></c>'


def wide_rows(n_rows):
    """Rows with one cell each, in the last column: 16,384 cells in memory."""
    return "".join(f'<row r="{n}">{cell(f"XFD{n}")}</row>' for n in range(1, n_rows + 1))


def parquet_bomb(path, n_rows):
    """Write ten columns of one repeated number."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pa.array(np.full(n_rows, 7.0))
    parquet.write_table(pa.table({f"a{k}": column for k in range(10)}), path)
    return path


def refused(path, *, max_bytes=N_BYTES, reader=read_frame):
    with pytest.raises(TableError, match="--max-gigabytes \\(max_bytes in Python\\)") as caught:
        reader(path, max_bytes=max_bytes)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("reader", [read_frame, read_table, column_counts])
def test_gzip_files(reader, tmp_path):
    if reader is read_frame:
        pytest.importorskip("pandas")
    path = gzip_bomb(tmp_path / "a.csv.gz", 10 * N_BYTES)
    assert os.path.getsize(path) < N_BYTES / 20
    refused(path, reader=reader)
    small = tmp_path / "small.csv.gz"
    small.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    reader(small, max_bytes=8)
    refused(small, reader=reader, max_bytes=7)


def test_plain_files_have_the_same_limit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,2\n")
    refused(path, reader=read_table, max_bytes=7)


@pytest.mark.parametrize(
    "rows",
    [
        wide_rows(20),
        f'<row r="1">{cell("A1")}{cell("XFD1")}</row>'
        + "".join(f'<row r="{n}">{cell(f"A{n}")}</row>' for n in range(2, 40)),
        f'<row r="1">{cell("A1")}</row>' + "<row></row>" * 10**5,
    ],
    ids=["wide rows", "one wide row", "long text"],
)
def test_excel_files(rows, tmp_path):
    pytest.importorskip("pandas")
    refused(workbook(tmp_path / "a.xlsx", rows))


@pytest.mark.slow
def test_excel_rows_with_absurd_numbers(tmp_path):
    pytest.importorskip("pandas")
    rows = f'<row r="1">{cell("A1")}</row><row r="99999999999">{cell("A99999999999")}</row>'
    with pytest.raises(TableError, match=r"more than 1,048,576 rows|damaged"):
        read_frame(workbook(tmp_path / "a.xlsx", rows))


def test_parquet_files(tmp_path):
    pytest.importorskip("pandas")
    path = parquet_bomb(tmp_path / "a.parquet", 30_000)
    assert os.path.getsize(path) < N_BYTES / 20
    refused(path)
    refused(path, reader=read_table)
    assert read_frame(path, max_bytes=10 * N_BYTES).frame.shape == (30_000, 10)


def test_npz_files(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.zeros((1000, 200)))
    refused(path, reader=read_table)
    assert read_table(path, max_bytes=2 * N_BYTES).X.shape == (1000, 200)


def test_the_command_line_has_the_option(tmp_path):
    path = gzip_bomb(tmp_path / "a.csv.gz", N_BYTES)
    options = ["fit", str(path), "-t", "b", "-o", str(tmp_path / "m"), "--max-gigabytes", "0.0005"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 3
    assert "a.csv.gz has more than 0.0005 GB after decompression" in result.stderr


CHILD = """
import resource, sys
import pandas, openpyxl, pyarrow.parquet
from marginpursuit.tables import TableError, read_frame
read_frame(sys.argv[1])  # Arrow starts its threads
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 250 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[2:]:
    try:
        frame = read_frame(path, max_bytes=50 * 10**6).frame
        print("read", frame.shape)
    except TableError as error:
        print("refused" if "--max-gigabytes" in str(error) else error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the size of the process from /proc")
def test_small_files_take_little_memory(tmp_path):
    """Files of at most 2 MB that would take 400 MB or more, in a process with 250 MB left."""
    pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    gzip_bomb(tmp_path / "a.csv.gz", 4 * 10**8)
    workbook(tmp_path / "b.xlsx", wide_rows(3_000))
    parquet_bomb(tmp_path / "c.parquet", 5 * 10**6)
    # 2,000 references to a text of 20 MB: 40 GB as plain text, and 20 MB as a dictionary.
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), ["x" * (2 * 10**7)])
    parquet.write_table(pa.table({"a": text}), tmp_path / "d.parquet", store_schema=False)
    paths = sorted(map(str, tmp_path.iterdir()))
    first = str(parquet_bomb(tmp_path / "first.parquet", 10))
    assert all(os.path.getsize(path) < 2 * 10**6 for path in paths)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, first, *paths], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["refused"] * 3 + ["read (2000, 1)"], done.stderr
