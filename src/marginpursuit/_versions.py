"""What is installed here: for bug reports, and to see which kernels serve."""

import platform
import sys
from importlib import metadata

from marginpursuit import _kernels
from marginpursuit._threads import usable_threads

_REQUIRED = ("numpy", "scipy", "scikit-learn")
_OPTIONAL = ("matplotlib", "typer", "jinja2", "polars", "pyarrow", "dask", "distributed", "torch")


def versions() -> dict[str, str]:
    """Return versions, active kernels, threads and optional packages, by name."""
    found = {
        "marginpursuit": metadata.version("marginpursuit"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "kernels": _kernels.active(),
        "threads": str(usable_threads(None)),
    }
    found |= {name: metadata.version(name) for name in _REQUIRED}
    for name in _OPTIONAL:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed (optional)"
    return found


def show_versions() -> None:
    """Print versions, active kernels, threads and optional packages.

    Examples
    --------
    >>> import marginpursuit
    >>> marginpursuit.show_versions()  # doctest: +ELLIPSIS
    marginpursuit ...
    """
    found = versions()
    width = max(map(len, found))
    print("\n".join(f"{name:<{width}}  {text}" for name, text in found.items()))
