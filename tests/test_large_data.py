"""Benchmarks of large data: measurements, output, and removal of their files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from marginpursuit.experiments import large_data
from marginpursuit.experiments.large_data import (
    compare_places,
    count_fits,
    large_file,
)
from marginpursuit.experiments.runs import Run

PROGRAM = Path(sys.executable).with_name("marginpursuit")


def test_rows_of_the_file_match_the_labels(tmp_path):
    with large_file(0.004, tmp_path) as file:
        assert file.n_bytes == pytest.approx(4e6, rel=0.01)
        assert len(file.y) == 4 * file.block_rows
        rows, labels = large_data.synthetic(2, file.block_rows)
        np.testing.assert_array_equal(file.blocks(3).load(2), rows)
        np.testing.assert_array_equal(file.y[2 * file.block_rows : 3 * file.block_rows], labels)
    assert not list(tmp_path.iterdir())


def test_too_large_a_file_is_refused_before_writing(tmp_path):
    with pytest.raises(OSError, match=r"1e\+09 GB does not fit in .* GB are free"):
        large_file(1e9, tmp_path).__enter__()
    assert not list(tmp_path.iterdir())


def percentage(cell):
    """Return the number of a cell in per cent."""
    return float(cell.removesuffix(" %"))


def test_fits_agree(monkeypatch, tmp_path):
    monkeypatch.setattr(large_data, "has_dask", lambda: False)
    progress = []
    with large_file(0.004, tmp_path) as file:
        found = compare_places(file, progress.append)
    assert len(found.rows) == len(progress) == count_fits() == 3
    errors = [percentage(row[-1]) for row in found.rows]
    assert max(errors) - min(errors) <= 0.1  # points: each fit is within its tolerance
    assert found.rows[0][2] == "1.00"


@pytest.mark.slow
def test_fits_on_a_cluster(tmp_path):
    pytest.importorskip("distributed")
    with large_file(0.004, tmp_path) as file:
        found = compare_places(file, worker_counts=(1,), repeats=1)
    rows = {row[0]: dict(zip(found.header, row, strict=True)) for row in found.rows}
    assert len(rows) == count_fits((1,)) == 5
    reloaded, persisted = (
        rows["Dask, 1 workers, blocks loaded in each round"],
        rows["Dask, 1 workers, blocks held"],
    )
    errors = [percentage(row["test error"]) for row in (reloaded, rows["in memory, 1 thread"])]
    assert abs(errors[0] - errors[1]) <= 0.1
    assert reloaded["rounds"] == persisted["rounds"]
    # With 15 rows per column the default penalty is chosen by half fits at four penalties.
    assert 4 <= int(reloaded["rounds"]) <= 60
    assert float(reloaded["of the busiest worker, s"]) > 0


def bench(*arguments, **options):
    command = [PROGRAM, "bench", "--scale", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_the_command(tmp_path, monkeypatch):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from marginpursuit.cli.app import app

    monkeypatch.setattr(large_data, "has_dask", lambda: False)
    out = tmp_path / "out"

    def call(*options):
        where = ["--gigabytes", "0.004", "--folder", str(tmp_path)]
        done = CliRunner().invoke(app, ["bench", "--scale", *where, *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    rates, fits = json.loads(call("--json", "-o", str(out)))
    found = dict(rates["rows"])
    assert float(found["sweep, GB/s"]) > 0
    assert found["sweep, relative to the reading rate"].endswith(" %")
    assert 0.05 < float(found["peak resident memory, GB"]) < 1.5
    assert int(found["passes of a fit"]) >= 3
    assert fits["title"].startswith("In memory, in blocks, on a cluster")
    kept = Run.load(out).listings
    assert [listing.title for listing in kept] == [rates["title"], fits["title"]]
    assert rates["title"] in (out / "report.html").read_text()
    monkeypatch.setattr(large_data, "measure_file", lambda file: kept[0])
    printed = call()
    assert "sweep, relative to the reading rate" in printed
    assert "in blocks, all threads" in printed
    assert list(tmp_path.iterdir()) == [out]


def test_too_little_space_prints_one_line_and_sets_the_exit_code(tmp_path):
    pytest.importorskip("typer")
    process = bench("--gigabytes", "1e9", "--folder", tmp_path)
    output, message = process.communicate(timeout=60)
    assert process.returncode == 3
    assert not output
    assert message.startswith("error: a file of 1e+09 GB does not fit")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_removes_the_file(tmp_path):
    pytest.importorskip("typer")
    process = bench("--gigabytes", "0.3", "--folder", tmp_path, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.glob("*/*"))  # the file is being written
    os.killpg(process.pid, signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert message == "error: interrupted\n"
    assert not list(tmp_path.iterdir())
