"""A progress bar on the terminal, with the estimated time left."""

import sys
import time
from collections.abc import Callable
from typing import TextIO, TypeAlias

__all__ = ["ProgressBar", "Reached"]

#: A callback for long tasks: the amount done, and the total (None if unknown).
Reached: TypeAlias = Callable[[int, int | None], None]


class ProgressBar:
    """Redraws one line; draws nothing if the stream is not a terminal.

    Parameters
    ----------
    label : str
        The task.
    unit : str, default=""
        The unit of the amount; "B" is bytes, written in megabytes.
    stream : text stream, optional
        The terminal; by default standard error.

    Examples
    --------
    >>> from marginpursuit._progress_bar import ProgressBar
    >>> with ProgressBar("fits") as reached:
    ...     for done in range(10):
    ...         reached(done + 1, 10)
    """

    width = 24  # characters of the bar
    interval = 0.1  # seconds between two drawings

    def __init__(self, label: str, unit: str = "", stream: TextIO | None = None) -> None:
        self._label = label
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._drawn = -self.interval
        self._begin: tuple[float, int] | None = None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *unused: object) -> None:
        if self._begin is not None and self._stream.isatty():
            self._stream.write("\n")
            self._stream.flush()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Draw the bar at `done` of `total`."""
        now = time.monotonic()
        if self._begin is None:
            self._begin = (now, done)
        if self._stream.isatty() and (done == total or now - self._drawn >= self.interval):
            self._drawn = now
            self._stream.write(f"\r\x1b[K{self._line(now, done, total)}")
            self._stream.flush()

    def _line(self, now: float, done: int, total: int | None) -> str:
        if not total:
            return f"{self._label}  {self._amount(done)}"
        filled = min(self.width, self.width * done // total)
        bar = "█" * filled + "░" * (self.width - filled)
        line = f"{self._label}  {bar} {100 * done // total:3d} %  "
        line += f"{self._amount(done)} of {self._amount(total)}"
        start, first = self._begin or (now, done)
        # The amount done before this run, in a resumed task, does not count for the speed.
        if first < done < total:
            line += f"  {_clock((now - start) / (done - first) * (total - done))} left"
        return line

    def _amount(self, count: int) -> str:
        return f"{count / 1e6:.1f} MB" if self._unit == "B" else f"{count}{self._unit}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
