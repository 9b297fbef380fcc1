"""Columns of dates: their format, and their cells as dates."""

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit.tables.errors import optional

__all__ = ["date_format_of", "read_dates"]


def date_format_of(
    values: list[str], counts: NDArray[Any], fraction: float, further: Sequence[str]
) -> tuple[str, bool]:
    """Return the format that reads the most cells, and whether cells tell its order.

    The formats are those that pandas guesses from up to 100 values, and `further`. At least
    `fraction` of the cells must have the format; it is empty if none has as many. Where another
    order of day and month is possible, at least `fraction` of the cells that only one order can
    read must have that of the format. If no cell tells the order, the month comes first, but after
    the day in dates with points.
    """
    is_candidate = [6 <= len(value) <= 40 and any(map(str.isdigit, value)) for value in values]
    least = fraction * counts.sum()
    if not values or counts[is_candidate].sum() < least:
        return "", True
    eligible = np.array(values, dtype=object)[is_candidate]
    sample = eligible[:: max(1, len(eligible) // 100)]
    cells = np.array(values, dtype=object)
    read = {
        form: _has_format(cells, form)
        for form in dict.fromkeys([*_guesses(sample), *further])
        if _has_format(sample, form).any()
    }
    best = max(
        read, key=lambda form: (counts[read[form]].sum(), form.startswith("%d.")), default=""
    )
    if not best or counts[read[best]].sum() < least:
        return "", True
    if "%d" in best and "%m" in best and not best.startswith("%Y"):
        other = _has_format(cells, best.translate(str.maketrans("dm", "md")))
        for_best = counts[read[best] & ~other].sum()
        for_other = counts[other & ~read[best]].sum()
        if for_best < fraction * (for_best + for_other):
            return "", True
        return best, bool(for_best > 0)
    return best, True


def _guesses(sample: NDArray[Any]) -> list[str]:
    """Return the formats that pandas guesses, those with the month first before the others."""
    guess = optional("pandas.tseries.api").guess_datetime_format
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a day of 13 or more, with the month first
        for dayfirst in (False, True):
            formats = Counter(guess(value, dayfirst=dayfirst) for value in sample)
            found += [form for form, _ in formats.most_common() if isinstance(form, str)]
    return found


def _has_format(cells: NDArray[Any], form: str) -> NDArray[np.bool_]:
    dates = optional("pandas").to_datetime(cells, format=form, errors="coerce", utc=True)
    return np.asarray(dates.notna())


def read_dates(cells: NDArray[Any], date_format: str) -> NDArray[np.datetime64]:
    """Return text as dates: in the format, if there is one, or as ISO 8601 has them."""
    pandas = optional("pandas")
    text = pandas.Series(cells, dtype=object)
    in_iso = text.str.fullmatch(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d.*)?").astype(bool)
    dates = pandas.to_datetime(text.where(in_iso), format="ISO8601", errors="coerce", utc=True)
    if date_format:
        chosen = pandas.to_datetime(text, format=date_format, errors="coerce", utc=True)
        dates = chosen.where(chosen.notna(), dates)
    return np.asarray(dates.dt.tz_convert(None).to_numpy())
