"""Columns of dates: their formats, cells that are no dates, and the order of day and month."""

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

from marginpursuit.tables import TableVectoriser, unreadable_rows  # noqa: E402
from marginpursuit.tables.columns import parse  # noqa: E402

DAYS = pd.date_range("2023-01-03 09:20", periods=200, freq="37h")


def column_of(cells):
    (column,) = TableVectoriser().describe(pd.DataFrame({"a": cells}))
    return column


@pytest.mark.parametrize("bad", [[], ["unknown"], ["0000-00-00"] * 30])
@pytest.mark.parametrize(
    ("date_format", "unit"),
    [
        *((day, "D") for day in ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d")),
        *((day, "D") for day in ("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%b-%y")),
        *((day, "D") for day in ("%m-%d-%y", "%d-%m-%y", "%y-%m-%d", "%d-%m-%Y")),
        *((day, "D") for day in ("%d %b %Y", "%b %d, %Y", "%B %d, %Y")),
        *((minute, "m") for minute in ("%m/%d/%Y %I:%M %p", "%d/%m/%y %H:%M", "%Y-%m-%d %H:%M")),
        ("%d/%m/%Y %I:%M %p", "m"),
        *((month, "M") for month in ("%b-%y", "%b %Y", "%B %Y", "%Y-%m", "%m/%Y")),
    ],
)
def test_formats(date_format, unit, bad):
    """At most 5 % of the cells may be no dates; zeros of a database are missing values."""
    cells = pd.Series([*bad, *DAYS.strftime(date_format)])
    column = column_of(cells)
    assert (column.kind, column.date_format, column.n_missing) == ("date", date_format, len(bad))
    expected = DAYS.to_numpy().astype(f"M8[{unit}]")
    np.testing.assert_array_equal(parse(cells, column)[len(bad) :], expected)
    assert unreadable_rows(cells, column).tolist() == ([0] if bad == ["unknown"] else [])


def test_numbers_without_leading_zeros():
    cells = [f"{day.month}/{day.day}/{day:%y}" for day in DAYS]
    assert column_of(cells).date_format == "%m/%d/%y"


@pytest.mark.parametrize("year", ["24", "2024"])
def test_the_order_of_day_and_month_is_that_of_the_cells_that_tell_it(year):
    form = "%y" if year == "24" else "%Y"
    either, day_first, month_first = (f"{start}/{year}" for start in ("01/02", "13/01", "01/14"))
    assert column_of([either] * 99 + [day_first]).date_format == f"%d/%m/{form}"
    assert column_of([either] * 99 + [month_first]).date_format == f"%m/%d/{form}"
    assert column_of([either] * 100).kind == "dropped"  # one value
    assert column_of([either, f"03/04/{year}"] * 50).date_format == f"%m/%d/{form}"
    assert column_of([either, "13.01." + year, "03.04." + year]).kind == "category"  # two formats
    first_days = column_of([f"01.{month:02d}.{year}" for month in range(1, 13)] * 3)
    assert first_days.date_format == f"%d.%m.{form}"
    for column in (first_days, column_of([either, f"03/04/{year}"] * 50)):
        assert column.reason.endswith(", but no cell tells the order of day and month")
    typo = column_of([either] * 50 + [day_first] * 49 + [month_first])
    years = ", years 2024 to 2024" if year == "24" else ""
    assert typo.reason == f"format %d/%m/{form}{years}"
    assert (typo.date_format, typo.n_missing) == (f"%d/%m/{form}", 1)
    assert column_of([either] * 97 + [day_first] * 2 + [month_first]).kind == "category"


def test_iso_dates_are_read_whatever_the_format():
    column = column_of(DAYS.strftime("%d/%m/%Y"))
    new = pd.Series(
        ["2023-02-01", "2023-02-01T10:30:00Z", "2023-02-01 10:30", "01/02/2023", "2023"]
    )
    expected = ["2023-02-01", "2023-02-01T10:30", "2023-02-01T10:30", "2023-02-01", "NaT"]
    np.testing.assert_array_equal(parse(new, column), np.array(expected, dtype="M8[s]"))
    typed = column_of(DAYS)
    assert typed.date_format == ""
    expected[3] = "NaT"  # nothing tells the order of day and month
    np.testing.assert_array_equal(parse(new, typed), np.array(expected, dtype="M8[s]"))


ISO = DAYS.strftime("%Y-%m-%d")


@pytest.mark.parametrize(
    ("other", "date_format"),
    [
        (DAYS.strftime("%Y-%m-%d %H:%M:%S"), ""),
        (DAYS.strftime("%Y-%m-%dT%H:%M:%S.250000"), ""),
        (DAYS.strftime("%Y-%m-%dT%H:%M:%S+01:00"), ""),
        (DAYS.strftime("%m/%d/%Y"), "%m/%d/%Y"),
        (DAYS.strftime("%d.%m.%Y"), "%d.%m.%Y"),
        (list(DAYS), ""),
    ],
    ids=["times", "fractions", "zones", "month first", "day first", "cells of dates"],
)
@pytest.mark.parametrize("n_iso", [20, 100, 180])
def test_iso_dates_count_for_every_format(other, date_format, n_iso):
    cells = pd.Series([*ISO[:n_iso], *other[n_iso:]], dtype=object)
    column = column_of(cells)
    assert (column.kind, column.date_format, column.n_missing) == ("date", date_format, 0)
    assert column.reason == (f"format {date_format}" if date_format else "dates in ISO 8601")
    days = parse(cells, column).astype("M8[D]")
    assert (days == DAYS.to_numpy().astype("M8[D]")).mean() > 0.9  # zones may change the day


def test_dates_of_several_formats_are_not_called_identifiers():
    reason = "looks like dates of several formats; write them in one"
    for one, two in [("%d/%m/%Y", "%d.%m.%Y"), ("%d/%m/%Y", "%m/%d/%Y"), ("%b-%y", "%d.%m.%y")]:
        column = column_of([*DAYS[:100].strftime(one), *DAYS[100:].strftime(two)])
        assert (column.kind, column.reason) == ("dropped", reason)


@pytest.mark.parametrize(
    ("first", "last"), [(1930, 1968), (1930, 1999), (1945, 2010), (1999, 2024), (2021, 2031)]
)
def test_years_of_two_digits_are_contiguous_and_mostly_past(first, last, monkeypatch):
    """Two digits would otherwise mean 1969 to 2068: years of birth would be in the future."""
    monkeypatch.setattr(pd.Timestamp, "now", lambda: pd.Timestamp("2026-06-01"))
    days = pd.date_range(f"{first}-01-01", f"{last}-12-31", periods=300).normalize()
    cells = pd.Series(days.strftime("%m/%d/%y"))
    column = column_of(cells)
    assert column.reason == f"format %m/%d/%y, years {first} to {last}"
    np.testing.assert_array_equal(parse(cells, column), days.to_numpy())
    monkeypatch.setattr(pd.Timestamp, "now", None)  # the decision is that of the fit
    np.testing.assert_array_equal(parse(cells, column), days.to_numpy())


@pytest.mark.parametrize(
    "cells",
    [
        ["20-29", "30-39"],
        ["v1.2.3", "v1.2.4"],
        ["192.168.1.1", "10.0.0.1"],
        ["10:15:00", "11:20:00"],
        ["C10000", "C10001"],
        ["1st May 2023", "2nd May 2023"],
    ],
)
def test_other_cells_with_digits_are_categories(cells):
    assert column_of(cells * 30).kind == "category"
