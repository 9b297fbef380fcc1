"""Checkpoints: the state of a fit in a file, from which an interrupted fit resumes.

The file is replaced atomically after each iteration and removed when the fit ends.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._files import atomic_stream, read_npz
from marginpursuit._validation import FloatArray
from marginpursuit.design import Linear
from marginpursuit.solvers import Problem


class Standing(NamedTuple):
    """The state of a fit when it was interrupted."""

    linear: Linear  # coefficients and intercepts for X as given
    scale: float
    n_iter: int


class Checkpoint:
    """The file of one fit."""

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any]) -> None:
        """Read the file if it exists; refuse it if its fit has another identity."""
        self._path = Path(path)
        self._identity = json.dumps({name: repr(value) for name, value in identity.items()})
        self.standing = self._read() if self._path.exists() else None
        self._n_iter = 0 if self.standing is None else self.standing.n_iter

    def keep(self, problem: Problem, linear: Linear) -> None:
        """Write the state after one more iteration; `linear` is a point of the problem."""
        self._n_iter += 1
        coef, intercept = problem.prepared.to_data(linear)
        scale = np.float64(problem.tasks.losses[0].scale)
        parts = {
            "coef": np.asarray(coef),
            "intercept": np.asarray(intercept),
            "scale": np.asarray(scale),
            "n_iter": np.asarray(self._n_iter),
            "fit": np.asarray(self._identity),
        }
        with atomic_stream(self._path) as file:
            np.savez(file, allow_pickle=False, sha256=np.asarray(_digest(parts)), **parts)

    def remove(self) -> None:
        """Remove the file of a fit that has ended."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> Standing:
        path = self._path
        try:
            stored = read_npz(path.read_bytes(), max_expansion=1)
            if str(stored.pop("sha256")) != _digest(stored):
                raise ValueError("it was altered: the hash does not match")
            linear = _floats(stored["coef"], 2), _floats(stored["intercept"], 1)
            standing = Standing(linear, float(stored["scale"]), int(stored["n_iter"]))
            identity = str(stored["fit"])
            if not (0 < standing.scale < np.inf and standing.n_iter > 0):
                raise ValueError(f"scale {standing.scale} after {standing.n_iter} iterations")
            if linear[0].shape[1:] != linear[1].shape:
                raise ValueError("coefficients and intercepts of different tasks")
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"checkpoint {path} cannot be read: remove it; {error}") from error
        if identity != self._identity:
            raise ValueError(
                f"checkpoint {path} is of another fit: remove it, or name another file; it has "
                f"{identity}, this fit {self._identity}"
            )
        return standing


def _digest(parts: dict[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of the names and values of arrays."""
    digest = hashlib.sha256()
    for name, array in sorted(parts.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _floats(array: NDArray[Any], ndim: int) -> FloatArray:
    """Return a stored array of finite floats; refuse any other."""
    if array.dtype != np.float64 or array.ndim != ndim or not np.all(np.isfinite(array)):
        raise ValueError(f"expected finite numbers, got {array.dtype} of shape {array.shape}")
    return array
