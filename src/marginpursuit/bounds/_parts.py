"""The base class of all bounds, and checks of single numbers."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import between, inside, positive, scalar


@dataclass(frozen=True, repr=False, slots=True)
class Parts:
    """Base of the results: a frozen dataclass whose repr has one line per named term.

    Arrays are left out.
    """

    def __repr__(self) -> str:
        parts = [(f.name, getattr(self, f.name)) for f in fields(self)]
        parts = [(name, value) for name, value in parts if not isinstance(value, np.ndarray)]
        width = max(len(name) for name, _ in parts)
        lines = [f"  {name:<{width}}  {_text(value)}" for name, value in parts]
        return "\n".join([type(self).__name__, *lines])


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def given(name: str, value: Any, constants: Any, attribute: str | None = None) -> Any:
    """Return an argument, or where it is None the attribute of `constants`, by default `name`."""
    if value is not None:
        return value
    if constants is None:
        raise TypeError(
            f"{name} is missing. Pass it, or constants=estimate_constants(X, y) of "
            "marginpursuit.bounds."
        )
    return getattr(constants, attribute or name)


def positive_number(name: str, value: ArrayLike) -> float:
    """Return `value` as a float; raise unless it is a single number in (0, inf)."""
    return scalar(name, positive(name, value))


def nonnegative_number(name: str, value: ArrayLike) -> float:
    """Return `value` as a float; raise unless it is a single number in [0, inf)."""
    number = scalar(name, between(name, value, 0.0, np.inf))
    return 0.0 if number == 0 else positive_number(name, number)


def failure_probability(delta: ArrayLike, high: float = 1.0) -> float:
    """Return `delta` as a float; raise unless it is a single number in (0, high)."""
    return scalar("delta", inside("delta", delta, 0.0, high))
