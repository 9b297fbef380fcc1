"""Links as expressions: the formulas of a link are evaluated once, on symbols instead of numbers.

The links (`classifiers/_link.py`) and the losses are written for arrays of any library that has the
functions of the array API standard. `Expression` is such an array without values: every function of
`Functions` returns the expression of its result. ONNX, SQL and C render the expressions, so that no
formula is written twice.

All expressions are matrices with one row for each sample and a fixed number of columns; a vector is
a matrix of one column. Matrices of one column broadcast.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from marginpursuit.classifiers._shared import Link


class Expression:
    """The result of an operation on expressions, numbers and rows of numbers.

    Parameters
    ----------
    operation : str
        The name of the operation, as in the array API standard.
    arguments : tuple
        Expressions, numbers, and tuples of numbers: one for each column.
    n_columns : int
        The number of columns of the result.
    dtype : {"float", "int", "bool"}
        The type of its elements.
    """

    __array_ufunc__ = None  # NumPy leaves operators to this class
    device = None

    def __init__(
        self, operation: str, arguments: tuple[Any, ...], n_columns: int, dtype: str = "float"
    ) -> None:
        self.operation = operation
        self.arguments = arguments
        self.n_columns = n_columns
        self.dtype = dtype

    @property
    def shape(self) -> tuple[None, int]:
        """The shape; the number of rows is not known."""
        return None, self.n_columns

    @property
    def operands(self) -> list["Expression"]:
        """The arguments that are expressions."""
        return [part for part in self.arguments if isinstance(part, Expression)]

    def __array_namespace__(self) -> "Functions":
        return Functions()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the processor; formulas recognise arrays of other libraries by this method."""
        return 1, 0

    def __getitem__(self, key: tuple[Any, Any]) -> "Expression":
        """Return the matrix for ``[:, None]``, a column for ``[:, k]`` and ``[:, k : k + 1]``."""
        column = key[1].start if isinstance(key[1], slice) else key[1]
        if column is None or self.n_columns == 1:
            return self
        return Expression("column", (self, int(column)), 1, self.dtype)

    def __neg__(self) -> "Expression":
        return _elementwise("negative", self)

    def __add__(self, other: Any) -> "Expression":
        return self if _is_number(other, 0) else _elementwise("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Expression":
        return _elementwise("subtract", self, other)

    def __rsub__(self, other: Any) -> "Expression":
        return _elementwise("subtract", other, self)

    def __mul__(self, other: Any) -> "Expression":
        return self if _is_number(other, 1) else _elementwise("multiply", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Expression":
        return self if _is_number(other, 1) else _elementwise("divide", self, other)

    def __rtruediv__(self, other: Any) -> "Expression":
        return _elementwise("divide", other, self)

    def __lt__(self, other: Any) -> "Expression":
        return _elementwise("less", self, other, dtype="bool")

    def __gt__(self, other: Any) -> "Expression":
        return _elementwise("greater", self, other, dtype="bool")

    def __ge__(self, other: Any) -> "Expression":
        return _elementwise("greater_equal", self, other, dtype="bool")

    def __eq__(self, other: Any) -> "Expression":  # type: ignore[override]
        return _elementwise("equal", self, other, dtype="bool")

    __hash__ = object.__hash__


class Functions:
    """The functions of the array API standard that links use."""

    float64, int64 = "float", "int"

    @staticmethod
    def astype(x: Expression, dtype: str) -> Expression:
        """Return booleans as numbers; numbers are unchanged."""
        return x if x.dtype == dtype else _elementwise("astype", x, dtype=dtype)

    @staticmethod
    def where(condition: Expression, x: Any, y: Any) -> Expression:
        """Choose between two values."""
        return _elementwise("where", condition, x, y)

    @staticmethod
    def clip(x: Expression, min: Any = None, max: Any = None) -> Expression:  # noqa: A002
        """Bound from below, from above or both."""
        x = x if min is None else _elementwise("maximum", x, min)
        return x if max is None else _elementwise("minimum", x, max)

    @staticmethod
    def copysign(x: Expression, sign: Expression) -> Expression:
        """Return a size x >= 0 with another sign."""
        return _elementwise("where", sign < 0.0, -x, x)

    @staticmethod
    def zeros_like(x: Expression) -> Expression:
        """Return zeros."""
        return Expression("full_like", (x, 0.0), x.n_columns)

    @staticmethod
    def ones_like(x: Expression) -> Expression:
        """Return ones."""
        return Expression("full_like", (x, 1.0), x.n_columns)

    @staticmethod
    def arange(n_columns: int, *, dtype: str, device: Any) -> "_Row":
        """Return the numbers of the columns, which are then indexed by ``[None, :]``."""
        return _Row(range(n_columns))

    @staticmethod
    def asarray(values: Any, *, dtype: str, device: Any) -> "_Row":
        """Return a vector with a number for each column."""
        return _Row(values.tolist())

    @staticmethod
    def concat(parts: Sequence[Expression], *, axis: int) -> Expression:
        """Join the columns of matrices."""
        return Expression("concat", tuple(parts), sum(part.n_columns for part in parts))

    stack = concat

    @staticmethod
    def sum(x: Expression, *, axis: int) -> Expression:
        """Return the sum of each row."""
        return Expression("sum", (x,), 1)

    @staticmethod
    def max(x: Expression, *, axis: int) -> Expression:
        """Return the maximum of each row."""
        return Expression("max", (x,), 1)

    @staticmethod
    def argmax(x: Expression, *, axis: int) -> Expression:
        """Return the column of the first maximum of each row."""
        return Expression("argmax", (x,), 1, "int")

    @classmethod
    def any(cls, x: Expression, *, axis: int) -> Expression:
        """Return whether a condition holds in any column."""
        return cls.max(cls.astype(x, "float"), axis=1) > 0.5

    def __getattr__(self, name: str) -> Any:
        """Return an elementwise function of one argument."""
        if name not in ("abs", "exp", "log", "sqrt", "tanh"):
            raise AttributeError(name)
        return lambda x: _elementwise(name, x)


class _Row(tuple[float, ...]):
    """A number for each column."""

    def __getitem__(self, key: Any) -> Any:
        return self if isinstance(key, tuple) else super().__getitem__(key)


def _elementwise(operation: str, *arguments: Any, dtype: str = "float") -> Expression:
    parts = tuple(
        part if isinstance(part, Expression | tuple) else float(part) for part in arguments
    )
    n_columns = max(part.n_columns for part in parts if isinstance(part, Expression))
    n_columns = max(n_columns, *(len(part) for part in parts if isinstance(part, tuple)), 1)
    return Expression(operation, parts, n_columns, dtype)


def _is_number(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and value == number


def traced(link: Link, n_problems: int) -> list[Expression]:
    """Return the operations of a link, each after its operands.

    The first is the input "scores", of `n_problems` columns; the last are the probabilities.
    """
    scores = Expression("scores", (), n_problems)
    return ordered(link.probabilities(scores))


def ordered(root: Expression) -> list[Expression]:
    """Return an expression and all that it depends on, each after its operands."""
    found: dict[int, Expression] = {}
    pending = [root]
    while pending:
        last = pending[-1]
        missing = [part for part in last.operands if id(part) not in found]
        if missing:
            pending.extend(missing)
        else:
            found.setdefault(id(pending.pop()), last)
    return list(found.values())


def stored(expressions: list[Expression]) -> list[Expression]:
    """Return the expressions whose results a program stores; the others are written in place.

    Stored are the results that are used more than once, those of operations on whole rows, and
    those of which a single column is used. Conditions are written in place: not every language
    stores them.
    """
    n_uses = Counter(id(part) for expression in expressions for part in expression.operands)
    whole_rows, by_column = ("sum", "max", "argmax", "concat"), ("column", "argmax")
    read_by_column = {id(x.arguments[0]) for x in expressions if x.operation in by_column}
    return [
        expression
        for expression in expressions[1:]
        if expression.dtype != "bool"
        and expression.operation not in ("full_like", "column")
        and (
            n_uses[id(expression)] != 1
            or expression.operation in whole_rows
            or id(expression) in read_by_column
        )
    ]
