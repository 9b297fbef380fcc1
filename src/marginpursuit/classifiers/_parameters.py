"""The values that parameters of an estimator may have: a description and a test of each."""

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np


class Allowed(NamedTuple):
    """The values that a parameter may have."""

    words: str
    test: Callable[[Any], bool]

    def or_none(self) -> "Allowed":
        """Return the same values and None."""
        return Allowed(f"{self.words}, or None", lambda x: x is None or self.test(x))


def check_parameters(estimator: Any, allowed: Mapping[str, Allowed]) -> None:
    """Raise a ValueError for the first parameter whose value is not allowed."""
    for name, (words, test) in allowed.items():
        value = getattr(estimator, name)
        if not test(value):
            raise ValueError(f"{name} must be {words}; got {short(value)}")


def number(words: str, test: Callable[[float], bool], names: Iterable[str] = ()) -> Allowed:
    """Allow real numbers that pass the test, and names."""
    named = f", or one of {sorted(names)}" if names else ""

    def is_allowed(value: Any) -> bool:
        if isinstance(value, str):
            return value in names
        return isinstance(value, Real) and not isinstance(value, bool) and test(float(value))

    return Allowed(f"a number {words}{named}", is_allowed)


def numbers(words: str, low: float, high: float) -> Allowed:
    """Allow sequences of real numbers in [low, high]."""

    def is_allowed(values: Any) -> bool:
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            return False
        given = list(values)
        return bool(given) and all(
            isinstance(x, Real) and not isinstance(x, bool) and low <= float(x) <= high
            for x in given
        )

    return Allowed(f"a sequence of one or more numbers {words}", is_allowed)


def whole(least: int, *others: Any) -> Allowed:
    """Allow integers >= `least`, and other values."""
    also = "".join(f", or {other}" for other in others)

    def is_allowed(value: Any) -> bool:
        if isinstance(value, bool | None):
            return value in others
        return isinstance(value, Integral) and int(value) >= least

    return Allowed(f"a whole number >= {least}{also}", is_allowed)


def one_of(names: Iterable[str]) -> Allowed:
    """Allow names."""
    return Allowed(f"one of {list(names)}", lambda x: isinstance(x, str) and x in names)


FLAG = Allowed("True or False", lambda x: isinstance(x, bool | np.bool_))

LEVERAGE_BOUND = number("that is positive and finite", lambda x: 0 < x < np.inf).or_none()

CLASS_WEIGHT = Allowed(
    "None, 'balanced' or a dict from class to weight",
    lambda x: x is None or isinstance(x, Mapping) or (isinstance(x, str) and x == "balanced"),
)

RANDOM_STATE = Allowed(
    "None, a whole number or a random generator of NumPy",
    lambda x: isinstance(x, Integral | np.random.RandomState | np.random.Generator | None),
)
