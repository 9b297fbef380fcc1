"""Mixed tables as matrices, by transformers of scikit-learn and skrub (extra `tables`)."""

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted

from marginpursuit._table_records import Column
from marginpursuit._validation import refuse_lazy
from marginpursuit.tables.columns import (
    expected_cells,
    infer_columns,
    parse,
    text_cells,
    unreadable_rows,
)
from marginpursuit.tables.errors import TableError, absent_columns, counted, listed, optional
from marginpursuit.tables.features import describe_features

__all__ = ["ColumnDifferences", "TableVectoriser", "as_frame"]


class ColumnDifferences(NamedTuple):
    """How the columns of a table differ from those that a vectoriser was fitted to."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    is_reordered: bool


class TableVectoriser(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer from mixed tables to matrices.

    The kind of each column is inferred from its cells:

    ========== ===================================================================================
    kind       encoding
    ========== ===================================================================================
    number     missing values replaced by the median, with an indicator; standardised
    category   one column of zeros and ones per value; values in fewer than `min_frequency` rows,
               and values that are new at prediction, share one; missing is a value
    date       year to day or minute, weekday and time in seconds (skrub's `DatetimeEncoder`)
    text       TF-IDF of its words
    dropped    identifiers, constant columns, columns without values
    ========== ===================================================================================

    Numbers may have thousands separators, a decimal comma, currency or per cent signs, and brackets
    if they are negative. The output is sparse if it has more than `max_dense_features` columns.

    Parameters
    ----------
    numeric, categorical, text : sequence of str or int, default=()
        Columns whose kind is given instead of inferred: those whose kind in `columns_` is wrong.
    drop, ids : sequence of str or int, default=()
        Columns that are not used; `ids` identify the rows in listings of the command line. They may
        be absent, here and at prediction.
    target : str or int, optional
        The column to predict. It is not used, and may be absent.
    decimal : {".", ","}, default="."
        The decimal separator of columns such as 1,234 and 5,678, if no other column of the table
        tells it. `RawTable.decimal` has that of a file.
    min_frequency : int, default=5
        The least number of rows of a value of a category that gets a column of its own. Smaller
        numbers keep rare values apart, with more columns.
    max_text_features : int, default=20000
        The most words per text column: the most frequent ones.
    max_dense_features : int, default=500
        The most columns of a dense output.

    Attributes
    ----------
    columns_ : list of Column
        What was decided about each column.
    features_ : list of Feature
        The columns of the output: their names, and the original columns and units.
    feature_names_in_ : ndarray of shape (n_columns,)
        The names of the columns of the table.
    n_rows_ : int
        The number of its rows.
    encoder_ : ColumnTransformer
        The fitted transformers.
    is_sparse_ : bool
        Whether the output is sparse.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.tables import TableVectoriser
    >>> frame = pd.DataFrame({"size": ["1,5", "2,5", "", "1,0"] * 5, "kind": list("abab") * 5})
    >>> model = make_pipeline(TableVectoriser(), MarginPursuitClassifier())
    >>> model.fit(frame, [0, 1, 0, 1] * 5).predict(frame[:2])
    array([0, 1])
    >>> model[0].get_feature_names_out().tolist()
    ['size', 'size is missing', 'kind = b']
    """

    def __init__(
        self,
        *,
        numeric: Sequence[str | int] = (),
        categorical: Sequence[str | int] = (),
        text: Sequence[str | int] = (),
        drop: Sequence[str | int] = (),
        ids: Sequence[str | int] = (),
        target: str | int | None = None,
        decimal: str = ".",
        min_frequency: int = 5,
        max_text_features: int = 20_000,
        max_dense_features: int = 500,
    ) -> None:
        self.numeric = numeric
        self.categorical = categorical
        self.text = text
        self.drop = drop
        self.ids = ids
        self.target = target
        self.decimal = decimal
        self.min_frequency = min_frequency
        self.max_text_features = max_text_features
        self.max_dense_features = max_dense_features

    def fit(self, X: Any, y: Any = None) -> "TableVectoriser":
        """Infer the kinds of the columns and fit their encodings.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame or array-like of shape (n_samples, n_columns)
            The table.
        y : object
            Ignored.

        Returns
        -------
        self : TableVectoriser
            The fitted transformer.
        """
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit the transformer, and return the matrix of the same table.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame or array-like of shape (n_samples, n_columns)
            The table.
        y : object
            Ignored.

        Returns
        -------
        ndarray or sparse matrix of shape (n_samples, n_features)
            The matrix.
        """
        frame = as_frame(X)
        self.columns_ = self.describe(frame)
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = frame.shape[1]
        self.n_rows_ = len(frame)
        parsed = self._parsed(frame)
        if not parsed.shape[1]:
            raise TableError(
                "no column is left: " + "; ".join(map(str, self.columns_)) + ". Name the kind of a "
                "column to keep it."
            )
        self.encoder_ = self._encoder(parsed)
        with config_context(transform_output="default"):  # its steps return sparse matrices
            matrix = self.encoder_.fit_transform(parsed)
        self.is_sparse_ = bool(matrix.shape[1] > self.max_dense_features)
        self.features_ = describe_features(self.encoder_)
        return self._output(matrix)

    def transform(self, X: Any) -> Any:
        """Return the matrix of a table.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame or array-like of shape (n_samples, n_columns)
            The table. Columns are found by name; further columns are ignored.

        Returns
        -------
        ndarray or sparse matrix of shape (n_samples, n_features)
            The matrix.
        """
        check_is_fitted(self, "encoder_")
        frame = as_frame(X)
        missing = self.differences(frame).missing
        if missing and not hasattr(X, "columns"):
            raise TableError(
                f"X is of type {type(X).__name__}, which has no names of columns; expected a data "
                f"frame with the {counted(len(self.used_columns), 'column')} of the fit"
            )
        if missing:
            raise TableError(
                f"the table lacks {len(missing)} of {len(self.used_columns)} columns: "
                f"{', '.join(map(repr, missing))}; it has {listed(frame.columns.tolist())}"
            )
        with warnings.catch_warnings(), config_context(transform_output="default"):
            # New values are counted by `unknown_values`.
            warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
            parsed = self._parsed(frame)
            self._warn_unreadable(frame, parsed)
            return self._output(self.encoder_.transform(parsed))

    def _warn_unreadable(self, frame: Any, parsed: Any) -> None:
        """Warn of columns that have text in some cells, but in none of them a number or date.

        One such cell among several rows is not a sign of another format.
        """
        for column in self.used_columns:
            was_read = column.n_missing < self.n_rows_
            # Not of a category: missing text is empty.
            if was_read and parsed[column.name].isna().all():
                rows = unreadable_rows(frame[column.name], column)
                if len(rows) >= min(2, len(frame)):
                    cell = str(frame[column.name].iloc[rows[0]])[:40]
                    warnings.warn(
                        f"column {column.name!r}: no cell can be read as a "
                        f"{expected_cells(column)}, such as {cell!r}; all count as missing, "
                        "unlike in the fit. Write them as in the table of the fit.",
                        UserWarning,
                        stacklevel=4,
                    )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of the output.

        Parameters
        ----------
        input_features : object
            Ignored.

        Returns
        -------
        ndarray of shape (n_features,)
            The names.
        """
        check_is_fitted(self, "features_")
        return np.array([feature.name for feature in self.features_], dtype=object)

    def describe(self, X: Any) -> list[Column]:
        """Return what `fit` decides about the columns of a table, without encoding them.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame or array-like of shape (n_samples, n_columns)
            The table.

        Returns
        -------
        list of Column
            The columns.
        """
        if self.decimal not in (".", ","):
            raise TableError(f"decimal must be '.' or ','; got {self.decimal!r}")
        frame = as_frame(X)
        return infer_columns(frame, self._named_kinds(frame.columns.tolist()), self.decimal)

    @property
    def used_columns(self) -> list[Column]:
        """The columns that are not dropped."""
        check_is_fitted(self, "columns_")
        return [column for column in self.columns_ if column.kind != "dropped"]

    def differences(self, X: Any) -> ColumnDifferences:
        """Return how the columns of a table differ from those of the fit.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame or array-like of shape (n_samples, n_columns)
            The table.

        Returns
        -------
        ColumnDifferences
            Missing columns, further columns, and whether the order is another one.
        """
        names = as_frame(X).columns.tolist()
        used = [column.name for column in self.used_columns]
        fitted = set(self.feature_names_in_.tolist())
        return ColumnDifferences(
            tuple(name for name in used if name not in names),
            tuple(name for name in names if name not in fitted),
            [name for name in names if name in used] != [name for name in used if name in names],
        )

    def unknown_values(self, X: Any) -> dict[str, int]:
        """Return how many cells of each column are not readable or have a new value.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame or array-like of shape (n_samples, n_columns)
            The table.

        Returns
        -------
        dict
            From columns to numbers of cells, without columns that have none.
        """
        return {name: len(rows) for name, rows in self.unknown_rows(X).items()}

    def empty_columns(self, X: Any) -> list[str]:
        """Return the used columns of a table that have no value in any row.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame or array-like of shape (n_samples, n_columns)
            The table.

        Returns
        -------
        list of str
            The names of the columns.
        """
        frame = as_frame(X)
        columns = [frame[column.name] for column in self.used_columns]
        for n_rows in (100, len(frame)):  # most columns have a value in the first rows
            columns = [cells for cells in columns if not text_cells(cells[:n_rows]).present[0]]
        return [str(cells.name) for cells in columns]

    def unknown_rows(self, X: Any) -> dict[str, NDArray[np.intp]]:
        """Return the rows in which a cell is not readable or has a new value, by column.

        Parameters
        ----------
        X : pandas.DataFrame, polars.DataFrame or array-like of shape (n_samples, n_columns)
            The table.

        Returns
        -------
        dict
            From columns to rows, counted from 0, without columns that have none.
        """
        check_is_fitted(self, "encoder_")
        frame = as_frame(X)
        known = {
            name: set(map(str, categories))
            for kind, encoder, names in self.encoder_.transformers_
            if kind == "category"
            for name, categories in zip(names, encoder.categories_, strict=True)
        }
        found = {}
        for column in self.used_columns:
            rows = unreadable_rows(frame[column.name], column)
            if column.kind == "category":
                text = text_cells(frame[column.name])
                is_new = np.array([value not in known[column.name] for value in text.values], bool)
                rows = np.flatnonzero(is_new[text.codes])
            if len(rows):
                found[column.name] = rows
        return found

    def _named_kinds(self, names: list[str]) -> dict[str, str]:
        """Return the kinds that the user chose, by column."""
        chosen: dict[str, str] = {}
        groups = {"number": "numeric", "category": "categorical", "text": "text"}
        for kind, option in groups.items():
            for name in self._names(option):
                if name not in names:
                    raise TableError(absent_columns([name], names))
                if chosen.setdefault(name, kind) != kind:
                    raise TableError(f"column {name!r} is chosen as {chosen[name]} and as {kind}")
        target = () if self.target is None else (str(self.target),)
        unused = (*self._names("drop"), *self._names("ids"), *target)
        return chosen | dict.fromkeys(unused, "dropped")

    def _names(self, option: str) -> list[str]:
        """Return the columns that a parameter names, as text like those of the table."""
        given = getattr(self, option)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise TableError(
                f"{option} must be a sequence of names; got {given!r}; write [{given!r}]"
            )
        return [str(name) for name in given]

    def _parsed(self, frame: Any) -> Any:
        """Return the cells of the used columns as numbers, dates or text."""
        pandas = optional("pandas")
        cells = {}
        for column in self.used_columns:
            values = parse(frame[column.name], column)
            is_text = column.kind in ("category", "text")
            cells[column.name] = pandas.Series(values, frame.index, object) if is_text else values
        return pandas.DataFrame(cells, index=frame.index)

    def _encoder(self, parsed: Any) -> ColumnTransformer:
        """Return the unfitted transformers of the used columns."""
        by_kind: dict[str, list[str]] = {"number": [], "category": [], "date": [], "text": []}
        for column in self.used_columns:
            by_kind[column.kind].append(column.name)
        transformers: list[tuple[str, Any, Any]] = []
        if by_kind["number"]:
            transformers.append(("number", _standardised(), by_kind["number"]))
        if by_kind["category"]:
            one_hot = OneHotEncoder(
                min_frequency=self.min_frequency,
                handle_unknown="infrequent_if_exist",
                drop="if_binary",
            )
            transformers.append(("category", one_hot, by_kind["category"]))
        for name in by_kind["date"]:
            transformers.append((f"date {name}", self._date_encoder(parsed[name]), name))
        for name in by_kind["text"]:
            transformers.append((f"text {name}", self._text_encoder(parsed[name]), name))
        return ColumnTransformer(transformers, sparse_threshold=1.0)

    def _date_encoder(self, dates: Any) -> Pipeline:
        has_times = bool((dates.dropna() != dates.dropna().dt.normalize()).any())
        encoder = optional("skrub").DatetimeEncoder(
            resolution="minute" if has_times else "day", add_weekday=True
        )
        return make_pipeline(encoder, *(step for _, step in _standardised().steps))

    def _text_encoder(self, cells: Any) -> TfidfVectorizer:
        """Words that are in one row only are omitted, unless no other is left."""
        for min_df in (2, 1):
            encoder = TfidfVectorizer(
                sublinear_tf=True,
                strip_accents="unicode",
                min_df=min_df,
                max_features=self.max_text_features,
            )
            try:
                encoder.fit(cells)
            except ValueError:  # no words are left
                continue
            return encoder
        raise TableError(
            f"column {cells.name!r}: expected text, found no words. Choose --categorical or --drop."
        )

    def _output(self, matrix: Any) -> Any:
        if self.is_sparse_:
            return sparse.csr_array(matrix, dtype=np.float64)
        return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)


def _standardised() -> Pipeline:
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    return make_pipeline(imputer, StandardScaler())


def as_frame(X: Any) -> Any:
    """Return a table as a pandas frame whose names are text."""
    pandas = optional("pandas")
    refuse_lazy("X", X)
    if isinstance(X, str | os.PathLike):
        raise TableError(
            f"X is the name {str(X)!r}; expected a data frame. Read the file with "
            f"marginpursuit.tables.read_frame({str(X)!r}).frame"
        )
    if sparse.issparse(X):
        raise TableError(
            "X is a sparse matrix; expected a data frame. A matrix of numbers needs no "
            "TableVectoriser."
        )
    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    elif not isinstance(X, pandas.DataFrame):
        cells = np.asarray(X)
        if cells.ndim not in (1, 2):
            raise TableError(
                f"X is of type {type(X).__name__} with {cells.ndim} dimensions; expected a data "
                "frame, or an array of two dimensions. Pass a dict as pandas.DataFrame(X)."
            )
        X = pandas.DataFrame(cells)
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f"the table has several columns {twice!r}; expected different names")
    if not len(X):
        raise TableError("the table has no rows; expected at least one")
    return X.set_axis(names, axis=1)
