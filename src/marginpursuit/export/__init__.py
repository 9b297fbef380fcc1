"""Fitted linear classifiers for other systems: JSON, a query in SQL, a file of C, a torch module.

All of them contain the scores, the decision and the probabilities of `predict_proba`, by the link
of the fit. Each function takes a fitted linear classifier of this library, or a Pipeline of one
after `StandardScaler`, `MinMaxScaler`, `MaxAbsScaler` or `RobustScaler`, which become part of the
coefficients. For ONNX see :mod:`marginpursuit.onnx`.
"""

import re
from collections.abc import Sequence
from typing import Any

from marginpursuit._kernels import Descent
from marginpursuit._model_encoding import CLASSES
from marginpursuit.bounds.dual import LeaveOneOutBound
from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._shared import (
    FittedLink,
    LabelLinks,
    MarginStatistics,
    TrainingData,
)
from marginpursuit.export._c import source
from marginpursuit.export._json import classifier_of, content_of
from marginpursuit.export._linear_model import LinearModel
from marginpursuit.export._sql import DIALECTS, query
from marginpursuit.losses import HingeLoss, MarginLoss
from marginpursuit.tasks import Labels

__all__ = ["from_dict", "from_torch", "to_c", "to_dict", "to_sql", "to_torch", "trusted_types"]


def to_dict(model: Any) -> dict[str, Any]:
    r"""Return a model as numbers, text, lists and dicts, which `json.dumps` accepts.

    The keys are `classes`, `several_labels`, `feature_names` or None, `coef`, one list for each
    score, `intercept`, and `link` or None. Scores are u = x·coef + intercept. The key `kind` of the
    link says which formula gives the probabilities:

    - "piecewise_linear": (1 - ε) p + ε/K for K classes, with ε = `smoothing` and p the softmax of
      f(u), where :math:`f(u) = a_1 \min(u - l, 0) + a_2 \min(\max(u, l), 0) + a_3 \max(\min(u, h),
      0) + a_4 \max(u - h, 0)` with `slopes` a and l, h = ∓ `margin` - `threshold`; of two
      classes, the first has f = 0;
    - "logistic": 1/(1 + exp(-(`offset` + `slopes` u))) of each label;
    - "exact" and "exact_joint": the links of :class:`~marginpursuit.losses.MarginLoss` and
      :class:`~marginpursuit.losses.JointLoss`.

    Parameters
    ----------
    model : estimator
        A fitted linear classifier, or a Pipeline of scalers and one.

    Returns
    -------
    dict
        The model.

    Examples
    --------
    >>> import json
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.export import from_dict, to_dict
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> text = json.dumps(to_dict(model))
    >>> again = from_dict(json.loads(text))
    >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    return content_of(LinearModel.of(model))


def from_dict(content: dict[str, Any]) -> MarginPursuitClassifier:
    """Return a fitted classifier with the predictions of the model that `to_dict` got.

    Its class is `MarginPursuitClassifier`, whatever that of the model was. Attributes that no
    prediction needs, such as the statistics of the margins, are missing.

    Parameters
    ----------
    content : dict
        What `to_dict` returned. Its values are checked; it may be of unknown origin.

    Returns
    -------
    MarginPursuitClassifier
        The classifier.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.export import from_dict, to_dict
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> bool((from_dict(to_dict(model)).predict(X) == model.predict(X)).all())
    True
    """
    return classifier_of(content)


def to_sql(
    model: Any,
    table: str | Sequence[str],
    *,
    features: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    dialect: str = "standard",
) -> str:
    """Return a query in SQL that predicts every row of a table.

    Its columns are those of `keep`, then `prediction`, `score` (or `score_A`, ... with more than
    two classes) and `probability_A`, ... for the classes A, .... Several labels have
    `prediction_A`, ... with 1 and 0. Where a feature is NULL, all of them are NULL.

    Parameters
    ----------
    model : estimator
        A fitted linear classifier, or a Pipeline of scalers and one.
    table : str or sequence of str
        The table; ("schema", "name") for a qualified name. Names are quoted.
    features : sequence of str, optional
        The columns of the features. By default those of the data frame that the model was fitted
        to.
    keep : sequence of str, default=()
        Columns of the table that the query returns too, such as a key.
    dialect : {"standard", "postgresql", "sqlite"}, default="standard"
        "standard" has LEAST and GREATEST, as DuckDB, Snowflake, Oracle and others have.
        "postgresql" also marks the steps of the query as MATERIALIZED (PostgreSQL 12). "sqlite"
        has MIN and MAX (SQLite 3.35, with its mathematical functions).

    Returns
    -------
    str
        A SELECT statement.

    Examples
    --------
    >>> import sqlite3
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.export import to_sql
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X[:, 2:], y)
    >>> query = to_sql(model, "iris", features=["length", "width"], dialect="sqlite")
    >>> database = sqlite3.connect(":memory:")
    >>> _ = database.execute("CREATE TABLE iris (length REAL, width REAL)")
    >>> _ = database.executemany("INSERT INTO iris VALUES (?, ?)", X[::50, 2:].tolist())
    >>> [row[0] for row in database.execute(query)]
    [0, 1, 2]
    >>> database.close()
    """
    if dialect not in DIALECTS:
        raise ValueError(f"dialect must be one of {list(DIALECTS)}; got {dialect!r}")
    linear = LinearModel.of(model)
    names = linear.feature_names if features is None else features
    if names is None or len(names) != linear.n_features:
        given = "none" if names is None else f"{len(names)}"
        raise ValueError(
            f"features must name the {linear.n_features} columns of the model; got {given}. Pass "
            "features=[...], or fit to a data frame."
        )
    parts = [table] if isinstance(table, str) else list(table)
    return query(linear, parts, names, list(keep), DIALECTS[dialect])


def to_c(model: Any, name: str = "model") -> str:
    """Return a file of C99 with the functions of a model, which needs the standard library only.

    - ``int NAME_scores(const double *x, double *scores)``;
    - ``int NAME_predict(const double *x)``, the number of the class in ``NAME_classes``, or
      ``int NAME_predict(const double *x, int *labels)`` for several labels;
    - ``int NAME_probabilities(const double *x, double *probabilities)``, if the model has them.

    Where a value of x is not finite they return -1 and set their results to NaN, or labels to -1.

    Parameters
    ----------
    model : estimator
        A fitted linear classifier, or a Pipeline of scalers and one.
    name : str, default="model"
        The beginning of all names in the file.

    Returns
    -------
    str
        The text of the file.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.export import to_c
    >>> model = MarginPursuitClassifier().fit(*load_iris(return_X_y=True))
    >>> "int iris_predict(const double *x)" in to_c(model, "iris")
    True
    """
    if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII)):
        raise ValueError(
            f"name must be an identifier of C: letters, digits and _, a letter first; got {name!r}"
        )
    return source(LinearModel.of(model), name)


def to_torch(model: Any, *, dtype: Any = None) -> Any:
    """Return a module of PyTorch with the layers `linear` and `link`.

    Its result are the probabilities of `predict_proba`; `module.linear` returns the scores. Where
    the model has no probabilities, the result are the scores. Gradients flow through both layers.

    Parameters
    ----------
    model : estimator
        A fitted linear classifier, or a Pipeline of scalers and one.
    dtype : torch.dtype, optional
        The type of coefficients, input and result; float64 by default. The link is evaluated in
        float64.

    Returns
    -------
    torch.nn.Sequential
        The module.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from sklearn.datasets import load_iris
    >>> from marginpursuit import MarginPursuitClassifier
    >>> from marginpursuit.export import from_torch, to_torch
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MarginPursuitClassifier().fit(X, y)
    >>> module = to_torch(model)  # doctest: +SKIP
    >>> module(torch.from_numpy(X)).shape  # doctest: +SKIP
    torch.Size([150, 3])
    >>> bool((from_torch(module).predict(X) == model.predict(X)).all())  # doctest: +SKIP
    True
    """
    return _torch_functions("to_torch").module_of(LinearModel.of(model), dtype)


def from_torch(
    module: Any,
    *,
    classes: Sequence[Any] | None = None,
    margin: float = 1.0,
    scale: float = 1.0,
    rho: str = "catoni",
) -> MarginPursuitClassifier:
    """Return a fitted classifier from a module of PyTorch.

    Parameters
    ----------
    module : torch.nn.Module
        A module that `to_torch` returned, which may have been trained since. Or a
        ``torch.nn.Linear`` with one score for two classes, or one for each class, trained with
        :func:`marginpursuit.interop.torch_loss`; probabilities are then by the exact link of the
        loss.
    classes : sequence, optional
        The classes in increasing order; by default those of `to_torch`, or 0, 1, ....
    margin : float, default=1.0
        The level γ of the loss of a ``torch.nn.Linear``.
    scale : float, default=1.0
        Its scale s.
    rho : str, default="catoni"
        Its function ρ, a name in :data:`~marginpursuit.losses.RHOS`.

    Returns
    -------
    MarginPursuitClassifier
        The classifier, as `from_dict` returns it.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from marginpursuit.export import from_torch
    >>> layer = torch.nn.Linear(4, 3)  # doctest: +SKIP
    >>> from_torch(layer, classes=["a", "b", "c"]).classes_.tolist()  # doctest: +SKIP
    ['a', 'b', 'c']
    """
    loss = MarginLoss(margin, scale, 0.0, rho)
    return classifier_of(content_of(_torch_functions("from_torch").model_of(module, classes, loss)))


def trusted_types() -> list[str]:
    """Return the names of the classes of this library that a fitted classifier may contain.

    ``skops.io.load(file, trusted=trusted_types())`` and the parameter `skops_trusted_types` of
    mlflow accept them. A scorer of scikit-learn in a search is not among them: pass the names that
    ``skops.io.get_untrusted_types`` returns, after a look at each.

    Returns
    -------
    list of str
        Names with their modules.

    Examples
    --------
    >>> from marginpursuit.export import trusted_types
    >>> "marginpursuit.classifiers.margin_pursuit.MarginPursuitClassifier" in trusted_types()
    True
    """
    records = (FittedLink, LabelLinks, MarginStatistics, LeaveOneOutBound)
    streams = (TrainingData, Labels, Descent, HingeLoss)  # the state of `partial_fit`
    kinds: list[type] = [*CLASSES.values(), *records, *streams]
    return sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


def _torch_functions(function: str) -> Any:
    """Return the functions for PyTorch, which import it."""
    try:
        from marginpursuit.export import _torch_module
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{function} needs the package {error.name}, which is not installed. Install the "
            "extra: pip install 'marginpursuit[torch]'",
            name=error.name,
        ) from error
    return _torch_module
