"""Run the benchmarks and keep what they print as a dated file in `results/`.

Times are ratios within one run: against reading the data once, or against a peer. Real data is
found through MARGINPURSUIT_DATA; what needs it is left out, and said to be, where it is absent.

    python benchmarks/run.py [section ...]
"""

import argparse
import contextlib
import datetime
import io
import os
import platform
from pathlib import Path

import distribution
import fits
import growth
import small
import stochastic
import sweeps

import marginpursuit

SECTIONS = {
    "sweeps": sweeps.run,
    "fits": fits.run,
    "stochastic": stochastic.run,
    "small": small.run,
    "growth": growth.run,
    "distribution": distribution.run,
}
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run the sections that are asked for, print them and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", nargs="*", help=f"of {', '.join(SECTIONS)}; default: all")
    chosen = parser.parse_args().section or list(SECTIONS)
    if unknown := set(chosen) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    versions = io.StringIO()
    with contextlib.redirect_stdout(versions):
        marginpursuit.show_versions()
    today = datetime.date.today().isoformat()
    text = [
        f"# Benchmarks, {today}",
        f"```\n{versions.getvalue()}processor      {_processor()}\n```",
    ]
    print("\n\n".join(text), flush=True)
    for name in chosen:
        for table in SECTIONS[name]():
            text.append(table)
            print(f"\n{table}", flush=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{today}-{'-'.join(chosen) if len(chosen) < len(SECTIONS) else 'all'}.md"
    partial = path.with_suffix(".partial")
    partial.write_text("\n\n".join(text) + "\n")
    os.replace(partial, path)
    print(f"\nkept as {path}")


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
