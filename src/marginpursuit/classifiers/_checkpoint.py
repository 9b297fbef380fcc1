"""Checkpoints: the state of a fit in a file, from which an interrupted fit resumes.

The file is replaced atomically after each iteration and removed when the fit ends.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from marginpursuit._files import atomic_stream
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
        with atomic_stream(self._path) as file:
            np.savez(
                file,
                coef=coef,
                intercept=intercept,
                scale=problem.tasks.losses[0].scale,
                n_iter=self._n_iter,
                fit=self._identity,
            )

    def remove(self) -> None:
        """Remove the file of a fit that has ended."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> Standing:
        path = self._path
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                identity = str(stored["fit"])
                linear = stored["coef"], stored["intercept"]
                standing = Standing(linear, float(stored["scale"]), int(stored["n_iter"]))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError(f"checkpoint {path} cannot be read: remove it; {error}") from error
        if identity != self._identity:
            raise ValueError(
                f"checkpoint {path} is of another fit: remove it, or name another file; it has "
                f"{identity}, this fit {self._identity}"
            )
        return standing
