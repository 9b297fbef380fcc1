"""Linear classifiers as JSON, SQL and C: predictions of the exported model are those of the fit."""

import ctypes
import json
import shutil
import sqlite3
import subprocess

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from random_models import random_model, random_models, random_rows
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

from marginpursuit import (
    LDMClassifier,
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    load_model,
    save_model,
)
from marginpursuit.export import from_dict, to_c, to_dict, to_sql

X, Y = load_iris(return_X_y=True)
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def has_functions():
    database = sqlite3.connect(":memory:")
    options = {row[0] for row in database.execute("PRAGMA compile_options")}
    database.close()
    return "ENABLE_MATH_FUNCTIONS" in options and sqlite3.sqlite_version_info >= (3, 35)


needs_functions = pytest.mark.skipif(
    not has_functions(), reason="SQLite is older than 3.35 or has no mathematical functions"
)


def scores_of(model, rows):
    return model.decision_function(rows).reshape(len(rows), -1)


def assert_same_predictions(found, model, rows, rtol=1e-9):
    labels, scores, probabilities = found
    assert_array_equal(labels, model.predict(rows))
    assert_allclose(scores, scores_of(model, rows), rtol=rtol, atol=1e-12)
    if hasattr(model, "predict_proba"):
        assert_allclose(probabilities, model.predict_proba(rows), rtol=rtol, atol=1e-9)
    else:
        assert probabilities is None


# --- JSON -------------------------------------------------------------------------------------


def through_json(model):
    return from_dict(json.loads(json.dumps(to_dict(model), allow_nan=False)))


def by_numpy(model, rows):
    has_link = hasattr(model, "predict_proba")
    probabilities = model.predict_proba(rows) if has_link else None
    return model.predict(rows), scores_of(model, rows), probabilities


def test_dicts_of_random_models_have_the_same_predictions():
    rng = np.random.default_rng(0)
    for model in random_models(1):
        rows = random_rows(rng, model)
        assert_same_predictions(by_numpy(through_json(model), rows), model, rows, rtol=0)


@pytest.mark.parametrize(
    "model",
    [
        MarginPursuitClassifier(),
        MarginPursuitClassifierCV(cv=2, alphas=[1e-3], scales=[1.0]),
        MarginPursuitClassifierCV(cv=2, alphas=[1e-3], scales=[1.0], link="exact"),
        LDMClassifier(probability="held_out"),
    ],
    ids=lambda model: str(model)[:60],
)
def test_dicts_of_fits_become_classifiers_that_can_be_saved(model, tmp_path):
    frame = pd.DataFrame(X, columns=["a", 'b"', "c", "d"])
    model.fit(frame, np.array(["x", "y", "z"])[Y])
    again = load_model(save_model(through_json(model), tmp_path / "model"))
    assert_same_predictions(by_numpy(again, frame), model, frame, rtol=0)
    assert again.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    assert through_json(again).get_params() == again.get_params()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"got \('marginpursuit linear model', 2\); expected a dict that to_dict"),
        ({"coef": [[1.0]]}, "its coefficients have shape"),
        ({"coef": [1.0]}, "its coefficients have 1 dimensions; expected 2"),
        ({"coef": [["text"]]}, "could not convert"),
        ({"coef": [[float("inf")] * 4] * 3}, "not finite"),
        ({"intercept": [0.0]}, "its intercept has shape"),
        ({"classes": [2, 1, 0]}, "not at least two different labels in order"),
        ({"link": {"kind": "other"}}, "its link has the kind 'other'; expected one of"),
        ({"link": {"kind": "exact"}}, "'rho' is missing"),
        ({"link": {"kind": "exact", "rho": "other", "margin": 1, "scale": 1}}, "rho must be"),
    ],
)
def test_other_dicts_are_refused(change, message):
    content = to_dict(MarginPursuitClassifier().fit(X, Y)) | change
    with pytest.raises(ValueError, match=message):
        from_dict(content)


@pytest.mark.parametrize("content", [None, [], {}, {"format": "other"}])
def test_what_is_no_model_is_refused(content):
    with pytest.raises(ValueError, match="expected a dict that to_dict returned"):
        from_dict(content)


# --- pipelines --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False)],
        [StandardScaler(with_std=False)],
        [StandardScaler(with_mean=False, with_std=False)],
        [MinMaxScaler((-1, 2))],
        [MaxAbsScaler()],
        [RobustScaler()],
        [RobustScaler(with_centering=False)],
        ["passthrough", MinMaxScaler(), StandardScaler()],
    ],
    ids=str,
)
def test_scalers_become_part_of_the_coefficients(steps):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(*steps, MarginPursuitClassifier()).fit(frame, Y)
    again = through_json(model)
    assert again.feature_names_in_.tolist() == list("abcd")
    assert_same_predictions(by_numpy(again, frame), model, frame)


def test_models_that_are_not_linear_are_refused():
    model = make_pipeline(PolynomialFeatures(), MarginPursuitClassifier()).fit(X, Y)
    with pytest.raises(TypeError, match=r"step PolynomialFeatures\(\); expected a classif"):
        to_dict(model)
    with pytest.raises(ValueError, match="LDMClassifier with kernel='rbf', which has no coef"):
        to_sql(LDMClassifier(kernel="rbf").fit(X[:100], Y[:100]), "t")
    with pytest.raises(TypeError, match="got a model of type StandardScaler; expected a fitted"):
        to_c(StandardScaler())


# --- SQL --------------------------------------------------------------------------------------


def in_sqlite(model, rows, names, table="rows", keep=()):
    """The rows of the query as dicts."""
    quoted = ['"' + name.replace('"', '""') + '"' for name in (*keep, *names)]
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.execute(f'CREATE TABLE "{table}" ({", ".join(quoted)})')
    holes = ", ".join("?" * len(quoted))
    database.executemany(f'INSERT INTO "{table}" VALUES ({holes})', rows)
    query = to_sql(model, table, features=names, keep=keep, dialect="sqlite")
    found = [dict(row) for row in database.execute(query)]
    database.close()
    return found


def as_predictions(found, model):
    """The columns of a query as labels, scores and probabilities."""
    columns = {name: np.array([row[name] for row in found]) for name in found[0]}
    parts = [
        [values for name, values in columns.items() if name.startswith(prefix)]
        for prefix in ("prediction", "score", "probability")
    ]
    labels, scores, probabilities = (np.stack(part, 1) if part else None for part in parts)
    return (labels if model.multilabel_ else labels[:, 0]), scores, probabilities


@needs_functions
@pytest.mark.parametrize("seed", range(2))
def test_queries_of_random_models_have_the_same_predictions(seed):
    rng = np.random.default_rng(seed)
    for model in random_models(10 + seed):
        rows = random_rows(rng, model)
        found = in_sqlite(model, rows.tolist(), list("abcd"))
        assert_same_predictions(as_predictions(found, model), model, rows)


def test_queries_in_duckdb_have_the_same_predictions():
    duckdb = pytest.importorskip("duckdb")
    rng = np.random.default_rng(5)
    for model in random_models(5):
        rows = pd.DataFrame(random_rows(rng, model), columns=["a", 'b"', "c d", "SELECT"])
        names = rows.columns.tolist()
        query = to_sql(model, "rows", features=names)
        with duckdb.connect() as database:
            database.register("rows", rows)
            found = database.execute(query).df().to_dict("records")
        assert_same_predictions(as_predictions(found, model), model, rows.to_numpy())


@needs_functions
def test_odd_names_and_labels_are_quoted():
    names = ['a"; DROP TABLE t; --', "select", "Größe (m²)", "it's"]
    classes = ["it's", 'double "quotes"', "naïve", "a", "b"]
    frame = pd.DataFrame(X, columns=names)
    model = MarginPursuitClassifier().fit(frame, np.array(classes)[Y])
    rows = [[k, *row] for k, row in enumerate(X.tolist())]
    found = in_sqlite(model, rows, names, table="the table's name", keep=["row number"])
    assert [row["prediction"] for row in found] == model.predict(frame).tolist()
    assert [row["row number"] for row in found] == list(range(len(X)))
    assert {f"probability_{label}" for label in classes[:3]} <= found[0].keys()


@needs_functions
def test_missing_values_have_no_prediction():
    for model in (
        MarginPursuitClassifier().fit(X, Y),
        MarginPursuitClassifier(probability="exact").fit(X[:100], Y[:100]),
    ):
        found, complete = in_sqlite(model, [[5.0, None, 1.0, 1.0], X[0].tolist()], list("abcd"))
        assert set(found.values()) == {None}
        assert None not in complete.values()


@needs_functions
def test_integers_and_many_columns():
    rng = np.random.default_rng(0)
    model = random_model(rng, "fitted", "binary", n_features=1500)
    rows = rng.integers(-2, 3, size=(3, 1500))
    found = in_sqlite(model, rows.tolist(), [f"x{j}" for j in range(1500)])
    assert_same_predictions(as_predictions(found, model), model, rows)


def test_names_of_columns_are_checked():
    model = MarginPursuitClassifier().fit(X, Y)
    with pytest.raises(ValueError, match="must name the 4 columns of the model; got none"):
        to_sql(model, "t")
    with pytest.raises(ValueError, match="must name the 4 columns of the model; got 2"):
        to_sql(model, "t", features=["a", "b"])
    with pytest.raises(ValueError, match="dialect must be one of"):
        to_sql(model, "t", features=list("abcd"), dialect="other")
    with pytest.raises(ValueError, match=r"keep has the names \['prediction'\]"):
        to_sql(model, "t", features=list("abcd"), keep=["Prediction"])
    with pytest.raises(ValueError, match="null character"):
        to_sql(model, "t\0", features=list("abcd"))
    many = random_model(np.random.default_rng(0), "none", "binary", n_features=1)
    many.coef_, many.intercept_, many.classes_ = np.ones((101, 1)), np.ones(101), np.arange(101)
    with pytest.raises(ValueError, match="got 101 classes; expected at most 100"):
        to_sql(many, "t", features=["a"])
    qualified = to_sql(model, ("a", 'b"c'), features=list("abcd"), keep=["step1"])
    assert 'FROM "a"."b""c")' in qualified
    assert "step_0_0" in qualified


def test_classes_that_are_dates_are_refused():
    days = np.arange("2020-01-01", "2020-01-04", dtype="M8[D]")
    model = MarginPursuitClassifier().fit(X, days[Y])
    for export in (to_dict, to_c, lambda model: to_sql(model, "t", features=list("abcd"))):
        with pytest.raises(TypeError, match=r"dtype datetime64\[D\]; expected numbers or text"):
            export(model)


# --- C ----------------------------------------------------------------------------------------


def compiled(sources, folder):
    """The library of some C files, compiled without a warning."""
    path = folder / "models.c"
    path.write_text("\n".join(sources), encoding="utf-8")
    library = folder / "models.so"
    flags = ["-std=c99", "-O0", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *flags, "-o", library, path, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def in_c(library, name, model, rows):
    """Labels, scores and probabilities by the functions of a library."""
    function = lambda suffix: getattr(library, f"{name}_{suffix}")  # noqa: E731
    n_scores, n_classes = len(model.coef_), len(model.classes_)
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    scores, probabilities = np.empty((len(rows), n_scores)), np.empty((len(rows), n_classes))
    labels = np.empty((len(rows), n_classes if model.multilabel_ else 1), dtype=np.intc)
    pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)  # noqa: E731
    for k, row in enumerate(rows):
        assert function("scores")(pointer(row), pointer(scores[k])) == 0
        if model.multilabel_:
            assert function("predict")(pointer(row), pointer(labels[k])) == 0
        else:
            labels[k] = function("predict")(pointer(row))
        if hasattr(model, "predict_proba"):
            assert function("probabilities")(pointer(row), pointer(probabilities[k])) == 0
    found = labels if model.multilabel_ else model.classes_[labels[:, 0]]
    return found, scores, probabilities if hasattr(model, "predict_proba") else None


@needs_compiler
def test_c_functions_of_random_models_have_the_same_predictions(tmp_path):
    rng = np.random.default_rng(3)
    models = list(random_models(3))
    library = compiled([to_c(m, f"model_{k}") for k, m in enumerate(models)], tmp_path)
    for k, model in enumerate(models):
        rows = random_rows(rng, model)
        assert_same_predictions(in_c(library, f"model_{k}", model, rows), model, rows)


@needs_compiler
def test_c_tables_of_classes_and_names(tmp_path):
    rng = np.random.default_rng(0)
    texts = ['a"b\\', "??/", "naïve $name", "*/", "%d\n"]
    text = random_model(rng, "none", "ovr", classes=texts)
    text.feature_names_in_ = np.array(texts[:4], dtype=object)
    integer = random_model(rng, "none", "binary", classes=[-(2**63), 2**63 - 1])
    number = random_model(rng, "none", "binary", classes=[0.5, 1e300])
    models = {"text": text, "integer": integer, "number": number}
    library = compiled([to_c(model, name) for name, model in models.items()], tmp_path)
    n_classes = len(text.classes_)
    found = list((ctypes.c_char_p * n_classes).in_dll(library, "text_classes"))
    assert [label.decode() for label in found] == texts[:n_classes]
    found = list((ctypes.c_char_p * 4).in_dll(library, "text_feature_names"))
    assert [name.decode() for name in found] == texts[:4]
    assert list((ctypes.c_longlong * 2).in_dll(library, "integer_classes")) == [-(2**63), 2**63 - 1]
    assert list((ctypes.c_double * 2).in_dll(library, "number_classes")) == [0.5, 1e300]


@needs_compiler
def test_c_functions_refuse_values_that_are_not_finite(tmp_path):
    rng = np.random.default_rng(0)
    models = {"a": random_model(rng, "fitted", "joint"), "b": random_model(rng, "fitted", "labels")}
    library = compiled([to_c(model, name) for name, model in models.items()], tmp_path)
    for value in (np.nan, np.inf):
        row = (ctypes.c_double * 4)(0.0, value, 0.0, 0.0)
        for name, model in models.items():
            n_classes = len(model.classes_)
            results, labels = (ctypes.c_double * n_classes)(), (ctypes.c_int * n_classes)()
            assert getattr(library, f"{name}_scores")(row, results) == -1
            assert np.isnan(results).all()
            results[:] = [0.0] * n_classes
            assert getattr(library, f"{name}_probabilities")(row, results) == -1
            assert np.isnan(results).all()
            assert getattr(library, f"{name}_predict")(row, labels) == -1
        assert list(labels) == [-1] * n_classes


def test_names_of_c_functions_are_checked():
    model = MarginPursuitClassifier().fit(X, Y)
    for name in ("", "1a", "a-b", "a b", "é", "a;"):
        with pytest.raises(ValueError, match="name must be an identifier of C"):
            to_c(model, name)
