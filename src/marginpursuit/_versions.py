"""Installed versions and the active kernels, for bug reports."""

import platform
import sys
from collections.abc import Sequence
from importlib import metadata

from marginpursuit import _kernels
from marginpursuit._threads import usable_threads

#: Packages without which the library works, but some of its features do not.
OPTIONAL = (
    *("matplotlib", "typer", "jinja2", "polars", "pyarrow", "dask", "distributed", "torch"),
    *("skl2onnx", "onnxruntime"),
)


def versions(optional: Sequence[str] = OPTIONAL) -> dict[str, str]:
    """Return versions, active kernels, number of threads and optional packages, by name."""
    found = {
        "marginpursuit": metadata.version("marginpursuit"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "kernels": _kernels.active(),
        "threads": str(usable_threads(None)),
    }
    found |= {name: metadata.version(name) for name in ("numpy", "scipy", "scikit-learn")}
    for name in optional:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed (optional)"
    return found


def show_versions() -> None:
    """Print versions, active kernels, number of threads and optional packages.

    Examples
    --------
    >>> import marginpursuit
    >>> marginpursuit.show_versions()  # doctest: +ELLIPSIS
    marginpursuit ...
    """
    found = versions()
    width = max(map(len, found))
    print("\n".join(f"{name:<{width}}  {text}" for name, text in found.items()))
