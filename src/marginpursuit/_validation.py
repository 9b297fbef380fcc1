"""Checks of arguments that the public functions share, and the type of their results.

Functions compute in float64 and return the type of their arguments: float32 for float32, a scalar
for a scalar. An error names the argument, the values allowed and the value given.
"""

from reprlib import repr as short
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]

#: The result of an elementwise function: an array, or a NumPy scalar if every input is a scalar.
Elementwise: TypeAlias = Any


def real(name: str, value: ArrayLike) -> FloatArray:
    """Return `value` as a float64 array; refuse values other than real numbers, and NaN."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: its mask would be ignored")
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of unequal length
        raise ValueError(f"{name} must be an array; got {short(value)}: {error}") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers; got {short(value)}, dtype {array.dtype}")
    floats = array.astype(np.float64, copy=False)
    _refuse(np.isnan(floats), name, floats, "must not be NaN")
    return floats


def scalar(name: str, value: ArrayLike) -> float:
    """Return `value` as a float; refuse all but a single real number."""
    floats = real(name, value)
    if floats.ndim:
        raise ValueError(f"{name} must be a single number; got an array of shape {floats.shape}")
    return float(floats)


def positive(name: str, value: ArrayLike) -> FloatArray:
    """Return `value` as float64; refuse numbers outside (0, inf)."""
    floats = real(name, value)
    _refuse(~((floats > 0) & (floats < np.inf)), name, floats, "must be positive and finite")
    return floats


def between(name: str, value: ArrayLike, low: float, high: float) -> FloatArray:
    """Return `value` as float64; refuse numbers outside [low, high]."""
    floats = real(name, value)
    rule = f"must be in [{_text(low)}, {_text(high)}]"
    _refuse(~((floats >= low) & (floats <= high)), name, floats, rule)
    return floats


def inside(name: str, value: ArrayLike, low: float, high: float) -> FloatArray:
    """Return `value` as float64; refuse numbers outside the open interval (low, high)."""
    floats = real(name, value)
    rule = f"must be strictly between {_text(low)} and {_text(high)}"
    _refuse(~((floats > low) & (floats < high)), name, floats, rule)
    return floats


def count(name: str, value: ArrayLike, least: int = 1) -> int:
    """Return `value` as an int; refuse all but a single integer of at least `least`."""
    number = scalar(name, value)
    if not number.is_integer() or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {_text(number)}")
    return int(number)


def like(result: FloatArray, *inputs: ArrayLike) -> Elementwise:
    """Return `result` as float32 if no input is wider, and as a scalar if all inputs are."""
    kinds = [x if isinstance(x, int | float) else np.asarray(x).dtype for x in inputs]
    narrow = np.result_type(*kinds) in (np.float32, np.float16)
    # A result out of the range of float32 becomes inf or 0, as in NumPy.
    with np.errstate(over="ignore", under="ignore"):
        return result.astype(np.float32 if narrow else np.float64, copy=False)[()]


def _refuse(bad: NDArray[np.bool_], name: str, values: FloatArray, rule: str) -> None:
    if np.any(bad):
        first = np.argwhere(bad)[0]
        where = f" at index {tuple(int(i) for i in first)}" if first.size else ""
        raise ValueError(f"{name} {rule}; got {_text(values[tuple(first)])}{where}")


def _text(number: float) -> str:
    """Return the shortest text that is parsed as `number`, and 1 for 1.0."""
    return repr(float(number)).removesuffix(".0")
