"""What is installed here: for bug reports, and to see which kernels serve."""

import platform
import sys
from importlib import metadata

from marginpursuit import _kernels
from marginpursuit._threads import usable_threads

_REQUIRED = ("numpy", "scipy", "scikit-learn")
_OPTIONAL = ("matplotlib",)


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
        ("threads", str(usable_threads(None))),
    ]
    lines += [(name, metadata.version(name)) for name in _REQUIRED]
    for name in _OPTIONAL:
        try:
            lines.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            lines.append((name, "not installed (optional)"))
    width = max(len(name) for name, _ in lines)
    print("\n".join(f"{name:<{width}}  {text}" for name, text in lines))
