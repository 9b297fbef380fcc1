"""A line on the terminal that says how far something has come and how long it will take."""

import sys
import time
from collections.abc import Callable
from typing import TextIO, TypeAlias

__all__ = ["ProgressBar", "Reached"]

#: What long tasks tell their caller: how much is done, and of how much (None: not known).
Reached: TypeAlias = Callable[[int, int | None], None]

_WIDTH = 24
_INTERVAL = 0.1  # seconds between two drawings


class ProgressBar:
    """Draws one line, again and again; draws nothing where the stream is no terminal.

    Parameters
    ----------
    label : str
        What is being done.
    unit : str, default=""
        What is counted; "B" counts bytes and is written in megabytes.
    stream : text stream, optional
        Where to draw; by default standard error.

    Examples
    --------
    >>> from marginpursuit._progress_bar import ProgressBar
    >>> with ProgressBar("fits") as reached:
    ...     for done in range(10):
    ...         reached(done + 1, 10)
    """

    def __init__(self, label: str, unit: str = "", stream: TextIO | None = None) -> None:
        self._label = label
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._drawn = -_INTERVAL
        self._begin: tuple[float, int] | None = None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *unused: object) -> None:
        if self._begin is not None and self._stream.isatty():
            self._stream.write("\n")
            self._stream.flush()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Draw that `done` of `total` has been reached."""
        now = time.monotonic()
        if self._begin is None:
            self._begin = (now, done)
        if self._stream.isatty() and (done == total or now - self._drawn >= _INTERVAL):
            self._drawn = now
            self._stream.write(f"\r\x1b[K{self._line(now, done, total)}")
            self._stream.flush()

    def _line(self, now: float, done: int, total: int | None) -> str:
        if not total:
            return f"{self._label}  {self._amount(done)}"
        filled = min(_WIDTH, _WIDTH * done // total)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        line = f"{self._label}  {bar} {100 * done // total:3d} %  "
        line += f"{self._amount(done)} of {self._amount(total)}"
        start, first = self._begin or (now, done)
        # What was there before this run (a resumed task) says nothing about its speed.
        if first < done < total:
            line += f"  {_clock((now - start) / (done - first) * (total - done))} left"
        return line

    def _amount(self, count: int) -> str:
        return f"{count / 1e6:.1f} MB" if self._unit == "B" else f"{count}{self._unit}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
