"""Contamination of data: flipped labels, leverage outliers and heavy-tailed noise.

Each kind of contamination applies to rows drawn at random, in copies of the data; the indices of
these rows are returned.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from marginpursuit._validation import between, positive, scalar

__all__ = ["Contaminated", "contaminate"]


class Contaminated(NamedTuple):
    """Contaminated data.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        The samples.
    y : ndarray of shape (n_samples,)
        The labels.
    flipped, leverage, noisy : ndarray of bool of shape (n_samples,)
        Masks of the rows with a flipped label; scaled and mislabelled rows; rows with noise.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.datasets import contaminate
    >>> bad = contaminate(np.ones((100, 2)), np.repeat([0, 1], 50), flips=0.1, random_state=0)
    >>> int(bad.touched.sum()), bool((bad.touched == bad.flipped).all())
    (10, True)
    """

    X: Any
    y: NDArray[Any]
    flipped: NDArray[np.bool_]
    leverage: NDArray[np.bool_]
    noisy: NDArray[np.bool_]

    @property
    def touched(self) -> NDArray[np.bool_]:
        """Mask of all changed rows."""
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
    """Contaminate a fraction of the rows in copies of `X` and `y`.

    Rows are drawn without replacement; each gets one kind of contamination. A wrong label is drawn
    uniformly from the other labels in `y`.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples. Centre them first: leverage scales rows away from the origin.
    y : array-like of shape (n_samples,)
        Labels.
    flips : float, default=0.0
        Fraction of rows, in [0, 1], that get a wrong label.
    leverage : float, default=0.0
        Fraction of rows that are multiplied by `factor` and get a wrong label.
    factor : float, default=10.0
        Factor of the leverage outliers, positive.
    noise : float, default=0.0
        Fraction of rows to which heavy-tailed noise is added; their labels are unchanged.
    noise_scale : float, default=1.0
        Scale of the noise, in units of the root mean square of each column. In a sparse matrix
        only the stored values are changed.
    degrees_of_freedom : float, default=1.5
        Degrees of freedom of Student's t distribution: the noise has no variance up to 2, no
        mean up to 1.
    random_state : int, Generator or None, default=None
        Source of randomness. Each kind of contamination has a stream of its own, but chooses among
        the rows that the previous kinds left unchanged.

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
    fractions = {"flips": flips, "leverage": leverage, "noise": noise}
    counts = [
        round(len(labels) * scalar(name, between(name, fraction, 0.0, 1.0)))
        for name, fraction in fractions.items()
    ]
    if sum(counts) > len(labels):
        raise ValueError(f"flips, leverage and noise must add up to at most 1; got {fractions}")
    pick, relabel, noise_stream = np.random.default_rng(random_state).spawn(3)
    ends = np.cumsum(counts)
    groups = np.split(pick.permutation(len(labels))[: ends[-1]], ends[:-1])
    flipped, stretched, noisy = (np.isin(np.arange(len(labels)), group) for group in groups)

    _mislabel(labels, flipped | stretched, relabel)
    sizes = scalar("noise_scale", positive("noise_scale", noise_scale)) * _root_mean_square(matrix)
    freedom = scalar("degrees_of_freedom", positive("degrees_of_freedom", degrees_of_freedom))
    _stretch(matrix, stretched, scalar("factor", positive("factor", factor)))
    _add_noise(matrix, noisy, sizes, freedom, noise_stream)
    return Contaminated(matrix, labels, flipped, stretched, noisy)


def _is_sparse(matrix: Any) -> bool:
    return bool(sparse.issparse(matrix))


def _copy(X: Any) -> Any:
    """Return a copy as float64, in the CSR format if sparse."""
    if _is_sparse(X):
        matrix = X.astype(np.float64).tocsr()  # a copy of the same sparse type
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
            raise ValueError(f"y must have at least 2 labels to flip; got {known}")
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
