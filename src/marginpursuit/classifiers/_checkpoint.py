"""Where a fit stands, kept in a file: an interrupted fit goes on from there.

The file is replaced after each iteration, whole or not at all, and removed when the fit is done.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from marginpursuit._files import atomic_stream
from marginpursuit.design import Linear
from marginpursuit.solvers import Problem


@dataclass(frozen=True, slots=True)
class Standing:
    """What a checkpoint says of a fit."""

    linear: Linear | None  # for the data as it came
    scale: float | None
    n_iter: int


class Checkpoint:
    """The file of one fit, or none where there is no path."""

    def __init__(self, path: str | os.PathLike[str] | None, fit: dict[str, Any]) -> None:
        """Begin, or go on; `fit` tells this fit from others."""
        self._path = None if path is None else Path(path)
        self._fit = json.dumps({name: repr(value) for name, value in fit.items()})
        self.standing = Standing(None, None, 0)
        if self._path is not None and self._path.exists():
            self.standing = self._read(self._path)
        self._n_iter = self.standing.n_iter

    def keep(self, problem: Problem, linear: Linear) -> None:
        """Write where a fit stands after one more iteration, in coordinates of the problem."""
        self._n_iter += 1
        if self._path is None:
            return
        coef, intercept = problem.prepared.to_data(linear)
        with atomic_stream(self._path) as file:
            np.savez(
                file,
                coef=coef,
                intercept=intercept,
                scale=problem.tasks.losses[0].scale,
                n_iter=self._n_iter,
                fit=self._fit,
            )

    def remove(self) -> None:
        """Remove the file of a fit that is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read(self, path: Path) -> Standing:
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                fit, coef, intercept = str(stored["fit"]), stored["coef"], stored["intercept"]
                scale, n_iter = float(stored["scale"]), int(stored["n_iter"])
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError(f"checkpoint {path} cannot be read: remove it; {error}") from error
        if fit != self._fit:
            raise ValueError(
                f"checkpoint {path} is of another fit: remove it, or name another file; it has "
                f"{fit}, this fit {self._fit}"
            )
        return Standing((coef, intercept), scale, n_iter)
