"""What is installed here: for bug reports, and to see which kernels serve."""

import os
import platform
import sys
from importlib import metadata

from marginpursuit import _kernels

_REQUIRED = ("numpy", "scipy", "scikit-learn")
_OPTIONAL = ("matplotlib",)


def usable_threads() -> int:
    """Count the threads that a fit uses: the processors this process may run on, or fewer.

    ``OMP_NUM_THREADS`` is honoured, so that worker processes which are told to use one thread
    (joblib tells its workers so) do not crowd each other out.
    """
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:  # macOS and Windows
        processors = os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(processors, int(limit))) if limit.isdigit() else processors


def show_versions() -> None:
    """Print versions, active kernels, threads and optional packages.

    Examples
    --------
    >>> import marginpursuit
    >>> marginpursuit.show_versions()  # doctest: +ELLIPSIS
    marginpursuit ...
    """
    lines = [
        ("marginpursuit", metadata.version("marginpursuit")),
        ("python", sys.version.split()[0]),
        ("platform", platform.platform()),
        ("kernels", _kernels.active()),
        ("threads", str(usable_threads())),
    ]
    lines += [(name, metadata.version(name)) for name in _REQUIRED]
    for name in _OPTIONAL:
        try:
            lines.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            lines.append((name, "not installed (optional)"))
    width = max(len(name) for name, _ in lines)
    print("\n".join(f"{name:<{width}}  {text}" for name, text in lines))
