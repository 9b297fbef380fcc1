"""Fused sweeps over the rows of a matrix: margins, loss and gradient in one pass over the data.

`rows(matrix)` returns the fastest available handle on a matrix, without copying it: compiled
(`_compiled`, SIMD level chosen at run time) or NumPy (`_arrays`). Both have the same methods:
`sweep`, `scores` and `adjoint`, each for a span of rows, and `descend`, which takes stochastic
gradient steps along drawn rows. `task_losses` evaluates the losses between the two matrix products
of a sweep for many tasks.
"""

import sys
from typing import Any

from marginpursuit._kernels import _arrays, _link
from marginpursuit._kernels._arrays import ArrayRows, is_positive
from marginpursuit._kernels._descent import Descent
from marginpursuit._kernels._link import link_pieces

_compiled: Any
try:
    from marginpursuit._kernels import _compiled
except ImportError:  # installed where there was no compiler
    _compiled = None

_fastest = _arrays if _compiled is None else _compiled

#: A handle on the rows of a dense array or a sparse matrix.
rows = _fastest.rows

#: The losses of many tasks at once, for the scores that a matrix product gave.
task_losses = _fastest.task_losses

#: The joint loss of several classes, likewise; None for NumPy, where `JointLoss` evaluates it.
joint_losses: Any = None if _compiled is None else _compiled.joint_losses

#: Newton's method for several tasks on dense rows, and the multiple to which the columns of these
#: are padded; None for NumPy.
newton: Any = None if _compiled is None else _compiled.newton
ROW_PADDING: int = 1 if _compiled is None else _compiled.ROW_PADDING

#: Newton's method for binary problems with a kernel; None for NumPy.
kernel_newton: Any = None if _compiled is None else _compiled.kernel_newton

#: Probabilities of classes from those of pairs of classes.
coupled = _link.coupled if _compiled is None else _compiled.coupled

#: Weights summed over intervals of scores.
interval_sums = _fastest.interval_sums

#: A fit to a small dense table in one call; None for NumPy.
small_table: Any = None if _compiled is None else _compiled.small_table

#: The slopes of a link from scores to probabilities.
link_slopes = _link.link_slopes if _compiled is None else _compiled.link_slopes

#: L-BFGS for one task, and for a joint task its sweeps of float32 rows; None for NumPy.
Lbfgs: Any = None if _compiled is None else _compiled.Lbfgs

#: One half of the two-loop recursion of a quasi-Newton method, for many tasks.
lbfgs_loop = _fastest.lbfgs_loop

#: A matrix that plus its transpose is the weighted sum of outer squares of some CSR rows.
csr_gram = _fastest.csr_gram

#: Weighted sums of the values of a CSR matrix and of their squares, and the largest absolute value
#: of each column.
csr_moments, csr_largest = _fastest.csr_moments, _fastest.csr_largest

#: Sweeps of float32 rows for several tasks; the largest number of tasks of a call, 0 for NumPy,
#: which uses matrix products instead; and the multiples to which columns and tasks are padded.
#: With more classes of a joint loss there is `sweep_class_tiles`.
sweep_tiles: Any = None if _compiled is None else _compiled.sweep_tiles
sweep_joint_tiles: Any = None if _compiled is None else _compiled.sweep_joint_tiles
sweep_class_tiles: Any = None if _compiled is None else _compiled.sweep_class_tiles
class_tiles_work: Any = None if _compiled is None else _compiled.class_tiles_work
TILE_TASKS: int = 0 if _compiled is None else _compiled.TILE_TASKS
TILE_PADDING: int = 1 if _compiled is None else _compiled.TILE_PADDING
TILE_GROUP: int = 1 if _compiled is None else _compiled.TILE_GROUP

#: Tasks up to which these calls take less time than two matrix products. With AVX2 they take 0.7 to
#: 1.0 times as long for 16 tasks of 64 to 784 columns, and 1.0 to 1.6 times for 20 to 48. With
#: AVX-512 they take 0.65 to 0.95 times as long for 100 (benchmarks/results, labels).
FAST_TILE_TASKS: int = 0
if TILE_TASKS > 0:
    FAST_TILE_TASKS = sys.maxsize if _compiled.LEVELS[-1] == "avx512" else 16

__all__ = [
    "FAST_TILE_TASKS",
    "ROW_PADDING",
    "TILE_GROUP",
    "TILE_PADDING",
    "TILE_TASKS",
    "ArrayRows",
    "Descent",
    "Lbfgs",
    "active",
    "class_tiles_work",
    "coupled",
    "csr_gram",
    "csr_largest",
    "csr_moments",
    "interval_sums",
    "is_positive",
    "joint_losses",
    "kernel_newton",
    "lbfgs_loop",
    "link_pieces",
    "link_slopes",
    "newton",
    "rows",
    "small_table",
    "sweep_class_tiles",
    "sweep_joint_tiles",
    "sweep_tiles",
    "task_losses",
]


def active() -> str:
    """Name the kernels in use: the compiled SIMD level, or NumPy."""
    if _compiled is None:
        return "numpy (not compiled: no C compiler was found at install time)"
    return (
        f"compiled, {_compiled.LEVELS[-1]} (this processor can run {', '.join(_compiled.LEVELS)})"
    )
