"""Run the benchmarks, write the output of each to a dated file in `results/`, and compare.

What became more than 10 % slower since the last kept results is printed (`compare.py`).

Times are ratios within one run: relative to reading the data once, or to a peer. Real data sets are
looked up in the folder MARGINPURSUIT_DATA; a benchmark without its data is skipped and says so.

    python benchmarks/run.py [section ...]

The sections `classes`, `selection`, `text`, `table` and `contamination` are also programs with
options.
"""

import argparse

import classes
import cluster
import contamination
import distribution
import fits
import growth
import intercepts
import scale
import selection
import stochastic
import sweeps
import table
import tables
import text
from common import write_results

SECTIONS = {
    "sweeps": sweeps.run,
    "fits": fits.run,
    "stochastic": stochastic.run,
    "tables": tables.run,
    "classes": classes.run,
    "growth": growth.run,
    "intercepts": intercepts.run,
    "distribution": distribution.run,
    "selection": selection.run,
    "text": text.run,
    "scale": scale.run,
    "cluster": cluster.run,
}
# Hours of processor time; run only if named.
LONG_SECTIONS = {"table": table.run, "contamination": contamination.run}


def main() -> None:
    """Run the named sections, print them and write a result file for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known, words = SECTIONS | LONG_SECTIONS, f"{', '.join(SECTIONS)} and {', '.join(LONG_SECTIONS)}"
    parser.add_argument("section", nargs="*", help=f"any of {words}; default: all but the last two")
    chosen = parser.parse_args().section or list(SECTIONS)
    if unknown := set(chosen) - set(known):
        parser.error(f"unknown sections {', '.join(sorted(unknown))}; expected any of {words}")
    found = [line for section in chosen for line in write_results(section, known[section]())]
    if len(chosen) > 1:
        print(f"\nAll sections: {len(found)} ratios more than 10 % slower", *found, sep="\n")


if __name__ == "__main__":
    main()
