"""The kind of each column of a mixed table, and its cells as numbers, dates or text.

The kind of a column is inferred from its cells, or named by the user. The result is a `Column`,
which holds all that is needed to read the same column of another table.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit._table_records import NUMBER_FORMATS, Column, Kind
from marginpursuit.tables.dates import DateFormat, date_format_of, read_dates
from marginpursuit.tables.errors import TableError, counted, optional
from marginpursuit.tables.numbers import number_formats, number_reason, read_numbers

__all__ = [
    "ColumnPolicy",
    "TextCells",
    "expected_cells",
    "has_ambiguous_thousands",
    "infer_columns",
    "is_identifier",
    "is_missing",
    "is_representable",
    "missing_code",
    "parse",
    "text_cells",
    "unreadable_rows",
]


@dataclass(frozen=True)
class ColumnPolicy:
    """Thresholds of the inference; benchmarks/mixed_tables.py lists the decisions on ten tables."""

    min_rows: int = 20  # a column with fewer cells is not taken for an identifier
    id_fraction: float = 0.95  # different values per cell from which text is an identifier
    text_words: float = 2.0  # mean words per cell from which a column may be free text
    text_values: int = 30  # different values from which a column may be free text
    text_fraction: float = 0.2  # different values per cell from which a column may be free text
    # cells, or different values, that are numbers, or dates of the format; others are missing
    readable_fraction: float = 0.95
    mostly_numbers: float = 0.5  # the same, from which a column of text is said to have numbers
    # formats that pandas does not guess: years of two digits, months, and hours of one digit
    date_formats: tuple[str, ...] = (
        *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%b-%y", "%m-%d-%y", "%d-%m-%y", "%y-%m-%d"),
        *("%m/%d/%y %H:%M", "%d/%m/%y %H:%M", "%d.%m.%y %H:%M", "%d-%m-%y %H:%M"),
        *("%m/%d/%Y %I:%M %p", "%m/%d/%Y %I:%M:%S %p"),
        *("%d/%m/%Y %I:%M %p", "%d/%m/%Y %I:%M:%S %p"),
        *("%b-%y", "%b %Y", "%B %Y", "%m/%Y"),
    )


#: Cells that stand for a missing value, in lower case; the last two are those of MySQL.
_MISSING = frozenset(
    {
        "",
        "na",
        "n/a",
        "#n/a",
        "<na>",
        "nan",
        "nat",
        "null",
        "none",
        "?",
        "-",
        "--",
        "#div/0!",
        "#name?",
        "#null!",
        "#num!",
        "#ref!",
        "#value!",
        "0000-00-00",
        "0000-00-00 00:00:00",
    }
)


class TextCells(NamedTuple):
    """The cells of a column as text: the different values, and the place of each row in them.

    Cells have no surrounding blanks. Missing cells are empty.
    """

    values: NDArray[Any]
    codes: NDArray[np.intp]

    @property
    def cells(self) -> NDArray[Any]:
        """The text of each row."""
        return np.asarray(self.values[self.codes])

    @property
    def present(self) -> tuple[list[str], NDArray[np.intp]]:
        """The different values that are not missing, and the number of rows of each."""
        kept = self.values != ""
        return self.values[kept].tolist(), np.bincount(self.codes, minlength=len(kept))[kept]


def text_cells(series: Any) -> TextCells:
    """Return the cells of a column as text."""
    pandas = optional("pandas")
    if pandas.api.types.is_float_dtype(series):  # 1.0 is the category 1
        codes, found = pandas.factorize(series.to_numpy(np.float64, na_value=np.nan))
        texts = [np.format_float_positional(number, trim="-") for number in found]
    else:
        given = np.empty(len(series), dtype=object)
        given[:] = [str(cell) for cell in series.astype(object)]
        codes, found = pandas.factorize(given)
        texts = [text.strip() for text in found]
    clean = np.empty(len(texts) + 1, dtype=object)
    clean[:] = [*("" if is_missing(text) else text for text in texts), ""]
    places, values = pandas.factorize(clean)
    return TextCells(values, np.where(series.isna().to_numpy(), places[-1], places[codes]))


def is_missing(text: str) -> bool:
    """Whether the text of a cell stands for a missing value."""
    return len(text) <= 19 and text.lower() in _MISSING


def infer_columns(
    frame: Any,
    named: Mapping[str, str],
    decimal: str = ".",
    policy: ColumnPolicy | None = None,
) -> list[Column]:
    """Infer the kind of each column.

    `named` has the kinds that the user chose, by column; `decimal` is the separator of columns that
    may have either, if no other column tells it.
    """
    policy = policy or ColumnPolicy()
    texts = {name: text_cells(frame[name]) for name in frame if _is_text(frame[name])}
    formats = _preferred_formats(
        {
            name: number_formats(
                *text.present, policy.readable_fraction, asked=named.get(name) == "number"
            )
            for name, text in texts.items()
        },
        decimal,
    )
    columns = []
    for name in frame:
        kind = named.get(name)
        if name in texts:
            column = _infer_text(name, texts[name], formats[name], kind, policy)
            cells = _parse_text(texts[name], column)
        else:
            column = _infer_typed(name, frame[name], kind)
            cells = parse(frame[name], column)
        column = replace(column, n_missing=int(_missing(cells, column.kind).sum()))
        columns.append(column if kind else _drop_uninformative(column, cells))
    return columns


def _preferred_formats(
    formats: dict[str, list[tuple[str, str]]], decimal: str
) -> dict[str, list[tuple[str, str]]]:
    """Order the number formats of each column, the preferred one first.

    A column like 1.234 has several formats. It gets the decimal separator of the other columns or,
    where these do not tell it, the given one.
    """
    # All formats match integers without separators.
    known = [{point for point, _ in found} for found in formats.values()
             if len(found) < len(NUMBER_FORMATS)]  # fmt: skip
    n_points, n_commas = known.count({"."}), known.count({","})
    if n_points != n_commas:
        decimal = "." if n_points > n_commas else ","
        own = {
            name: [form for form in found if form[0] == decimal] for name, found in formats.items()
        }
        return {name: own[name] or found for name, found in formats.items()}
    return {
        name: sorted(found, key=lambda form: form[0] != decimal) for name, found in formats.items()
    }


def _is_text(series: Any) -> bool:
    """Whether the cells are text or of mixed types."""
    types = optional("pandas").api.types
    is_text = types.is_object_dtype(series) or types.is_string_dtype(series)
    return bool(is_text) and not _is_category(series) and not _is_boolean(series)


def _is_category(series: Any) -> bool:
    return isinstance(series.dtype, optional("pandas").CategoricalDtype)


def _is_boolean(series: Any) -> bool:
    """Whether the cells are booleans, perhaps with missing ones, as in a spreadsheet."""
    types = optional("pandas").api.types
    if types.is_object_dtype(series):
        return bool(types.infer_dtype(series, skipna=True) == "boolean")
    return bool(types.is_bool_dtype(series))


def _infer_text(
    name: str,
    text: TextCells,
    formats: list[tuple[str, str]],
    kind: str | None,
    policy: ColumnPolicy,
) -> Column:
    """Infer the kind of a column of text."""
    if kind in ("category", "text", "dropped"):
        return _as_chosen(name, kind)
    if formats:
        return Column(name, "number", number_reason(text.values, formats), *formats[0])
    if kind == "number":
        return Column(name, "number", "as asked; cells that are not numbers are missing")
    dates = _date_format(*text.present, policy)
    if dates.form is not None:
        return Column(name, "date", dates.reason, date_format=dates.form, last_year=dates.last_year)
    return _infer_words(name, *text.present, dates.reason, policy)


def _date_format(values: list[str], counts: NDArray[Any], policy: ColumnPolicy) -> DateFormat:
    """Return the format of enough of the cells or, if there is none, of the different values."""
    found = date_format_of(values, counts, policy.readable_fraction, policy.date_formats)
    if found.form is not None or found.reason or len(values) == counts.sum():
        return found
    ones = np.ones_like(counts)
    return date_format_of(values, ones, policy.readable_fraction, policy.date_formats)


def _infer_words(
    name: str, values: list[str], counts: NDArray[Any], reason: str, policy: ColumnPolicy
) -> Column:
    """Infer the kind of a column without numbers and dates; `reason` says why it has no dates."""
    n_values, n_present = len(values), int(counts.sum())
    words = float(counts @ [len(value.split()) for value in values]) / max(n_present, 1)
    is_varied = n_values >= max(policy.text_values, policy.text_fraction * n_present)
    unusable = (reason or _unit_reason(values, counts, policy)) if is_varied else ""
    if unusable:
        return Column(name, "dropped", unusable)
    if is_varied and words >= policy.text_words:
        return Column(name, "text", f"{counted(n_values, 'value')}, {words:.1f} words each")
    hint = ""
    part = slice(None, None, max(1, n_values // 1000))
    if is_varied and number_formats(values[part], counts[part], policy.mostly_numbers):
        hint = "; most are numbers: --numeric reads them, and counts the other cells as missing"
    if n_present >= policy.min_rows and n_values >= policy.id_fraction * n_present:
        found = f"{counted(n_values, 'value')} in {counted(n_present, 'cell')}: an identifier"
        return Column(name, "dropped", found + hint)
    return Column(name, "category", counted(n_values, "value") + hint)


def _unit_reason(values: list[str], counts: NDArray[Any], policy: ColumnPolicy) -> str:
    """Say that nearly all cells have the same unit after a number; empty if they have not."""
    units: Counter[str] = Counter()
    for value, count in zip(values, counts.tolist(), strict=True):
        found = re.fullmatch(r"[-+\u2212]?\d[\d.,' ]*?\s?([^\W\d]\S{0,9})", value)
        units[found[1] if found else ""] += count
    unit, count = units.most_common(1)[0]
    if not unit or count < policy.readable_fraction * counts.sum():
        return ""
    return f"looks like numbers with the unit {unit!r}; remove the unit to use them"


def _as_chosen(name: str, kind: Any) -> Column:
    return Column(name, kind, "as asked")


def _infer_typed(name: str, series: Any, kind: str | None) -> Column:
    """Infer the kind of a column whose cells have a type."""
    types = optional("pandas").api.types
    if kind in ("category", "text", "dropped"):
        return _as_chosen(name, kind)
    if types.is_timedelta64_dtype(series):
        return Column(name, "number", "durations in seconds")
    if types.is_numeric_dtype(series) and not _is_boolean(series):
        if np.iscomplexobj(series):
            raise TableError(f"column {name!r}: expected real numbers, found {series.dtype}")
        return Column(name, "number", "")
    if kind == "number":
        if not (_is_boolean(series) or _is_category(series)):
            raise TableError(f"column {name!r}: expected numbers, found {series.dtype}")
        return _as_chosen(name, kind)
    if types.is_datetime64_any_dtype(series):
        return Column(name, "date", "")
    return Column(name, "category", counted(len(text_cells(series).present[0]), "value"))


def _drop_uninformative(column: Column, cells: Any) -> Column:
    """Drop a column without values, with one value, or with the numbers of the rows."""
    if column.kind == "dropped":
        return column
    if column.n_missing == len(cells):
        return replace(column, kind="dropped", reason="no values")
    if not column.n_missing and np.all(cells == cells[0]):
        return replace(column, kind="dropped", reason="one value")
    is_complete = column.kind == "number" and not column.n_missing
    if is_complete and is_identifier(column.name, cells):
        reason = "a different integer in each row: an identifier"
        return replace(column, kind="dropped", reason=reason)
    return column


def is_identifier(name: str, numbers: NDArray[Any], min_rows: int = 20) -> bool:
    """Whether numbers without missing values number the rows, or have the name of an identifier.

    Parameters
    ----------
    name : str
        The name of the column.
    numbers : ndarray of shape (n_samples,)
        Its numbers.
    min_rows : int, default=20
        The least number of rows of an identifier.

    Returns
    -------
    bool
        Whether the numbers are different integers, and either named like an identifier or at least
        half of the integers between the smallest and the largest.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.tables import is_identifier
    >>> is_identifier("a", np.arange(100)), is_identifier("customer_id", 7 * np.arange(100))
    (True, True)
    >>> is_identifier("a", 7 * np.arange(100)), is_identifier("id", np.zeros(100))
    (False, False)
    """
    if len(numbers) < min_rows or np.any(numbers != np.rint(numbers)):
        return False
    if len(np.unique(numbers)) < len(numbers):
        return False
    usual = r"(?:^|[^A-Za-z])(?i:id|uuid|key|index|nr)$|[a-z](?:Id|ID)$|^(?i:unnamed)"
    return re.search(usual, name) is not None or bool(np.ptp(numbers) < 2 * len(numbers))


def missing_code(numbers: NDArray[Any], max_rows: int = 5000) -> float | None:
    """Return a number that may stand for missing values, such as -999; None if there is none.

    It is the smallest or the largest, fills at least 1 % of the cells and at least five, and is
    farther from at least ten others than these are from each other. At most `max_rows` numbers at
    equal distances are examined.
    """
    sample = numbers[:: max(1, len(numbers) // max_rows)].astype(np.float64)
    values, counts = np.unique(sample[np.isfinite(sample)], return_counts=True)
    if len(values) > 10:
        for place, others in ((0, values[1:]), (-1, values[:-1])):
            is_frequent = counts[place] >= max(5, 0.01 * counts.sum())
            if is_frequent and abs(values[place] - others[place]) > np.ptp(others):
                return float(values[place])
    return None


def parse(series: Any, column: Column) -> Any:
    """Return the cells of a column: an array of float64, dates or text, as its kind demands.

    A cell that cannot be read is missing: NaN, NaT or, in a category or text, empty.
    """
    pandas = optional("pandas")
    types = pandas.api.types
    if column.kind == "number" and types.is_timedelta64_dtype(series):
        return _representable(np.asarray(series.dt.total_seconds(), dtype=np.float64))
    is_boolean = _is_boolean(series)
    if column.kind == "number" and (is_boolean or types.is_numeric_dtype(series)):
        typed = series.astype("boolean") if is_boolean else series
        numbers = pandas.to_numeric(typed, errors="coerce").astype("Float64")
        return _representable(numbers.to_numpy(np.float64, na_value=np.nan))
    if column.kind == "date" and types.is_datetime64_any_dtype(series):
        dates = pandas.to_datetime(series, utc=True)
        return np.asarray(dates.dt.tz_convert(None).to_numpy())
    return _parse_text(text_cells(series), column)


def unreadable_rows(series: Any, column: Column) -> NDArray[np.intp]:
    """Return the rows whose cell has text, but not the number or date that the column expects.

    Parameters
    ----------
    series : pandas.Series
        The cells.
    column : Column
        How the cells are read.

    Returns
    -------
    ndarray of int
        The rows, counted from 0. Such cells are missing in the table step.

    Examples
    --------
    >>> import pandas as pd
    >>> from marginpursuit.tables import Column, unreadable_rows
    >>> unreadable_rows(pd.Series(["1.5", "1,5", "", "1e999"]), Column("age", "number", ""))
    array([1, 3])
    """
    if column.kind not in ("number", "date"):
        return np.empty(0, dtype=np.intp)
    rows = np.flatnonzero(_missing(parse(series, column), column.kind))
    return np.asarray(rows[text_cells(series.iloc[rows]).cells != ""])


def has_ambiguous_thousands(series: Any, column: Column) -> bool:
    """Whether the thousands separators of a column of numbers could be decimal separators."""
    if column.kind != "number" or column.thousands not in (".", ","):
        return False
    other = replace(column, decimal=column.thousands, thousands="")
    return not np.isnan(parse(series, other)).any()


def expected_cells(column: Column) -> str:
    """Say what the cells of a column of numbers or dates are read as."""
    if column.kind == "date":
        return f"date of the format {column.date_format}" if column.date_format else "date"
    thousands = f" and thousands {column.thousands!r}" if column.thousands else ""
    return f"number with decimal {column.decimal!r}{thousands}"


def _parse_text(text: TextCells, column: Column) -> Any:
    """Parse the different values, and return those of each row."""
    if column.kind == "number":
        numbers = read_numbers(text.values, column.decimal, column.thousands)
        return _representable(numbers)[text.codes]
    if column.kind == "date":
        return read_dates(text.values, column.date_format, column.last_year)[text.codes]
    return text.cells


def is_representable(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the squares of numbers do not overflow in the standardisation."""
    return np.asarray(np.abs(numbers) < 1e150)


def _representable(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(is_representable(numbers), numbers, np.nan)


def _missing(cells: Any, kind: Kind) -> NDArray[np.bool_]:
    if kind == "number":
        return np.asarray(np.isnan(cells))
    return np.isnat(cells) if kind == "date" else np.asarray(cells == "")
