"""The comparison of benchmark results with those kept before."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from compare import ratios, slower

TEXT = """# Benchmarks

## Fits

| data | scale | ours, ms | peer, ms | peer / ours |
|---|---|---|---|---|
| 100 x 10 | auto | 2.0 | 4.0 | {auto} |
| 100 x 10 | fixed | 2.0 | 4.0 | {fixed} |
| wine | | 2.0 | | missing |

A note | that is no table.

## Sweeps

| data | SciPy / sweep |
|---|---|
| news20 | 3.0 |
"""


def test_ratios_are_known_by_their_title_and_row():
    assert ratios(TEXT.format(auto=2.0, fixed=2.5)) == {
        ("Fits", "100 x 10, auto, peer / ours"): 2.0,
        ("Fits", "100 x 10, fixed, peer / ours"): 2.5,
        ("Sweeps", "news20, SciPy / sweep"): 3.0,
    }


def test_what_fell_by_more_than_ten_per_cent_since_the_newest_file_is_slower(tmp_path):
    for day, fixed in ((1, 9.0), (2, 2.5)):
        (tmp_path / f"2026-01-0{day}-fits.md").write_text(TEXT.format(auto=2.0, fixed=fixed))
    found = list(slower(TEXT.format(auto=1.9, fixed=2.0), tmp_path.glob("*.md")))
    assert [str(each) for each in found] == [
        "25 % slower: Fits, 100 x 10, fixed, peer / ours: 2 instead of 2.5 (2026-01-02-fits.md)"
    ]
    assert not list(slower(TEXT.format(auto=5.0, fixed=5.0), tmp_path.glob("*.md")))
