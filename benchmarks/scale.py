"""Data beyond memory: 10 GB that are fitted in less than 1.5 GB, at the rate of reading the file.

The size in GB is found in MARGINPURSUIT_SCALE_GB, the folder for the file in TMPDIR. The file is
taken out of the page cache before each timing, so that reading means the disk; where the system
cannot do that, the cache is warm, and the table says so.
"""

import os
from collections.abc import Iterator

from marginpursuit.experiments.large_data import large_file, measure_file

GIGABYTES = float(os.environ.get("MARGINPURSUIT_SCALE_GB", "10"))


def run() -> Iterator[str]:
    """Make the file, and measure in a process of its own: its peak of memory is the fit's."""
    with large_file(GIGABYTES) as file:
        yield measure_file(file).markdown(level=2)
