"""Checkpoints: the state of a fit in a file, from which an interrupted fit resumes.

The file is replaced atomically after each iteration and removed when the fit ends. It stores
digests of the rows, labels and weights: a fit to others refuses it. A fit with a kernel may consist
of several fits, each with more landmarks than the one before (`_kernel_fit`). The file has the
state of one of them: a resumed fit repeats the earlier ones, without writing the file, and
continues that one.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginpursuit._files import atomic_stream, read_npz
from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._input import TrainingData
from marginpursuit.design import Linear
from marginpursuit.solvers import Problem


class SavedState(NamedTuple):
    """The state of a fit when it was interrupted."""

    linear: Linear  # coefficients and intercepts for X as given
    scale: float
    n_iter: int
    n_fits: int  # that have ended, each with fewer landmarks


class Checkpoint:
    """The file of one fit."""

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any]) -> None:
        """Read the file if it exists; refuse it if its fit has another identity."""
        self._path = Path(path)
        self._identity = {name: repr(value) for name, value in identity.items()}
        self.saved_state = self._read() if self._path.exists() else None
        self._n_fits = self._n_iter = 0

    def next_fit(self) -> None:
        """Count a fit that has ended and is followed by one with more landmarks."""
        self._n_fits, self._n_iter = self._n_fits + 1, 0

    def state(self, start: Linear | None, scale: float) -> tuple[Linear | None, float, int]:
        """Return start, scale and iteration of the interrupted fit, or the given ones and zero."""
        if self.saved_state is None or self.saved_state.n_fits != self._n_fits:
            return start, scale, 0
        self._n_iter = self.saved_state.n_iter
        return self.saved_state.linear, self.saved_state.scale, self._n_iter

    def keep(self, problem: Problem, linear: Linear) -> None:
        """Write the state after one more iteration; `linear` is a point of the problem."""
        if self.saved_state is not None and self._n_fits < self.saved_state.n_fits:
            return  # the file has the state of a later fit
        self._n_iter += 1
        coef, intercept = problem.prepared.to_data(linear)
        scale = np.float64(problem.tasks.losses[0].scale)
        parts = {
            "coef": np.asarray(coef),
            "intercept": np.asarray(intercept),
            "scale": np.asarray(scale),
            "n_iter": np.asarray(self._n_iter),
            "n_fits": np.asarray(self._n_fits),
            "fit": np.asarray(json.dumps(self._identity)),
        }
        with atomic_stream(self._path) as file:
            np.savez(file, allow_pickle=False, sha256=np.asarray(_digest(parts)), **parts)

    def remove(self) -> None:
        """Remove the file of a fit that has ended."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> SavedState:
        path = self._path
        try:
            stored = read_npz(path.read_bytes(), max_expansion=1)
            if str(stored.pop("sha256")) != _digest(stored):
                raise ValueError("it was altered: the hash does not match")
            linear = _floats(stored["coef"], 2), _floats(stored["intercept"], 1)
            n_iter, n_fits = int(stored["n_iter"]), int(stored["n_fits"])
            saved_state = SavedState(linear, float(stored["scale"]), n_iter, n_fits)
            identity = json.loads(str(stored["fit"]))
            if not isinstance(identity, dict):
                raise TypeError(f"the identity of its fit is {identity!r}")
            if not (0 < saved_state.scale < np.inf and n_iter > 0 and n_fits >= 0):
                raise ValueError(
                    f"scale {saved_state.scale} after {n_iter} iterations and {n_fits} fits"
                )
            if linear[0].shape[1:] != linear[1].shape:
                raise ValueError("coefficients and intercepts of different tasks")
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"checkpoint {path} cannot be read: remove it; {error}") from error
        own = self._identity
        for name in sorted(own.keys() | identity.keys()):
            if identity.get(name) != own.get(name):
                raise ValueError(
                    f"checkpoint {path} has {name}={identity.get(name)}; this fit has "
                    f"{name}={own.get(name)}. Remove the file, or name another."
                )
        return saved_state


def data_digests(data: TrainingData) -> dict[str, str]:
    """Return digests of the rows, labels and weights, in one pass over the data.

    Equal rows have equal digests, whether they are dense, sparse, in blocks or on a device.
    """
    matrix, host = data.matrix, data.on_host()
    if isinstance(matrix, Blocks):
        hashes = np.concatenate([own for _, _, own in matrix.each(_row_hashes)])
    else:
        hashes = _row_hashes(matrix)
    digests = {"rows": hashes, "labels": host.labels.codes, "weights": host.weights}
    return {name: _digest({name: values})[:16] for name, values in digests.items()}


def _row_hashes(matrix: Any, chunk_elements: int = 1 << 20) -> NDArray[np.uint64]:
    """Return Σ_j k_j b_ij modulo 2⁶⁴ for each row i, with b_ij the bits of x_ij as a double.

    The factors k_j are odd and pseudo-random. The upper half of the bits is added to the lower
    half by exclusive or, so that numbers with few digits change all bits of a sum. The bits of
    zero are zero, so dense and sparse rows have equal hashes.
    """
    n_rows, n_columns = matrix.shape
    factors = np.random.default_rng(0).integers(0, 1 << 63, n_columns, dtype=np.uint64) * 2 + 1
    hashes = np.empty(n_rows, dtype=np.uint64)
    step = max(1, chunk_elements // n_columns)
    is_sparse = sparse.issparse(matrix)
    for start in range(0, n_rows, step):
        stop = min(start + step, n_rows)
        chunk = matrix[start:stop, :]
        if is_sparse:
            stored = _bits(chunk.data), chunk.indices, chunk.indptr
            hashes[start:stop] = sparse.csr_matrix(stored, chunk.shape) @ factors
        else:
            hashes[start:stop] = _bits(to_numpy(chunk)) @ factors
    return hashes


def _bits(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the bits of numbers as doubles; those of both zeros are zero."""
    bits = (numbers.astype(np.float64) + 0.0).view(np.uint64)
    return bits ^ (bits >> np.uint64(32))


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
