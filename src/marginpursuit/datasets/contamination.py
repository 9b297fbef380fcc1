"""Spoiling data on purpose, so that what a method makes of bad rows can be seen.

Each kind of damage is done to rows that are drawn at random, of copies of the data; which rows were
hit comes back with them.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from marginpursuit._validation import between, positive, scalar

__all__ = ["Contaminated", "contaminate"]


class Contaminated(NamedTuple):
    """Spoilt data.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        The samples.
    y : ndarray of shape (n_samples,)
        The labels.
    flipped, leverage, noisy : ndarray of bool of shape (n_samples,)
        Which rows had their label flipped alone; were stretched and mislabelled; got noise.
    """

    X: Any
    y: NDArray[Any]
    flipped: NDArray[np.bool_]
    leverage: NDArray[np.bool_]
    noisy: NDArray[np.bool_]

    @property
    def touched(self) -> NDArray[np.bool_]:
        """Which rows were changed in any way."""
        return np.asarray(self.flipped | self.leverage | self.noisy)


def contaminate(
    X: Any,
    y: ArrayLike,
    *,
    flips: float = 0.0,
    leverage: float = 0.0,
    factor: float = 10.0,
    noise: float = 0.0,
    noise_scale: float = 1.0,
    degrees_of_freedom: float = 1.5,
    random_state: int | np.random.Generator | None = None,
) -> Contaminated:
    """Spoil a share of the rows of copies of `X` and `y`.

    Rows are drawn without replacement and hit by one kind of damage each. A wrong label is one of
    the other labels in `y`, drawn uniformly.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples. They are best centred before, since leverage stretches rows from the origin.
    y : array-like of shape (n_samples,)
        Labels.
    flips : float, default=0.0
        The share of rows, in [0, 1], whose label is made wrong.
    leverage : float, default=0.0
        The share of rows that are multiplied by `factor` and whose label is made wrong.
    factor : float, default=10.0
        The factor of those rows, positive.
    noise : float, default=0.0
        The share of rows to which heavy-tailed noise is added; their labels stay.
    noise_scale : float, default=1.0
        The noise in units of the root mean square of each column. In a sparse matrix the stored
        values get it, and no others.
    degrees_of_freedom : float, default=1.5
        Of Student's law of the noise: up to 2 the noise has no variance, up to 1 no mean.
    random_state : int, Generator or None, default=None
        The source of randomness. Each kind of damage has a stream of its own, but rows that one
        kind has hit are not there for the next.

    Returns
    -------
    Contaminated
        The named tuple ``(X, y, flipped, leverage, noisy)``; its X is float64.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.datasets import contaminate
    >>> X, y = np.ones((100, 2)), np.repeat([0, 1], 50)
    >>> bad = contaminate(X, y, flips=0.1, leverage=0.05, factor=20.0, random_state=0)
    >>> int(bad.flipped.sum()), int(bad.leverage.sum()), int((bad.y != y).sum())
    (10, 5, 15)
    >>> np.unique(bad.X)
    array([ 1., 20.])
    """
    matrix = _copy(X)
    labels = np.array(y)
    if labels.shape != (matrix.shape[0],):
        raise ValueError(
            f"y must have one label for each of the {matrix.shape[0]} rows of X; got shape "
            f"{labels.shape}"
        )
    shares = {"flips": flips, "leverage": leverage, "noise": noise}
    counts = [
        round(len(labels) * scalar(name, between(name, share, 0.0, 1.0)))
        for name, share in shares.items()
    ]
    if sum(counts) > len(labels):
        raise ValueError(f"flips, leverage and noise must add up to at most 1; got {shares}")
    pick, relabel, shake = np.random.default_rng(random_state).spawn(3)
    ends = np.cumsum(counts)
    groups = np.split(pick.permutation(len(labels))[: ends[-1]], ends[:-1])
    flipped, stretched, noisy = (np.isin(np.arange(len(labels)), group) for group in groups)

    _mislabel(labels, flipped | stretched, relabel)
    sizes = scalar("noise_scale", positive("noise_scale", noise_scale)) * _root_mean_square(matrix)
    freedom = scalar("degrees_of_freedom", positive("degrees_of_freedom", degrees_of_freedom))
    _stretch(matrix, stretched, scalar("factor", positive("factor", factor)))
    _add_noise(matrix, noisy, sizes, freedom, shake)
    return Contaminated(matrix, labels, flipped, stretched, noisy)


def _is_sparse(matrix: Any) -> bool:
    return bool(sparse.issparse(matrix))


def _copy(X: Any) -> Any:
    """Return a copy as float64, in the CSR format if sparse."""
    if _is_sparse(X):
        matrix = X.astype(np.float64).tocsr()  # a copy, and the same kind of matrix
        matrix.sum_duplicates()
        return matrix
    array = np.array(X, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"X must have two dimensions; got shape {array.shape}")
    return array


def _mislabel(labels: NDArray[Any], rows: NDArray[np.bool_], rng: np.random.Generator) -> None:
    known, codes = np.unique(labels, return_inverse=True)
    if len(known) < 2:
        if rows.any():
            raise ValueError(f"y must have at least 2 labels to make some wrong; got {known}")
        return
    shift = rng.integers(1, len(known), size=len(labels))
    labels[rows] = known[(codes + shift) % len(known)][rows]


def _root_mean_square(matrix: Any) -> NDArray[np.float64]:
    squares = matrix.multiply(matrix) if _is_sparse(matrix) else matrix**2
    return np.sqrt(np.asarray(squares.mean(axis=0), dtype=np.float64).ravel())


def _stretch(matrix: Any, rows: NDArray[np.bool_], factor: float) -> None:
    if _is_sparse(matrix):
        matrix.data[np.repeat(rows, np.diff(matrix.indptr))] *= factor
    else:
        matrix[rows] *= factor


def _add_noise(
    matrix: Any,
    rows: NDArray[np.bool_],
    sizes: NDArray[np.float64],
    freedom: float,
    rng: np.random.Generator,
) -> None:
    if _is_sparse(matrix):
        stored = np.repeat(rows, np.diff(matrix.indptr))
        draws = rng.standard_t(freedom, size=int(stored.sum()))
        matrix.data[stored] += sizes[matrix.indices[stored]] * draws
    else:
        matrix[rows] += sizes * rng.standard_t(freedom, size=(int(rows.sum()), len(sizes)))
