"""Records of vectorised tables, which model files store: columns, and features made of them."""

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["NUMBER_FORMATS", "Column", "Feature", "Kind"]

Kind = Literal["number", "category", "text", "date", "dropped"]

#: Decimal and thousands separator of the number formats, in the order of preference.
NUMBER_FORMATS = ((".", ""), (",", ""), (".", ","), (",", "."), (".", " "), (",", " "), (".", "'"))


@dataclass(frozen=True, slots=True)
class Column:
    """What the table step decided about a column.

    Attributes
    ----------
    name : str
        The name of the column.
    kind : {"number", "category", "text", "date", "dropped"}
        How the column is encoded; "dropped" columns are not used.
    reason : str
        Why, or the format, in words; may be empty.
    decimal, thousands : str
        The separators of its numbers.
    date_format : str
        The format of its dates, as in `datetime.strptime`; empty if the cells are dates already, or
        in ISO 8601.
    n_missing : int
        The number of missing cells, including those that could not be read.
    last_year : int
        The last year that years of two digits stand for; 0 if years have four digits.

    Examples
    --------
    >>> from marginpursuit.tables import Column
    >>> print(Column("age", "number", "decimal ','", ",", n_missing=3))
    age: number, decimal ','; 3 missing
    """

    name: str
    kind: Kind
    reason: str
    decimal: str = "."
    thousands: str = ""
    date_format: str = ""
    n_missing: int = 0
    last_year: int = 0

    def __post_init__(self) -> None:
        texts = (self.name, self.reason, self.date_format)
        if self.kind not in ("number", "category", "text", "date", "dropped"):
            raise ValueError(f"the kind of a column is {self.kind!r}")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"name, reason and date format of a column must be text; got {texts}")
        if (self.decimal, self.thousands) not in NUMBER_FORMATS:
            raise ValueError(f"unknown number format {self.decimal!r}, {self.thousands!r}")
        if type(self.n_missing) is not int:
            raise ValueError(f"the number of missing cells is {self.n_missing!r}")
        if type(self.last_year) is not int:
            raise ValueError(f"the last year of a column is {self.last_year!r}")

    def __str__(self) -> str:
        reason = f", {self.reason}" if self.reason else ""
        missing = f"; {self.n_missing} missing" if self.n_missing else ""
        return f"{self.name}: {self.kind}{reason}{missing}"


@dataclass(frozen=True, slots=True)
class Feature:
    """A column of the matrix of a vectorised table.

    Attributes
    ----------
    name : str
        Its name, such as "age", "age is missing", "city = Paris" or "comment: refund".
    column : str
        The column of the table.
    unit : {"+1", "missing", "= value", "word"}
        The change of the table that changes the feature: a number by 1, a cell to missing or to a
        value, or the TF-IDF weight of a word by 1.
    scale : float
        The feature is the original quantity divided by this, up to a constant.

    Examples
    --------
    >>> from marginpursuit.tables import Feature
    >>> Feature("age", "age", "+1", 12.5).scale
    12.5
    """

    name: str
    column: str
    unit: str
    scale: float = 1.0

    def __post_init__(self) -> None:
        texts = (self.name, self.column, self.unit)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"name, column and unit of a feature must be text; got {texts}")
        if type(self.scale) is not float or not 0 < self.scale < math.inf:
            raise ValueError(f"the scale of a feature is {self.scale!r}")
