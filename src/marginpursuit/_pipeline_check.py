"""A trial of pipelines from files: rows that use every stored value must be predicted.

A file whose hashes are correct may still hold values that do not belong together. The trial builds
rows that use each category, each word and each number of the transformers, and predicts them.
"""

import math
import warnings
from typing import Any

import numpy as np
from scipy import sparse

from marginpursuit._model_encoding import CLASSES, ModelFileError

__all__ = ["check_pipeline"]


def check_pipeline(pipeline: Any) -> None:
    """Predict example rows; raise a ModelFileError if that fails."""
    classifier = pipeline.steps[-1][1]
    if CLASSES.get(type(classifier).__name__) is not type(classifier):
        raise ModelFileError(
            f"the last step of its pipeline is a {type(classifier).__name__}; expected one of "
            f"{sorted(CLASSES)}"
        )
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            _predict_examples(pipeline, classifier)
    except (MemoryError, ModelFileError):
        raise
    except Exception as error:  # transformers raise many types for inconsistent values
        raise ModelFileError(
            f"its pipeline cannot predict; it is damaged, or written with other versions of "
            f"scikit-learn or skrub: {error!r}"
        ) from error


def _predict_examples(pipeline: Any, classifier: Any, chunk: int = 64) -> None:
    rows = _example(pipeline)
    n_rows = len(rows) if isinstance(rows, list) else rows.shape[0]
    for start in range(0, n_rows, chunk):
        part = rows[start : start + chunk]
        matrix = part
        for _, step in pipeline.steps[:-1]:
            matrix = matrix if step == "passthrough" else step.transform(matrix)
        values = getattr(matrix, "data", matrix) if sparse.issparse(matrix) else matrix
        if not np.isfinite(np.asarray(values, dtype=float)).all():
            raise ModelFileError("its pipeline returns values that are not finite")
        n_found = min(chunk, n_rows - start)
        labels = (len(classifier.classes_),) if getattr(classifier, "multilabel_", False) else ()
        if (
            classifier.predict(matrix).shape != (n_found, *labels)
            or pipeline.predict(part).shape[0] != n_found
        ):
            raise ModelFileError("its pipeline does not predict a class, or its labels, per row")


def _example(estimator: Any) -> Any:
    """Return rows that use the stored values of a fitted transformer."""
    name = type(estimator).__name__
    if name == "Pipeline":
        first = next((step for _, step in estimator.steps if step != "passthrough"), None)
        return _example(first)
    if name == "FeatureUnion":
        return _example(estimator.transformer_list[0][1])
    if name == "TableVectoriser":
        return _table_example(estimator)
    if name == "ColumnTransformer":
        return _columns_example(estimator)
    if name in ("OneHotEncoder", "OrdinalEncoder"):
        return _stacked([list(values) for values in estimator.categories_])
    if name in ("TfidfVectorizer", "CountVectorizer"):
        return [" ".join(map(str, estimator.vocabulary_)), ""]
    if name == "HashingVectorizer":
        return ["a word", ""]
    return np.zeros((2, _count(estimator.n_features_in_)))


def _count(value: Any, most: int = 10**7) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ModelFileError(f"a transformer has {value!r} columns")
    return value


def _stacked(columns: list[list[Any]]) -> Any:
    """Return an array of objects; shorter columns repeat their values."""
    n_rows = max(2, *map(len, columns))
    rows = np.empty((n_rows, len(columns)), dtype=object)
    for number, values in enumerate(columns):
        repeated = values * math.ceil(n_rows / len(values))
        rows[:, number] = repeated[:n_rows]
    return rows


def _columns_example(estimator: Any) -> Any:
    """Return rows for a `ColumnTransformer`, from those of its transformers."""
    names = getattr(estimator, "feature_names_in_", None)
    n_columns = _count(estimator.n_features_in_)
    cells: list[list[Any]] = [[0.0, 0.0] for _ in range(n_columns)]
    for title, step, _ in estimator.transformers_:
        if isinstance(step, str):
            continue
        rows = _example(step)
        places = estimator._transformer_to_input_indices[title]
        table = [[row] for row in rows] if isinstance(rows, list) else rows.tolist()
        for number, place in enumerate(places):
            cells[place] = [row[number] for row in table]
    stacked = _stacked(cells)
    if names is None:
        return stacked
    import pandas

    frame = pandas.DataFrame(stacked, columns=names)
    return frame.infer_objects()


def _table_example(vectoriser: Any) -> Any:
    """Return rows for a `TableVectoriser`: each category, each word, missing and odd cells."""
    import pandas

    known: dict[str, list[str]] = {}
    for title, encoder, names in vectoriser.encoder_.transformers_:
        if title == "category":
            for name, values in zip(names, encoder.categories_, strict=True):
                known[name] = [str(value) for value in values]
        elif title.startswith("text "):
            known[names] = [" ".join(map(str, encoder.vocabulary_))]
    odd = ["", "\0", "0", "1", "2001-02-03", "03.02.2001", "1.000,5"]
    columns = vectoriser.used_columns
    cells = [known.get(column.name, []) + odd + _date(column) for column in columns]
    frame = pandas.DataFrame(_stacked(cells), columns=[column.name for column in columns])
    if len(vectoriser.features_) != vectoriser.transform(frame[:1]).shape[1]:
        raise ModelFileError("the features of its table do not match its columns")
    return frame


def _date(column: Any) -> list[str]:
    import pandas

    date = pandas.Timestamp(2001, 2, 3, 4, 5, 6)
    return [date.strftime(column.date_format)] if column.date_format else []
