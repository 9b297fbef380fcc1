"""The comparison of benchmark results with those kept before."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import common
from compare import comparisons, kept_results, ratios

TEXT = """# Benchmarks

## Fits

| data | rows | scale | ours, ms | peer, ms | peer / ours |
|---|---|---|---|---|---|
| small | 100 | auto | 2.0 | 4.0 | {auto} |
| small | 100 | fixed | 2.0 | 4.0 | {fixed} |
| wine | 178 | | 2.0 | | missing |
| large | 10000 | auto | 2.0 | >20.0 | >10 |

A note | that is no table.

| data | peer / ours of another header |
|---|---|
| small | 3.0 |

## Sweeps

| data | ours / reading, predict |
|---|---|
| news20 | 1.50 (13 / 9 µs) |

| quantity | measured |
|---|---|
| sweep, reading / ours | 97 % |
| size of ours | 3.0 |
"""
RESULTS = common.RESULTS

#: Sections whose kept file has no ratio of times, and why.
WITHOUT_RATIOS = {
    "contamination": "test errors; `tables`, `selection` and `text` compare times",
    "faults": "faults and mutants, by no program of this folder",
    "few-rows": "its times were left out, as other jobs ran",
    "interop": "test errors",
    "kernel-defaults": "test errors",
    "label-errors": "precision of rankings and flags",
    "leverage": "older than its ratio",
    "mixed-tables": "test errors; its seconds are of the whole command line, without a peer",
    "optimism": "scores",
    "probe": "older than its ratios",
    "robust-gradients": "test errors",
    "smoothing": "log-losses",
    "smoothing-400": "log-losses",
    "table": "test errors; `tables`, `selection` and `text` compare times",
    "table-fit": "as table",
    "table-news20": "as table",
    "table-search": "as table",
}


def test_ratios_are_known_by_their_title_and_row():
    found = list(ratios(TEXT.format(auto="2.0", fixed="2.5e+03")))
    assert [each[:3] for each in found] == [
        ("Fits", "small, 100, auto, peer / ours", 2.0),
        ("Fits", "small, 100, fixed, peer / ours", 2500.0),
        ("Fits", "small, peer / ours of another header", 3.0),
        ("Sweeps", "news20, ours / reading, predict", 1.5),
        ("Sweeps", "sweep, reading / ours, measured", 97.0),
    ]
    assert [each.larger_is_better for each in found] == [True, True, True, False, True]
    assert [each.rounding for each in found] == pytest.approx([0.05, 50, 0.05, 0.005, 0.5])


def row(name, value):
    return f"## Fits\n\n| data | ms | {name} |\n|---|---|---|\n| wine | 2.0 | {value:.3f} |\n"


@pytest.mark.parametrize(("name", "sign"), [("peer / ours", -1), ("ours / peer", 1)])
def test_a_slowdown_of_11_per_cent_is_printed_and_one_of_9_is_not(
    name, sign, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    kept = tmp_path / "2026-01-02-fits.md"
    for factor, is_slower in ((1.11, True), (1.09, False), (1 / 1.11, False)):
        kept.write_text(row(name, 2.0), encoding="utf-8")
        now = 2.0 * factor**sign
        found = common.keep("fits", row(name, now))
        printed = capsys.readouterr().out
        summary = "1 of 1 ratios compared with kept results of fits, {} more than 10 % slower"
        assert summary.format(int(is_slower)) in printed
        line = f"11 % slower: Fits, wine, {name}: {now:.4g} instead of 2 ({kept.name})"
        assert found == ([line] if is_slower else [])
        assert (line in printed) == is_slower


def test_the_newest_file_with_a_ratio_counts_and_rounding_does_not(tmp_path):
    for day, fixed in ((1, "9.0"), (2, "2.5")):
        text = TEXT.format(auto="3" if day == 1 else "", fixed=fixed)
        (tmp_path / f"2026-01-0{day}-fits.md").write_text(text, encoding="utf-8")
    kept = kept_results("fits", tmp_path)
    found = list(comparisons(TEXT.format(auto="2.60", fixed="2.00"), kept))
    assert len(found) == 5
    assert [str(each) for each in found if each.is_slower()] == [
        "25 % slower: Fits, small, 100, fixed, peer / ours: 2 instead of 2.5 (2026-01-02-fits.md)"
    ]


def test_files_of_a_section_are_found_by_name_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    others = {"2026-01-02-table-fits.md", "2026-01-02-fits-400.md", "fits.md", "growth-fits.svg"}
    for name in (*others, "1999-12-31-fits.md", "2026-01-02-fits.md"):
        (tmp_path / name).write_text(row("peer / ours", 2.0), encoding="utf-8")
    names = [path.name for path in kept_results("fits", tmp_path)]
    assert names == ["1999-12-31-fits.md", "2026-01-02-fits.md"]
    text = row("peer / ours", 3.0)
    common.keep("fits", text)
    (new,) = {path.name for path in tmp_path.iterdir()} - others
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-fits\.md", new)
    assert (tmp_path / new).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_kept_results_have_ratios_that_the_next_run_finds(path):
    found = list(ratios(path.read_text(encoding="utf-8")))
    assert bool(found) != (path.stem[len("2026-01-01-") :] in WITHOUT_RATIOS)
    assert len({(each.title, each.row) for each in found}) == len(found)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0021349, "0.00213"), (2.0, "2.00"), (31, "31.0"), (115, "115")]
)
def test_times_and_ratios_have_three_digits(value, text):
    assert common.significant(value) == text
    assert common.significant(1e6 * value) == f"{1e6 * value:.0f}"
