"""Which training rows are the landmarks of a kernel fit, and the thresholds of such fits."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from marginpursuit.blocks import Blocks
from marginpursuit.classifiers._base import TrainingData
from marginpursuit.classifiers._halves import rounded
from marginpursuit.classifiers._refitted_halves import row_projections
from marginpursuit.solvers import Policy


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KernelPolicy:
    """Penalty, sizes and tolerances of kernel features."""

    #: The penalty "auto", times n (`benchmarks/kernel_defaults.py`).
    penalty: float = 0.1
    #: Rows up to which all are landmarks where `n_components` is None: their kernel matrix takes
    #: 800 MB.
    max_exact_rows: int = 10_000
    n_components: int = 1000  # landmarks of more rows, and of the first of several exact fits
    # Exact fits with the support vectors as landmarks (`_kernel_fit`).
    min_support_rows: int = 1500  # rows from which there are such fits
    support_level: float = 1.2  # margins below this multiple of the level count as support vectors
    max_support_fraction: float = 0.7  # with more support vectors, all rows are landmarks
    first_tol: float = 1e-3  # relative suboptimality of the first fit
    #: Rows up to which `multi_class="auto"` fits three classes or more one against one. A search of
    #: 2,000 rows has a test error of 27.3 % on cov with seven classes (joint: 27.7 %, three splits)
    #: and 9.3 % on MNIST (10.3 %, two splits), in 1.7 and 0.9 times the processor time. With 4,900
    #: rows it takes 1.4 times the time on cov and 3.8 times on noisy synthetic data, and the errors
    #: are 26.1 and 23.5 % (25.0 and 23.5 %, one split each).
    max_auto_pair_rows: int = 2000
    #: Pivots below this multiple of the largest kernel value K(x, x) are zero. The features of a
    #: row are then exact to 1e-5, and coefficients of the expansion lose five digits.
    rank_tolerance: float = 1e-10
    #: Thresholds of the solvers: rows for each feature of the preconditioner and of the start. A
    #: fit to 1,000 features of 145,000 rows of cov takes 3.1 s of processor time with 20 and 15,
    #: and 4.5 s with 30 and 30.
    solvers: Policy = field(
        default_factory=partial(Policy, gram_rows_per_column=20, max_start_rows_per_column=15)
    )
    #: Elements of the matrix of features up to which it is in float64: 1 GiB. Larger ones are kept
    #: as `FactoredRows` for solvers that read these, and otherwise in float32, with four exact
    #: digits.
    max_double_elements: int = 1 << 27
    #: Kernel values that are computed at a time: 32 MiB; and of `FactoredRows`, 2 MiB.
    block_elements: int = 1 << 22
    factored_block_elements: int = 1 << 19
    #: Rows whose kernel with each other is computed for the values K(x, x).
    block_rows: int = 256

    def n_landmarks(self, n_rows: int, n_components: int | None) -> int:
        """Return the number of landmarks among this many rows with positive weight."""
        if n_components is None:
            return n_rows if n_rows <= self.max_exact_rows else self.n_components
        return min(n_rows, n_components)


def landmarks(
    data: TrainingData, n_components: int | None, policy: KernelPolicy
) -> NDArray[np.intp]:
    """Choose the landmarks: all rows of positive weight, or a systematic sample of them.

    By default rows in blocks have `policy.n_components` landmarks, however many rows there are.
    """
    used = np.flatnonzero(data.weights > 0)
    if n_components is None and isinstance(data.matrix, Blocks):
        n_components = policy.n_components
    size = policy.n_landmarks(len(used), n_components)
    return used if size == len(used) else systematic_sample(data, size)


def systematic_sample(data: TrainingData, size: int) -> NDArray[np.intp]:
    """Return distinct rows of positive weight, along a random direction; all if there are fewer.

    The rows are sorted by a random projection with a fixed seed, of equal ones one is kept, and
    rows at equal distances in this order are chosen. The choice depends on the content of the rows
    alone: neither their order nor repetitions change it.
    """
    used = np.flatnonzero(data.weights > 0)
    keys = rounded(row_projections(data)[used])
    order = np.argsort(keys, kind="stable")
    is_new = np.append(True, np.diff(keys[order]) != 0)
    distinct = used[order[is_new]]
    if len(distinct) <= size:
        return np.sort(distinct)
    places = (np.arange(size) + 0.5) * (len(distinct) / size)
    return np.sort(distinct[places.astype(np.intp)])
