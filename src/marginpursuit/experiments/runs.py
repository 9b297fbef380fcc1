"""A run: results, figures and tables in one JSON file, from which a report is made."""

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
from marginpursuit.experiments._results import Table
from marginpursuit.experiments.method_results import SetResult

__all__ = ["Figure", "Run", "RunFileError", "Table"]

_FORMAT = "marginpursuit run 1"


class RunFileError(ValueError):
    """A file is not a run, or is damaged."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as SVG text."""

    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Run:
    """The content of a report.

    Examples
    --------
    >>> from marginpursuit.experiments.runs import Run
    >>> run = Run.now("empty")
    >>> Run.from_json(run.to_json()) == run
    True
    """

    title: str
    made: str  # date and time in ISO format
    versions: dict[str, str]
    sets: tuple[SetResult, ...] = ()
    listings: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()

    @classmethod
    def now(cls, title: str, **parts: Any) -> "Run":
        """Create a run with the current time and versions."""
        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return cls(title, made, versions(), **parts)

    def to_json(self) -> str:
        """Return the run as JSON text."""
        content = {"format": _FORMAT, **dataclasses.asdict(self)}
        return json.dumps(content, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Run":
        """Read a run from JSON text; every value is checked against its type annotation."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RunFileError(f"not JSON: {error}") from error
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise RunFileError(f"not a run, or of another version; expected {_FORMAT!r}")
        try:
            return typing.cast(Run, _restore(cls, content, "run"))
        except RecursionError as error:
            raise RunFileError("nested too deeply") from error

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the run to a file, atomically."""
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


def _restore(kind: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to an annotated type; raise `RunFileError` if it does not match."""
    origin = typing.get_origin(kind)
    if origin is types.UnionType:  # T | None
        return None if value is None else _restore(typing.get_args(kind)[0], value, where)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _restore_dataclass(kind, value, where)
    if origin is tuple and isinstance(value, list):
        return _restore_tuple(typing.get_args(kind), value, where)
    if origin is dict and isinstance(value, dict):
        inner = typing.get_args(kind)[1]
        return {name: _restore(inner, part, f"{where}[{name!r}]") for name, part in value.items()}
    return _restore_scalar(kind, value, where)


def _restore_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) in (int, float):
        try:
            number = float(value)
        except OverflowError:  # an integer above the largest float
            number = math.inf
        if math.isfinite(number):
            return number
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise RunFileError(f"{where}: expected {kind}, got {type(value).__name__}")


def _restore_dataclass(kind: Any, value: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise RunFileError(f"{where}: unknown fields {unknown}")
    parts = {name: _restore(hints[name], part, f"{where}.{name}") for name, part in value.items()}
    try:
        return kind(**parts)
    except TypeError as error:  # fields are missing
        raise RunFileError(f"{where}: {error}") from error


def _restore_tuple(inner: tuple[Any, ...], value: list[Any], where: str) -> tuple[Any, ...]:
    kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
    if len(kinds) != len(value):
        raise RunFileError(f"{where}: expected {len(kinds)} values, got {len(value)}")
    return tuple(
        _restore(kind, part, f"{where}[{number}]")
        for number, (kind, part) in enumerate(zip(kinds, value, strict=True))
    )
