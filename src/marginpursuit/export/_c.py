"""A linear classifier as functions in C99, which need the standard library only."""

from collections.abc import Iterable
from itertools import accumulate
from string import Template
from typing import Any

from marginpursuit.export._expressions import Expression, stored, traced
from marginpursuit.export._linear_model import LinearModel

_TEMPLATES = {
    "add": "({0} + {1})",
    "subtract": "({0} - {1})",
    "multiply": "({0} * {1})",
    "divide": "({0} / {1})",
    "negative": "(-{0})",
    "abs": "fabs({0})",
    "exp": "exp({0})",
    "log": "log({0})",
    "sqrt": "sqrt({0})",
    "tanh": "tanh({0})",
    "minimum": "fmin({0}, {1})",
    "maximum": "fmax({0}, {1})",
    "less": "({0} < {1})",
    "greater": "({0} > {1})",
    "greater_equal": "({0} >= {1})",
    "equal": "({0} == {1})",
    "where": "({0} ? {1} : {2})",
    "astype": "({0} ? 1.0 : 0.0)",
}

_HEADER = """/* A linear classifier, written by marginpursuit. C99; link with -lm.

   x has the values of the features in the order of the fit. A value that is not finite makes
   every result NaN or -1. */

#include <math.h>

enum {
    ${name}_N_FEATURES = $n_features,
    ${name}_N_SCORES = $n_scores,
    ${name}_N_CLASSES = $n_classes
};

"""

_SCORES = """
/* Scores h(x). Returns 0, or -1 if one is not finite; then all are NaN. */
int ${name}_scores(const double *x, double *scores)
{
    int k, is_finite = 1;
    for (k = 0; k < ${name}_N_SCORES; k++) {
        int j;
        scores[k] = ${name}_intercept[k];
        for (j = 0; j < ${name}_N_FEATURES; j++)
            scores[k] += ${name}_coef[k][j] * x[j];
        is_finite = is_finite && isfinite(scores[k]);
    }
    for (k = 0; k < ${name}_N_SCORES && !is_finite; k++)
        scores[k] = NAN;
    return is_finite ? 0 : -1;
}
"""

_CODE = """
/* The number of the predicted class in ${name}_classes, or -1 if a score is not finite. */
int ${name}_predict(const double *x)
{
    double scores[${name}_N_SCORES];
    int k, best = 0;
    if (${name}_scores(x, scores) != 0)
        return -1;
    if (${name}_N_SCORES == 1)
        return scores[0] > 0.0;
    for (k = 1; k < ${name}_N_SCORES; k++)
        if (scores[k] > scores[best])
            best = k;
    return best;
}
"""

_LABELS = """
/* 1 for each label of the row and 0 for the others. Returns 0, or -1 if a score is not finite;
   then all are -1. */
int ${name}_predict(const double *x, int *labels)
{
    double scores[${name}_N_SCORES];
    int k, status = ${name}_scores(x, scores);
    for (k = 0; k < ${name}_N_SCORES; k++)
        labels[k] = status == 0 ? scores[k] > 0.0 : -1;
    return status;
}
"""

_PROBABILITIES = """
/* The probability of each class. Returns 0, or -1 if a score is not finite; then all are NaN. */
int ${name}_probabilities(const double *x, double *probabilities)
{
    double scores[${name}_N_SCORES];
    int k;
    if (${name}_scores(x, scores) != 0) {
        for (k = 0; k < ${name}_N_CLASSES; k++)
            probabilities[k] = NAN;
        return -1;
    }
$link
    return 0;
}
"""


def source(model: LinearModel, name: str) -> str:
    """Return the text of a C file."""
    values = {
        "name": name,
        "n_features": model.n_features,
        "n_scores": model.n_problems,
        "n_classes": len(model.classes),
    }
    templates = [_SCORES, _LABELS if model.has_label_sets else _CODE]
    if model.link is not None:
        values["link"] = "\n".join(_Body(traced(model.link, model.n_problems)).lines)
        templates.append(_PROBABILITIES)
    header, *functions = (Template(text).substitute(values) for text in (_HEADER, *templates))
    return "".join([header, *_tables(model, name), *functions])


def _tables(model: LinearModel, name: str) -> list[str]:
    """Return the definitions of coefficients, classes and names."""
    rows = ",\n".join(f"    {{{_numbers(row)}}}" for row in model.coef)
    features, classes = model.feature_names, model.labels
    shape = f"[{model.n_problems}][{model.n_features}]"
    tables = [
        f"static const double {name}_coef{shape} = {{\n{rows}}};\n",
        f"static const double {name}_intercept[] = {{{_numbers(model.intercept)}}};\n",
    ]
    if features is not None:
        texts = ", ".join(map(_text, features))
        tables.append(f"const char *const {name}_feature_names[] = {{{texts}}};\n")
    if all(isinstance(label, str) for label in classes):
        texts = ", ".join(map(_text, classes))
        return [*tables, f"const char *const {name}_classes[] = {{{texts}}};\n"]
    if model.classes.dtype.kind == "f":
        return [*tables, f"const double {name}_classes[] = {{{_numbers(classes)}}};\n"]
    integers = ", ".join(_integer(int(label)) for label in classes)
    return [*tables, f"const long long {name}_classes[] = {{{integers}}};\n"]


class _Body:
    """The statements of a link, from `scores` to `probabilities`."""

    def __init__(self, expressions: list[Expression]) -> None:
        self.lines: list[str] = []
        self._names = {id(expressions[0]): "scores"}
        for number, expression in enumerate(stored(expressions)):
            is_last = expression is expressions[-1]
            name = "probabilities" if is_last else f"t{number}"
            if not is_last:
                self._line(f"double {name}[{expression.n_columns}];")
            self._store(expression, name)
            self._names[id(expression)] = name

    def _line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def _loop(self, n_columns: int, statement: str) -> None:
        self._line(f"for (k = 0; k < {n_columns}; k++)")
        self._line(f"    {statement}")

    def _store(self, expression: Expression, name: str) -> None:
        """Write the statements that compute an expression."""
        operation, source = expression.operation, expression.arguments[0]
        if operation == "concat":
            sizes = [part.n_columns for part in expression.arguments]
            for part, start in zip(expression.arguments, accumulate([0, *sizes]), strict=False):
                self._loop(part.n_columns, f"{name}[{start} + k] = {self._text(part)};")
        elif operation == "sum":
            self._line(f"{name}[0] = 0.0;")
            self._loop(source.n_columns, f"{name}[0] += {self._text(source)};")
        elif operation == "max":
            self._line(f"{name}[0] = -INFINITY;")
            self._loop(source.n_columns, f"{name}[0] = fmax({name}[0], {self._text(source)});")
        elif operation == "argmax":
            values = self._names[id(source)]
            self._line(f"{name}[0] = 0.0;")
            is_higher = f"{values}[k] > {values}[(int){name}[0]]"
            self._loop(source.n_columns, f"{name}[0] = {is_higher} ? k : {name}[0];")
        else:
            self._loop(expression.n_columns, f"{name}[k] = {self._text(expression)};")

    def _text(self, part: Any) -> str:
        """Return the value of an argument in column k."""
        if isinstance(part, tuple):
            return self._row(part)
        if not isinstance(part, Expression):
            return repr(part)
        if id(part) in self._names:
            return f"{self._names[id(part)]}[{'k' if part.n_columns > 1 else 0}]"
        if part.operation == "full_like":
            return repr(part.arguments[1])
        if part.operation == "column":
            return f"{self._names[id(part.arguments[0])]}[{part.arguments[1]}]"
        return _TEMPLATES[part.operation].format(*map(self._text, part.arguments))

    def _row(self, values: tuple[float, ...]) -> str:
        """Return the number of column k in a row of numbers, which is declared."""
        if values == tuple(range(len(values))):
            return "k"
        name = f"c{len(self.lines)}"
        self._line(f"static const double {name}[] = {{{_numbers(values)}}};")
        return f"{name}[k]"


def _numbers(values: Iterable[float]) -> str:
    """Return numbers, each as the shortest decimal that is read as the same number."""
    return ", ".join(repr(float(value)) for value in values)


def _integer(value: int) -> str:
    """Return a literal of type long long."""
    # The least one has no literal: C reads a minus sign and a number that is too large.
    return "-9223372036854775807LL - 1" if value == -(2**63) else f"{value}LL"


def _text(value: str) -> str:
    """Return a string literal; bytes other than letters, digits and spaces are octal."""
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ "
    octal = (chr(byte) if byte in plain else rf"\{byte:03o}" for byte in value.encode())
    return f'"{"".join(octal)}"'
