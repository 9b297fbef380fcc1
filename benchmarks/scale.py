"""Data larger than memory: rate of a sweep relative to reading the file, and peak memory of a fit.

MARGINPURSUIT_SCALE_GB sets the size in GB (default 10), TMPDIR the folder of the file. The file is
dropped from the page cache before each timing, so that it is read from disk. If the system does not
support this, the cache is warm, and the table says so.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

from marginpursuit.experiments.large_data import large_file, measure_file

GIGABYTES = float(os.environ.get("MARGINPURSUIT_SCALE_GB", "10"))


def run() -> Iterator[str]:
    """Create the file, and measure in a separate process, so that its peak memory is the fit's."""
    with large_file(GIGABYTES) as file:
        found = measure_file(file)
    # Rates relative to the reading rate are ratios of times, which `compare` finds by this name.
    rows = [
        (name.replace("relative to the reading rate", "reading / ours"), value)
        for name, value in found.rows
    ]
    yield replace(found, rows=rows).markdown(level=2)
