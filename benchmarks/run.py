"""Run the benchmarks and keep what they print as a dated file in `results/`.

Times are ratios within one run: against reading the data once, or against a peer. Real data is
found through MARGINPURSUIT_DATA; what needs it is left out, and said to be, where it is absent.

    python benchmarks/run.py [section ...]

The sections `selection`, `table` and `contamination` are programs too, which have options.
"""

import argparse

import cluster
import contamination
import distribution
import fits
import growth
import intercepts
import scale
import selection
import small
import stochastic
import sweeps
import table
from common import keep

SECTIONS = {
    "sweeps": sweeps.run,
    "fits": fits.run,
    "stochastic": stochastic.run,
    "small": small.run,
    "growth": growth.run,
    "intercepts": intercepts.run,
    "distribution": distribution.run,
    "selection": selection.run,
    "scale": scale.run,
    "cluster": cluster.run,
}
# These take hours of processor time, and are run if they are asked for.
LONG_SECTIONS = {"table": table.run, "contamination": contamination.run}


def main() -> None:
    """Run the sections that are asked for, print them and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known, words = SECTIONS | LONG_SECTIONS, f"{', '.join(SECTIONS)} and {', '.join(LONG_SECTIONS)}"
    parser.add_argument("section", nargs="*", help=f"of {words}; default: all but the last two")
    chosen = parser.parse_args().section or list(SECTIONS)
    if unknown := set(chosen) - set(known):
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {words}")
    name = "-".join(chosen) if chosen != list(SECTIONS) else "all"
    keep(name, (part for section in chosen for part in known[section]()))


if __name__ == "__main__":
    main()
