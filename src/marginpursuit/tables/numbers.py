"""Columns of numbers: their formats, and their cells as numbers."""

import re
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from marginpursuit._table_records import NUMBER_FORMATS
from marginpursuit.tables.errors import optional

__all__ = ["number_formats", "number_reason", "read_numbers"]

# What may stand before or after a number: signs of currencies, and codes of ISO 4217. At other
# characters the lookahead saves trying each of them.
_CURRENCY = (
    r"(?=[$¢-¥฿₠-⃏A-Z])(?:[$¢-¥฿₠-⃏]|AED|AUD|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW"
    r"|MXN|MYR|NGN|NOK|NZD|PEN|PHP|PKR|PLN|QAR|RON|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR)"
)


def number_formats(
    values: Sequence[str], counts: NDArray[np.intp], fraction: float, *, asked: bool = False
) -> list[tuple[str, str]]:
    """Return the formats in which this fraction of the cells, or of the values, are numbers.

    A format is the decimal and the thousands separator. `counts` has the cells of each value. A
    word that stands for many missing cells, such as unknown, is one value. There are no formats for
    codes such as 007, unless numbers are `asked` for; then those that read most cells are returned.
    """
    is_code = (value[:1] == "0" != value and value.isdecimal() for value in values)
    if not values or (not asked and any(is_code)):
        return []
    texts = _normalised(values)
    n_read = {}
    found = []
    for form in NUMBER_FORMATS:
        pattern = _pattern(*form)
        matches = np.array([pattern.fullmatch(text) is not None for text in texts])
        n_read[form] = counts[matches].sum()
        if n_read[form] >= fraction * counts.sum() or matches.mean() >= fraction:
            found.append(form)
    most = max(n_read.values())
    if asked and not found and most > 0:
        return [form for form in NUMBER_FORMATS if n_read[form] == most]
    return found


def number_reason(values: Iterable[str], formats: Sequence[tuple[str, str]]) -> str:
    """Return the first format in words: its separators, doubts about them, and the currencies."""
    decimal, thousands = formats[0]
    texts = [text for text in _normalised(values) if _pattern(decimal, thousands).fullmatch(text)]
    parts = [] if formats[0] == (".", "") else [f"decimal {decimal!r}"]
    parts += [f"thousands {thousands!r}"] if thousands else []
    sign, role = (thousands, "decimal") if thousands else (decimal, "thousands")
    other = (thousands, "") if thousands else ("," if decimal == "." else ".", decimal)
    if other in formats and any(sign in text for text in texts):
        parts = parts or [f"decimal {decimal!r}"]
        parts.append(f"but {sign!r} could be the {role} separator")
    letters = "\n".join(texts).translate(dict.fromkeys(map(ord, "0123456789.,'+-()% ")))
    currencies = sorted(set(re.findall(_CURRENCY, letters)))
    if len(currencies) > 1:
        parts.append(f"currencies {', '.join(currencies)} without conversion")
    if 0 < sum("%" in text for text in texts) < len(texts):
        parts.append("per cent signs in some cells only, without conversion")
    return ", ".join(parts)


def read_numbers(values: Iterable[str], decimal: str, thousands: str) -> NDArray[np.float64]:
    """Return text as numbers; text that does not have the format is NaN."""
    pandas = optional("pandas")
    pattern = _pattern(decimal, thousands)
    texts = [text if pattern.fullmatch(text) else "" for text in _normalised(values)]
    cells = pandas.Series(texts, dtype=object).str.replace(rf"[%\s]|{_CURRENCY}", "", regex=True)
    cells = cells.str.replace(r"^\((.*)\)$|^(.*)-$", r"-\1\2", regex=True)
    if thousands:
        cells = cells.str.replace(thousands, "", regex=False)
    cells = cells.str.replace(decimal, ".", regex=False)
    return np.asarray(pandas.to_numeric(cells, errors="coerce").to_numpy(np.float64))


def _normalised(values: Iterable[str]) -> list[str]:
    """Write no-break and thin blanks, typographic apostrophes and minus signs in ASCII."""
    values = list(values)
    if "".join(values).isascii():
        return values
    ascii_signs = str.maketrans("\u00a0\u2009\u202f\u2019\u2212", "   '-")
    return [value.translate(ascii_signs) for value in values]


@cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    """Return the pattern of a number, perhaps with a currency or per cent sign or in brackets.

    Groups of thousands do not start with zero: 0,123 has a decimal comma.
    """
    groups = rf"[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|" if thousands else ""
    point = re.escape(decimal)
    number = rf"(?:(?:{groups}\d+)(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?"
    before, after = rf"(?:{_CURRENCY})?\s?", rf"\s?(?:%|{_CURRENCY})?"
    signed = rf"(?:[-+]?{before}|{before}[-+]?){number}{after}"
    # As accountants write it, and SAP.
    negative = rf"{before}\({before}{number}{after}\){after}|{before}{number}-{after}"
    return re.compile(f"{signed}|{negative}", re.ASCII)
