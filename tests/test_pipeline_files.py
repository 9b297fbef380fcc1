"""Pipelines in model files: what is stored, and what is refused."""

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

from fuzz_model_files import _archive, _members  # noqa: E402
from mixed_table import mixed_table  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.decomposition import PCA, TruncatedSVD  # noqa: E402
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline, make_union  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from marginpursuit import (  # noqa: E402
    LDMClassifier,
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    load_model,
    save_model,
)
from marginpursuit.model_files import ModelFileError  # noqa: E402
from marginpursuit.tables import TableVectoriser  # noqa: E402

RNG = np.random.default_rng(0)
FRAME = mixed_table(60)
NUMBERS = RNG.standard_normal((60, 3))
LABELS = (NUMBERS[:, 0] > 0).astype(int)
NOTES = FRAME["note"].tolist()


def test_a_mixed_table_is_predicted_as_before(tmp_path):
    model = make_pipeline(TableVectoriser(target="status"), MarginPursuitClassifierCV(cv=2))
    model.fit(FRAME, FRAME["status"])
    again = load_model(save_model(model, tmp_path / "m"))
    np.testing.assert_array_equal(again.predict_proba(FRAME), model.predict_proba(FRAME))
    assert again[0].columns_ == model[0].columns_
    assert again[0].features_ == model[0].features_
    assert again[0].get_params() == model[0].get_params()
    new = FRAME.assign(plan="new", age=["x", *FRAME.age[1:]], note="")
    np.testing.assert_array_equal(again.predict(new), model.predict(new))


@pytest.mark.parametrize(
    ("steps", "X"),
    [
        ([StandardScaler()], NUMBERS),
        (["passthrough", RobustScaler(), MinMaxScaler(), MaxAbsScaler()], NUMBERS),
        ([SimpleImputer(), PCA(2)], NUMBERS),
        ([make_union(StandardScaler(), MinMaxScaler())], NUMBERS),
        ([ColumnTransformer([("a", StandardScaler(), [0, 2])], remainder="passthrough")], NUMBERS),
        ([TfidfVectorizer(ngram_range=(1, 2), stop_words=["late"]), TruncatedSVD(2)], NOTES),
        ([HashingVectorizer(n_features=64)], NOTES),
        (
            [
                ColumnTransformer(
                    [
                        ("one", OneHotEncoder(handle_unknown="ignore"), ["plan", "city"]),
                        ("order", OrdinalEncoder(), ["active"]),
                        ("text", TfidfVectorizer(), "note"),
                    ]
                )
            ],
            FRAME,
        ),
    ],
    ids=lambda value: type(value[0]).__name__ if isinstance(value, list) else "",
)
def test_pipelines_of_scikit_learn(steps, X, tmp_path):
    model = make_pipeline(*steps, LDMClassifier()).fit(X, LABELS)
    again = load_model(save_model(model, tmp_path / "m"))
    # A file stores arrays by row; a product with one stored by column is rounded differently.
    expected = model.decision_function(X)
    np.testing.assert_allclose(again.decision_function(X), expected, rtol=1e-13, atol=1e-13)


def test_a_category_of_one_frequent_value_and_rare_ones(tmp_path):
    """scikit-learn takes it for binary, and stores the place of the dropped value as an object."""
    country = np.array(["US"] * 291 + ["DE", "FR", "JP"] * 3)
    frame = pd.DataFrame({"country": country, "x": RNG.standard_normal(300)})
    model = make_pipeline(TableVectoriser(), MarginPursuitClassifier())
    model.fit(frame, frame["x"] + RNG.standard_normal(300) > 0)
    again = load_model(save_model(model, tmp_path / "m"))
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_several_labels(tmp_path):
    labels = (NUMBERS + 0.5 * RNG.standard_normal((60, 3)) > 0).astype(int)
    model = make_pipeline(StandardScaler(), MarginPursuitClassifier()).fit(NUMBERS, labels)
    again = load_model(save_model(model, tmp_path / "m"))
    np.testing.assert_array_equal(again.predict(NUMBERS), model.predict(NUMBERS))


@pytest.mark.parametrize(
    ("steps", "X", "message"),
    [
        ([FunctionTransformer(np.abs)], NUMBERS, "'func' of its FunctionTransformer"),
        ([TfidfVectorizer(token_pattern="(a|a)*b|a+")], ["a b", "b a"] * 30, "'token_pattern'"),
        ([TfidfVectorizer(tokenizer=str.split, token_pattern=None)], NOTES, "'tokenizer'"),
    ],
)
def test_transformers_that_run_code_are_refused(steps, X, message, tmp_path):
    model = make_pipeline(*steps, LDMClassifier()).fit(X, LABELS)
    with pytest.raises(ModelFileError, match=message):
        save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


class Own(StandardScaler):
    """A class that no file may name."""


def test_other_classes_are_refused(tmp_path):
    for model, message in [
        (make_pipeline(Own(), LDMClassifier()), "of type Own; a file holds"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "of type LogisticRegression"),
        (make_pipeline(StandardScaler()), "the last step of its pipeline is a StandardScaler"),
    ]:
        with pytest.raises(ModelFileError, match=message):
            save_model(model.fit(NUMBERS, LABELS), tmp_path / "m")
    with pytest.raises(ModelFileError, match="call fit"):
        save_model(make_pipeline(StandardScaler(), LDMClassifier()), tmp_path / "m")


def altered(path, change):
    """Return a file whose header is changed, with correct hashes."""
    import hashlib
    import json

    members = _members(path.read_bytes())
    header = json.loads(members["header.json"])
    change(header["model"])
    members["header.json"] = json.dumps(header).encode()
    path.write_bytes(_archive(members, hashlib.sha256(members["header.json"]).hexdigest().encode()))
    return path


def scaler_state(model):
    return model["state"]["steps"]["list"][0]["tuple"][1]["state"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(estimator="FunctionTransformer"), "not an attribute|lacks the par"),
        (lambda m: m.update(estimator="os.system"), "it holds a 'os.system'"),
        (lambda m: m["state"].update(memory="/tmp/cache"), "the parameter 'memory'"),
        (lambda m: m["state"].update(__class__=1), "'__class__' is not an attribute"),
        (lambda m: m["state"].update(fit=1), "'fit' is not an attribute"),
        (lambda m: m["state"].update(steps={"list": []}), "steps of its pipeline"),
        (lambda m: m["state"].pop("verbose"), r"lacks the parameters \['verbose'\]"),
        (lambda m: scaler_state(m).update(mean_=[]), "holds a value that no model file has"),
        (lambda m: scaler_state(m).update(mean_=None, scale_="a"), "cannot predict"),
        (lambda m: scaler_state(m).update(n_features_in_=10**12), "has 1000000000000 columns"),
        (lambda m: scaler_state(m).pop("scale_"), "cannot predict"),
    ],
)
def test_crafted_files_are_refused(change, message, tmp_path):
    model = make_pipeline(StandardScaler(), LDMClassifier()).fit(NUMBERS, LABELS)
    path = altered(save_model(model, tmp_path / "m"), change)
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    import sys

    model = make_pipeline(TableVectoriser(target="status"), MarginPursuitClassifier())
    path = save_model(model.fit(FRAME, FRAME["status"]), tmp_path / "m")
    monkeypatch.setitem(sys.modules, "skrub", None)
    with pytest.raises(ModelFileError, match=r"needs skrub.*pip install 'marginpursuit\[tables\]'"):
        load_model(path)


def test_plain_models_keep_the_first_version_of_the_format(tmp_path):
    path = save_model(LDMClassifier().fit(NUMBERS, LABELS), tmp_path / "m")
    assert b'"version": 1' in _members(path.read_bytes())["header.json"]
