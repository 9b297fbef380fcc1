"""A linear classifier as a query in SQL."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.export._expressions import Expression, stored, traced
from marginpursuit.export._linear_model import LinearModel

# How elementwise operations are written, where all databases agree. PostgreSQL raises an error
# where the exponential under- or overflows; outside ±700 it is below 1e-304 or above 1e304.
_TEMPLATES = {
    "add": "({0} + {1})",
    "subtract": "({0} - {1})",
    "multiply": "({0} * {1})",
    "divide": "({0} / {1})",
    "negative": "(-{0})",
    "abs": "ABS({0})",
    "exp": "EXP({least}({greatest}({0}, -7e2), 7e2))",
    "log": "LN({0})",
    "sqrt": "SQRT({0})",
    "tanh": "(1e0 - 2e0 / (1e0 + EXP({least}(2e0 * {0}, 7e2))))",
    "minimum": "{least}({0}, {1})",
    "maximum": "{greatest}({0}, {1})",
    "less": "{0} < {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "equal": "{0} = {1}",
    "where": "CASE WHEN {0} THEN {1} ELSE {2} END",
    "astype": "CASE WHEN {0} THEN 1e0 ELSE 0e0 END",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words in which databases differ.

    SQLite and PostgreSQL replace each column of a step by its expression, unless the step is
    MATERIALIZED. The expression of a joint link would then have millions of terms.
    """

    least: str = "LEAST"
    greatest: str = "GREATEST"
    materialised: str = ""


DIALECTS = {
    "standard": Dialect(),
    "postgresql": Dialect(materialised="MATERIALIZED "),
    "sqlite": Dialect("MIN", "MAX", "MATERIALIZED "),
}


def query(
    model: LinearModel,
    table: Sequence[str],
    features: Sequence[str],
    keep: Sequence[str],
    dialect: Dialect,
    max_classes: int = 100,
) -> str:
    """Return a SELECT statement of the kept columns, the prediction, scores and probabilities.

    The comparisons of all scores with each other grow with the square of the classes.
    """
    if len(model.classes) > max_classes:
        raise ValueError(
            f"got {len(model.classes)} classes; expected at most {max_classes} in a query. Export "
            "the model to ONNX or C."
        )
    prefix = "step"
    while any(name.lower().startswith(prefix) for name in keep):
        prefix += "_"
    program = _Program(prefix, dialect)
    sums = [_score(row, features) for row in zip(model.coef, model.intercept, strict=True)]
    scores = program.start(sums, keep, ".".join(map(quoted, table)))
    results = _prediction(model, scores)
    labels = _texts(model.labels)
    if model.n_problems == 1:
        results.append((scores[0], "score"))
    else:
        results += [(s, f"score_{label}") for s, label in zip(scores, labels, strict=True)]
    if model.link is not None:
        found = program.add(traced(model.link, model.n_problems), scores)
        is_known = f"CASE WHEN {_is_null(scores)} THEN NULL ELSE {{}} END"
        results += [
            (is_known.format(p), f"probability_{label}")
            for p, label in zip(found, labels, strict=True)
        ]
    clash = sorted({name.lower() for name in keep} & {name.lower() for _, name in results})
    if clash:
        raise ValueError(
            f"keep has the names {clash}, which the query gives to its results. Rename these "
            "columns in a view, or leave them out."
        )
    return program.finish(results, keep)


def _score(row: tuple[FloatArray, Any], features: Sequence[str]) -> str:
    """Return the score x·coef + intercept; a column without influence is left out."""
    coef, intercept = row
    terms = [_number(intercept)] + [
        f"CAST({quoted(features[j])} AS DOUBLE PRECISION) * {_number(coef[j])}"
        for j in np.flatnonzero(coef).tolist()
    ]
    return _balanced_sum(terms)


def _balanced_sum(terms: list[str], width: int = 50) -> str:
    """Return a sum whose depth as an expression is bounded; SQLite allows 1,000 levels."""
    while len(terms) > width:
        groups = [terms[k : k + width] for k in range(0, len(terms), width)]
        terms = [f"({' + '.join(group)})" for group in groups]
    return " + ".join(terms)


def _prediction(model: LinearModel, scores: list[str]) -> list[tuple[str, str]]:
    """Return expressions and names of the predicted class, or of each label."""
    unknown = f"WHEN {_is_null(scores)} THEN NULL"
    if model.has_label_sets:
        return [
            (f"CASE {unknown} WHEN {s} > 0 THEN 1 ELSE 0 END", f"prediction_{label}")
            for s, label in zip(scores, _texts(model.labels), strict=True)
        ]
    labels = [_literal(label) for label in model.labels]
    if len(scores) == 1:
        choice = f"WHEN {scores[0]} > 0 THEN {labels[1]} ELSE {labels[0]}"
    else:
        choice = _first_maximum(scores, labels)
    return [(f"CASE {unknown} {choice} END", "prediction")]


def _first_maximum(values: Sequence[str], labels: Sequence[str]) -> str:
    """Return the cases of the label of the first maximum."""
    cases = [
        f"WHEN {' AND '.join(f'{value} >= {other}' for other in values[k + 1 :])} THEN {labels[k]}"
        for k, value in enumerate(values[:-1])
    ]
    return f"{' '.join(cases)} ELSE {labels[-1]}"


def _is_null(scores: Iterable[str]) -> str:
    """Return whether a row has a missing value: then all scores with that column are NULL."""
    return " OR ".join(f"{score} IS NULL" for score in scores)


class _Program:
    """Common table expressions, each of which adds columns to the one before it."""

    def __init__(self, prefix: str, dialect: Dialect) -> None:
        self._prefix, self._dialect = prefix, dialect
        self._steps: list[str] = []
        self._columns: dict[int, list[str]] = {}  # names of stored results, by expression

    def start(self, scores: list[str], keep: Sequence[str], table: str) -> list[str]:
        """Add the scores; return their columns."""
        names = self._names(len(scores))
        self._select([*map(quoted, keep), *_named(scores, names)], table)
        return names

    def add(self, expressions: list[Expression], scores: list[str]) -> list[str]:
        """Add the operations of a link; return the columns of the last result."""
        self._columns[id(expressions[0])] = scores
        for expression in stored(expressions):
            columns = [self._text(expression, k) for k in range(expression.n_columns)]
            names = self._names(expression.n_columns)
            self._select(["*", *_named(columns, names)], self._last)
            self._columns[id(expression)] = names
        return self._columns[id(expressions[-1])]

    def finish(self, results: list[tuple[str, str]], keep: Sequence[str]) -> str:
        """Return the query."""
        columns = [*map(quoted, keep), *(f"{text} AS {quoted(name)}" for text, name in results)]
        listed = ",\n  ".join(columns)
        steps = ",\n".join(self._steps)
        return f"WITH {steps}\nSELECT\n  {listed}\nFROM {self._last}\n"

    @property
    def _last(self) -> str:
        return f"{self._prefix}{len(self._steps) - 1}"

    def _names(self, n_columns: int) -> list[str]:
        return [f"{self._prefix}{len(self._steps)}_{k}" for k in range(n_columns)]

    def _select(self, columns: list[str], source: str) -> None:
        listed = ",\n  ".join(columns)
        name = f"{self._prefix}{len(self._steps)}"
        hint = self._dialect.materialised
        self._steps.append(f"{name} AS {hint}(\nSELECT\n  {listed}\nFROM {source})")

    def _text(self, part: Any, k: int) -> str:
        """Return an argument, or column k of it; a matrix of one column counts for every k."""
        if isinstance(part, tuple):
            return _number(part[k])
        if not isinstance(part, Expression):
            return _number(part)
        k = min(k, part.n_columns - 1)
        if id(part) in self._columns:
            return self._columns[id(part)][k]
        if part.operation in ("sum", "max", "argmax", "concat", "full_like", "column"):
            return self._whole_row(part, k)
        arguments = (self._text(argument, k) for argument in part.arguments)
        names = {"least": self._dialect.least, "greatest": self._dialect.greatest}
        return _TEMPLATES[part.operation].format(*arguments, **names)

    def _whole_row(self, part: Expression, k: int) -> str:
        """Return column k of an operation that is not elementwise."""
        source = part.arguments[0]
        if part.operation == "full_like":
            return _number(part.arguments[1])
        if part.operation == "column":
            return self._text(source, part.arguments[1])
        if part.operation == "concat":
            columns = [(x, j) for x in part.arguments for j in range(x.n_columns)]
            return self._text(*columns[k])
        values = [self._text(source, j) for j in range(source.n_columns)]
        if part.operation == "sum":
            return f"({_balanced_sum(values)})"
        if part.operation == "max":
            return f"{self._dialect.greatest}({', '.join(values)})"
        return f"CASE {_first_maximum(values, list(map(str, range(len(values)))))} END"


def quoted(name: str) -> str:
    """Return an identifier in double quotes."""
    if "\0" in name:
        raise ValueError(f"got the name {name!r}; SQL has no names with a null character")
    return '"' + name.replace('"', '""') + '"'


def _named(texts: list[str], names: list[str]) -> list[str]:
    return [f"{text} AS {name}" for text, name in zip(texts, names, strict=True)]


def _number(value: float) -> str:
    """Return a literal of type double: the shortest decimal that is read as the same number."""
    digits = repr(float(value))
    digits = digits if "e" in digits else f"{digits}e0"
    return f"({digits})" if digits.startswith("-") else digits


def _literal(label: Any) -> str:
    """Return the label of a class: text, an integer or a number."""
    if isinstance(label, str):
        if "\0" in label:
            raise ValueError(f"got the class {label!r}; SQL has no text with a null character")
        return "'" + label.replace("'", "''") + "'"
    return str(int(label)) if isinstance(label, bool | int) else _number(label)


def _texts(classes: list[Any]) -> list[str]:
    return [str(label) for label in classes]
