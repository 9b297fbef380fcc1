"""A linear classifier as values of JSON, and back."""

from dataclasses import fields
from reprlib import repr as short
from typing import Any

import numpy as np

from marginpursuit._model_encoding import check_fitted_model
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._shared import (
    ExactLabelLink,
    ExactLink,
    FittedLink,
    LabelLinks,
    Link,
)
from marginpursuit.export._linear_model import LinearModel
from marginpursuit.losses import JointLoss, MarginLoss

FORMAT, VERSION = "marginpursuit linear model", 1

# The links that consist of numbers, by the name of their formula.
_RECORDS: dict[str, Any] = {"piecewise_linear": FittedLink, "logistic": LabelLinks}


def content_of(model: LinearModel) -> dict[str, Any]:
    """Return a model as numbers, text, lists and dicts."""
    names = model.feature_names
    return {
        "format": FORMAT,
        "version": VERSION,
        "classes": model.labels,
        "several_labels": model.has_label_sets,
        "feature_names": None if names is None else list(names),
        "coef": model.coef.tolist(),
        "intercept": model.intercept.tolist(),
        "link": None if model.link is None else _link_content(model.link),
    }


def _link_content(link: Link) -> dict[str, Any]:
    for kind, record in _RECORDS.items():
        if isinstance(link, record):
            values = {name: getattr(link, name) for name in _fields(record)}
            return {"kind": kind} | {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in values.items()
            }
    assert isinstance(link, ExactLink | ExactLabelLink), type(link)
    if isinstance(link.loss, JointLoss):
        content = {"kind": "exact_joint", "temperature": link.loss.temperature}
        return content | _loss_content(link.loss.loss)
    return {"kind": "exact"} | _loss_content(link.loss)


def _fields(record: Any) -> list[str]:
    return [field.name for field in fields(record)]


def _loss_content(loss: MarginLoss) -> dict[str, Any]:
    return {"rho": loss.rho_function.name, "margin": loss.margin, "scale": loss.scale}


def classifier_of(content: Any) -> MarginPursuitClassifier:
    """Return a fitted classifier from what `content_of` returned; refuse anything else."""
    found = content
    if isinstance(content, dict):
        found = (content.get("format"), content.get("version"))
    if found != (FORMAT, VERSION):
        raise ValueError(
            f"got {short(found)}; expected a dict that to_dict returned, with the format "
            f"{FORMAT!r} and the version {VERSION}"
        )
    try:
        model = _classifier(content)
        check_fitted_model(model)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"got a dict that does not describe a linear model: {reason}. Pass the dict that "
            "to_dict returned."
        ) from error
    return model


def _classifier(content: dict[str, Any]) -> MarginPursuitClassifier:
    model = MarginPursuitClassifier(probability=None)
    model.classes_ = np.array(content["classes"])
    model.coef_ = np.array(content["coef"], dtype=np.float64)
    model.intercept_ = np.array(content["intercept"], dtype=np.float64)
    if model.coef_.ndim != 2:
        raise ValueError(f"its coefficients have {model.coef_.ndim} dimensions; expected 2")
    model.n_features_in_ = int(model.coef_.shape[1])
    model.multilabel_ = content["several_labels"]
    model.multi_class_, model.scale_ = "ovr", 1.0
    if content["feature_names"] is not None:
        model.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    if content["link"] is not None:
        _set_link(model, content["link"])
    return model


def _set_link(model: MarginPursuitClassifier, link: dict[str, Any]) -> None:
    """Set the parameters and attributes that `predict_proba` reads."""
    kind = link["kind"]
    if kind in _RECORDS:
        record = _RECORDS[kind]
        values = {name: link[name] for name in _fields(record)}
        model.link_ = record(
            **{
                name: np.array(value, dtype=np.float64) if isinstance(value, list) else float(value)
                for name, value in values.items()
            }
        )
        margin = getattr(model.link_, "margin", 1.0)
        model.set_params(margin=margin, scale=margin, probability="held_out")
    elif kind in ("exact", "exact_joint"):
        names = ("rho", "margin", "scale")
        model.set_params(probability="exact", **{name: link[name] for name in names})
        model.multi_class_ = "joint" if kind == "exact_joint" else "ovr"
    else:
        kinds = [*_RECORDS, "exact", "exact_joint"]
        raise ValueError(f"its link has the kind {short(kind)}; expected one of {kinds}")
    model.scale_ = float(model.scale)
