"""The split of rows into two halves, each of which is fitted and scores the other.

The rows of a class are ordered by their norm and, where norms are equal, by a random
projection with a fixed seed, both rounded to float32. Of four distinct rows in this order, the
first and the last are in one half. The split depends on the content of the rows alone: equal rows
are in the same half, so that a row of weight 2 is split like two copies of it, and neither the
order of rows and columns nor the names of classes matter, nor do units, signs and origins of dense
columns, unless different rows have equal norms. A class with fewer than four distinct rows belongs
to both halves, with half its weight, and is not scored. Without two classes that are scored, the
slopes of the link are the mean of the prior.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit._namespaces import to_numpy
from marginpursuit._validation import FloatArray
from marginpursuit.design import Design, Standardisation


@dataclass(frozen=True, slots=True)
class Halves:
    """Which rows are fitted and held out by each of the two half fits."""

    weights: FloatArray  # (2, n_rows), of the fits; each row sums to one
    held_out: NDArray[np.bool_]  # (2, n_rows)

    @classmethod
    def of(
        cls,
        keys: tuple[FloatArray, ...],
        codes: NDArray[np.intp],
        weights: FloatArray,
        min_distinct_rows: int = 4,
        min_classes: int = 2,
    ) -> "Halves | None":
        """Split the rows; None unless `min_classes` have enough distinct rows to be scored.

        `keys` are one or two numbers for each row by which the rows of a class are ordered, in
        float32; the second decides where the first are equal.
        """
        key = _ordered_bits(keys[0])
        if len(keys) > 1:
            key = key << np.uint64(32) | _ordered_bits(keys[1])
        order = np.argsort(key)  # two sorts of integers are faster than one by several columns
        if not weights.all():
            order = order[weights[order] > 0]
        n_classes = int(codes.max()) + 1
        narrow = codes.astype(np.min_scalar_type(n_classes - 1))
        order = order[np.argsort(narrow[order], kind="stable")]
        key, code = key[order], narrow[order]
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = (key[1:] != key[:-1]) | (code[1:] != code[:-1])
        n_distinct = np.bincount(code[is_new], minlength=n_classes)
        is_split = n_distinct >= min_distinct_rows
        if np.count_nonzero(is_split) < min_classes:
            return None
        # The number of a distinct row among those of its class, from one on. Halves 0, 1, 1, 0 and
        # so on have about the same mean of the first key.
        number = np.cumsum(is_new) - np.repeat(
            np.cumsum(n_distinct) - n_distinct, np.bincount(code, minlength=n_classes)
        )
        is_own = np.zeros((2, len(weights)), dtype=bool)
        is_own[1, order] = number & 2
        np.not_equal(is_own[1], weights > 0, out=is_own[0])
        held_out, fitted = is_own[::-1].copy(), is_own * weights
        if not is_split.all():
            whole = np.flatnonzero(~is_split[codes])
            held_out[:, whole], fitted[:, whole] = False, 0.5 * weights[whole]
        fitted /= fitted.sum(axis=1, keepdims=True)
        return cls(fitted, held_out)

    def thinned(self, step: int) -> "Halves":
        """Return the same fits, with one of `step` held-out rows, in the order of the rows."""
        if step == 1:
            return self
        rows = np.flatnonzero(self.held_out.any(axis=0))
        kept = np.zeros_like(self.held_out)
        kept[:, rows[::step]] = self.held_out[:, rows[::step]]
        return Halves(self.weights, kept)


def split_keys(design: Design, standardisation: Standardisation) -> tuple[FloatArray, FloatArray]:
    """Return norms and a random projection of standardised rows, equal for equal rows."""
    normal = random_direction(design.n_columns)[:, np.newaxis]
    projection: Any = design.scores(normal, np.zeros(1), standardisation)
    norms = np.asarray(to_numpy(design.row_norms(standardisation)), dtype=np.float64)
    return norms, np.asarray(to_numpy(projection), dtype=np.float64)[:, 0]


@lru_cache(maxsize=2)
def random_direction(n_columns: int) -> FloatArray:
    """Return the direction of the projections, which is the same in every fit."""
    return np.random.default_rng(0).standard_normal(n_columns)


def rounded(values: FloatArray) -> NDArray[np.float32]:
    """Return values over a power of two, that of the largest, as float32: none overflows."""
    _, exponent = np.frexp(np.abs(values).max(initial=0.0))
    return np.asarray(np.ldexp(values, -exponent), dtype=np.float32)


def _ordered_bits(values: FloatArray) -> NDArray[np.uint64]:
    """Return integers of 32 bits in the order of the values as float32; those of ±0 are equal."""
    bits = (rounded(values) + np.float32(0.0)).view(np.uint32)
    sign = np.uint32(1 << 31)
    return np.where(bits & sign, ~bits, bits | sign).astype(np.uint64)
