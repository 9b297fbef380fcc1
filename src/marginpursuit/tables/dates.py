"""Columns of dates: their format, and their cells as dates."""

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginpursuit.tables.errors import optional

__all__ = ["DateFormat", "date_format_of", "read_dates"]


class DateFormat(NamedTuple):
    """How the cells of a column are read as dates.

    Attributes
    ----------
    form : str or None
        The format, as in `datetime.strptime`; empty if all dates are in ISO 8601, None if the cells
        are not dates of one format.
    reason : str
        The format and doubts about it, in words; or why the column is not used.
    last_year : int
        The last year that two digits stand for; 0 if years have four.
    """

    form: str | None
    reason: str = ""
    last_year: int = 0


def date_format_of(
    values: list[str], counts: NDArray[Any], fraction: float, further: Sequence[str]
) -> DateFormat:
    """Return the format that reads the most cells, if it reads at least `fraction` of them.

    The formats are those that pandas guesses from up to 100 values, and `further`. Each reads dates
    in ISO 8601 as well. `counts` has the cells of each value. Where several formats read as many
    cells, that with the fewest different years is taken, since days vary more, then the month comes
    first, but after the day in dates with points.
    """
    is_candidate = [6 <= len(value) <= 40 and any(map(str.isdigit, value)) for value in values]
    least = fraction * counts.sum()
    if not values or counts[is_candidate].sum() < least:
        return DateFormat(None)
    eligible = np.array(values, dtype=object)[is_candidate]
    sample = eligible[:: max(1, len(eligible) // 100)]
    cells = np.array(values, dtype=object)
    in_iso = ~np.isnat(read_dates(cells, ""))
    own = {
        form: _has_format(cells, form)
        for form in dict.fromkeys([*_guesses(sample), *further])
        if _has_format(sample, form).any()
    }
    own[""] = in_iso
    n_read = {form: (counts[mask | in_iso].sum(), counts[mask].sum()) for form, mask in own.items()}
    most = max(n_read.values())
    tied = [form for form, found in n_read.items() if found == most]
    best = min(tied, key=lambda form: (_count_years(sample, form), not form.startswith("%d.")))
    doubt = _doubt_of_order(cells, own[best], counts, best, fraction)
    if most[0] < least or doubt is None:
        is_date = np.logical_or.reduce(list(own.values()))
        several = "looks like dates of several formats; write them in one"
        return DateFormat(None, several if counts[is_date].sum() >= least else "")
    return _described(cells[own[best]], best, doubt)


def _doubt_of_order(
    cells: NDArray[Any], own: NDArray[np.bool_], counts: NDArray[Any], form: str, fraction: float
) -> str | None:
    """Return a doubt about the order of day and month; None if the cells have either order.

    `own` tells which cells have the format. At least `fraction` of the cells that only one order
    can read must be among them.
    """
    if not ("%d" in form and "%m" in form) or form.lower().startswith("%y"):
        return ""
    other = _has_format(cells, form.translate(str.maketrans("dm", "md")))
    for_form, for_other = counts[own & ~other].sum(), counts[other & ~own].sum()
    if for_form < fraction * (for_form + for_other):
        return None
    return "" if for_form > 0 else ", but no cell tells the order of day and month"


def _described(cells: NDArray[Any], form: str, doubt: str) -> DateFormat:
    """Return the format in words, with the range of years of two digits."""
    if "%y" not in form:
        return DateFormat(form, f"format {form}{doubt}" if form else "dates in ISO 8601")
    today = int(optional("pandas").Timestamp.now().year)
    last_year = _last_year(_years(cells, form), today)
    years = _years(cells, form, last_year)
    return DateFormat(
        form, f"format {form}, years {years.min()} to {years.max()}{doubt}", last_year
    )


def _last_year(years: NDArray[np.intp], today: int, ahead: int = 10) -> int:
    """Return the last year that two digits stand for, given those of a column in any century.

    The hundred years end within the longest gap between the years of the column, and at least half
    of its values are at most `ahead` years after today: dates of birth are in the past, and
    deadlines shortly after today stay there.
    """
    found = np.unique(years % 100)
    gaps = np.diff(found, append=found[0] + 100)
    last, gap = 2000 + int(found[gaps.argmax()]), int(gaps.max())
    if last - np.median((last - years) % 100) > today + ahead:
        last -= 100
    return max(last, min(last + gap - 1, today + ahead))


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


def _years(cells: NDArray[Any], form: str, last_year: int = 9999) -> NDArray[np.intp]:
    """Return the years of the cells that are dates of a format."""
    dates = read_dates(cells, form, last_year)
    return np.asarray(dates[~np.isnat(dates)].astype("M8[Y]").astype(np.intp) + 1970)


def _count_years(cells: NDArray[Any], form: str) -> int:
    return len(np.unique(_years(cells, form)))


def read_dates(
    cells: NDArray[Any], date_format: str, last_year: int = 9999
) -> NDArray[np.datetime64]:
    """Return text as dates: in the format, if there is one, or as ISO 8601 has them.

    Dates with a year of two digits are not after `last_year`.
    """
    pandas = optional("pandas")
    text = pandas.Series(cells, dtype=object)
    in_iso = text.str.fullmatch(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d.*)?").astype(bool)
    dates = pandas.to_datetime(text.where(in_iso), format="ISO8601", errors="coerce", utc=True)
    if date_format:
        chosen = pandas.to_datetime(text, format=date_format, errors="coerce", utc=True)
        if "%y" in date_format:
            is_late = chosen.dt.year > last_year
            chosen = chosen.where(~is_late, chosen - pandas.DateOffset(years=100))
        dates = chosen.where(chosen.notna(), dates)
    return np.asarray(dates.dt.tz_convert(None).to_numpy())
