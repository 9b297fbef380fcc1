"""What a run left behind: results, figures and tables, as a file that a report is made from."""

import dataclasses
import datetime
import json
import math
import os
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginpursuit._files import write_atomically
from marginpursuit._versions import versions
from marginpursuit.experiments.compare import SetResult

__all__ = ["Figure", "Listing", "Run", "RunFileError"]

_FORMAT = "marginpursuit run 1"


class RunFileError(ValueError):
    """A file is no run, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture."""

    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of text."""

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that a report shows.

    Examples
    --------
    >>> from marginpursuit.experiments.runs import Run
    >>> run = Run.now("nothing yet")
    >>> Run.from_json(run.to_json()) == run
    True
    """

    title: str
    made: str  # when, in ISO format
    versions: dict[str, str]
    sets: tuple[SetResult, ...] = ()
    listings: tuple[Listing, ...] = ()
    figures: tuple[Figure, ...] = ()

    @classmethod
    def now(cls, title: str, **parts: Any) -> "Run":
        """Make a run with the time and the versions of this moment."""
        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return cls(title, made, versions(), **parts)

    def to_json(self) -> str:
        """Return the run as text."""
        content = {"format": _FORMAT, **dataclasses.asdict(self)}
        return json.dumps(content, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Run":
        """Read a run from text; every value is checked against the type that it should have."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RunFileError(f"no JSON: {error}") from error
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise RunFileError(f"no run, or of another version; expected {_FORMAT!r}")
        return typing.cast(Run, _revive(cls, content, "run"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the run to a file, at once or not at all."""
        return write_atomically(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Run":
        """Read a run from a file, or from the file ``run.json`` in a folder."""
        path = Path(path)
        path = path / "run.json" if path.is_dir() else path
        try:
            return cls.from_json(path.read_bytes())
        except RunFileError as error:
            raise RunFileError(f"{path}: {error}") from error


def _revive(kind: Any, value: Any, where: str) -> Any:
    """Turn what JSON gives back into the type that an annotation asks for, or refuse it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        if set(value) <= set(hints):
            parts = {
                name: _revive(hints[name], part, f"{where}.{name}") for name, part in value.items()
            }
            try:
                return typing.cast(Any, kind)(**parts)
            except TypeError as error:
                raise RunFileError(f"{where}: {error}") from error
    elif origin is types.UnionType:
        return None if value is None else _revive(inner[0], value, where)
    elif origin is tuple and isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            return tuple(
                _revive(part_kind, part, f"{where}[{number}]")
                for number, (part_kind, part) in enumerate(zip(kinds, value, strict=True))
            )
    elif origin is dict and isinstance(value, dict):
        return {name: _revive(inner[1], part, f"{where}[{name!r}]") for name, part in value.items()}
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
    elif kind is type(value) or (kind is int and type(value) is int):
        return value
    raise RunFileError(f"{where}: not what a run holds there")
