"""The columns of a vectorised table: names, original columns and units."""

from dataclasses import replace
from typing import Any

from marginpursuit._table_records import Feature

__all__ = ["describe_features"]


def describe_features(encoder: Any) -> list[Feature]:
    """Return the features of a fitted `ColumnTransformer` of `TableVectoriser`, in order."""
    features: list[Feature] = []
    for title, transformer, names in encoder.transformers_:
        kind = title.partition(" ")[0]
        if kind == "number":
            features += _standardised(names, names, transformer)
        elif kind == "category":
            features += _categories(names, transformer)
        elif kind == "date":
            features += _date_parts(names, transformer)
        elif kind == "text":
            words = transformer.get_feature_names_out()
            features += [Feature(f"{names}: {word}", names, "word") for word in words]
    return features


def _standardised(titles: list[str], names: list[str], pipeline: Any) -> list[Feature]:
    """Return the features of imputed and standardised columns; indicators come last."""
    imputer, scaler = pipeline[-2], pipeline[-1]
    scales = scaler.scale_.tolist()
    features = [
        Feature(title, name, "+1", scale)
        for title, name, scale in zip(titles, names, scales[: len(titles)], strict=True)
    ]
    missing = [] if imputer.indicator_ is None else imputer.indicator_.features_.tolist()
    for number, scale in zip(missing, scales[len(titles) :], strict=True):
        features.append(Feature(f"{titles[number]} is missing", names[number], "missing", scale))
    return features


def _categories(names: list[str], encoder: Any) -> list[Feature]:
    """Return the features of the categories; the first of two values has none of its own."""
    features = []
    for number, name in enumerate(names):
        values = encoder.categories_[number]
        rare = encoder.infrequent_categories_[number]
        frequent = [value for value in values if rare is None or value not in set(rare)]
        shown = [f"{name} = {value}" if value else f"{name} is missing" for value in frequent]
        if rare is not None:
            shown.append(f"{name} = (rare)")
        if len(shown) == 2:
            shown = shown[1:]
        features += [Feature(title, name, "= value") for title in shown]
    return features


def _date_parts(name: str, pipeline: Any) -> list[Feature]:
    """Return the features of a date; time in seconds is described in years."""
    parts = pipeline[0].extracted_features_
    year = 365.25 * 24 * 3600.0
    names = ["time in years" if part == "total_seconds" else part for part in parts]
    titles = [f"{name}: {part}" for part in names]
    found = _standardised(titles, [name] * len(parts), pipeline)
    return [
        replace(feature, scale=feature.scale / year)
        if feature.name == f"{name}: time in years"
        else feature
        for feature in found
    ]
