"""Model files: predictions come back bit for bit, and nothing but a whole file is believed."""

import contextlib
import hashlib
import io
import json
import os
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marginpursuit import (
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    load_model,
    model_files,
    save_model,
)
from marginpursuit.model_files import ModelFileError

X, Y = load_iris(return_X_y=True)


def saved(model, folder):
    return save_model(model, folder / "a.model")


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of a file, and the model in it."""
    model = MarginPursuitClassifier(class_weight={0: 1.0, 1: 2.0, 2: 1.0}).fit(X, Y)
    return saved(model, tmp_path_factory.mktemp("model")).read_bytes(), model


def edited(content, edit, *, rehash=True, arrays=None, compression=zipfile.ZIP_STORED):
    """Return a file with an edited header and, for some numbers, other arrays."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        comment = archive.comment
    header = json.loads(members["header.json"])
    for number, new in (arrays or {}).items():
        members[f"arrays/{number}.npy"] = new
        header["arrays"][number]["sha256"] = hashlib.sha256(new).hexdigest()
    result = edit(header)
    header = header if result is None else result
    members["header.json"] = json.dumps(header).encode()
    if rehash:
        comment = hashlib.sha256(members["header.json"]).hexdigest().encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
        archive.comment = comment
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize("name", sorted(model_files.CLASSES))
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_classifier_comes_back(name, n_classes, tmp_path):
    rows = n_classes > Y
    model = model_files.CLASSES[name]().fit(X[rows], Y[rows])
    again = load_model(saved(model, tmp_path))
    assert type(again) is type(model)
    np.testing.assert_equal(again.get_params(), model.get_params())
    for method in ("decision_function", "predict", "predict_proba"):
        if hasattr(model, method):
            ours, theirs = getattr(model, method)(X), getattr(again, method)(X)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([-1, 7]),
        np.array([3, 9], dtype=np.uint8),
        np.array([-1.0, 2.0]),
        np.array([1, 2], dtype=">i4"),
        np.array([False, True]),
        np.array(["no", "yes ✓"]),
        np.array(["a", "b\0"], dtype=object),
        pd.Series(["no", "yes"]),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels_keep_values_and_dtype(labels, tmp_path):
    y = np.asarray(labels)[(Y == 1).astype(int)]
    model = MarginPursuitClassifier().fit(X, y)
    again = load_model(saved(model, tmp_path))
    assert again.classes_.dtype == model.classes_.dtype
    assert again.classes_.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_everything_public_is_kept(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "ß", "</script>", "d d"])
    model = MarginPursuitClassifier(scale="variance", max_iter=np.int64(50), verbose=False)
    model.fit(frame, Y)
    again = load_model(saved(model, tmp_path))
    kept = {key for key in vars(model) if key.endswith("_")}
    assert kept == {key for key in vars(again) if key.endswith("_")}
    assert again.scale_ == model.scale_
    np.testing.assert_array_equal(
        again.margin_statistics_.quantiles, model.margin_statistics_.quantiles
    )
    assert again.feature_names_in_.dtype == object
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"a": "b"}))
    again.set_params(warm_start=True).fit(frame, Y)  # further fits work


def test_a_search_has_its_score_and_is_saved_without_its_splitter(tmp_path):
    model = MarginPursuitClassifierCV(
        scoring="neg_log_loss", alphas=[1e-3], cv=StratifiedKFold(3)
    ).fit(X, Y)
    with pytest.raises(
        ModelFileError, match=r"'cv' .* StratifiedKFold.*set_params\(cv=None\) before saving"
    ):
        saved(model, tmp_path)
    again = load_model(saved(model.set_params(cv=None), tmp_path))
    assert again.score(X, Y) == model.score(X, Y)


@pytest.mark.parametrize("link", ["exact", "fitted"])
def test_chosen_by_cross_validation(link, tmp_path):
    model = MarginPursuitClassifierCV(link=link, scales=(0.3, 1.0), alphas=[1e-3], cv=3)
    model.fit(X, Y)
    again = load_model(saved(model, tmp_path))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.best_params_ == model.best_params_
    assert again.scales == (0.3, 1.0)
    assert again.alphas == [1e-3]
    np.testing.assert_array_equal(
        again.cv_results_["mean_test_score"], model.cv_results_["mean_test_score"]
    )


def test_class_weights_keep_their_keys(content, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(content[0])
    assert load_model(path).class_weight == {0: 1.0, 1: 2.0, 2: 1.0}


def test_equal_models_make_equal_files(tmp_path):
    files = [
        save_model(MarginPursuitClassifier().fit(X, Y), tmp_path / name).read_bytes()
        for name in "ab"
    ]
    assert files[0] == files[1]


def test_version_and_times_of_a_file(tmp_path):
    """Readers of version 1 read classifiers; those of version 2 also pipelines."""
    model = MarginPursuitClassifier()
    for kept, version in ((model, 1), (make_pipeline(StandardScaler(), model), 2)):
        path = save_model(kept.fit(X, Y), tmp_path / "a.model")
        with zipfile.ZipFile(path) as archive:
            assert json.loads(archive.read("header.json"))["version"] == version
            assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LogisticRegression(), "one of .*got LogisticRegression"),
        (
            GridSearchCV(MarginPursuitClassifier(), {"alpha": [0.1]}).fit(X, Y),
            "got GridSearchCV. Save its best_estimator_.",
        ),
        (type("MarginPursuitClassifier", (MarginPursuitClassifier,), {})(), "one of .*got"),
        (MarginPursuitClassifier(), "call fit before"),
        (
            MarginPursuitClassifier(random_state=np.random.default_rng(0)).fit(X, Y),
            r"parameter 'random_state'.*type Generator.*set_params\(random_state=None\) before",
        ),
    ],
)
def test_what_cannot_be_saved(model, message, tmp_path):
    with pytest.raises(ModelFileError, match=message):
        saved(model, tmp_path)
    assert not list(tmp_path.iterdir())


def test_classes_that_no_file_holds_are_named(tmp_path):
    dates = np.array(["2024-01-01", "2024-01-02"], "M8[D]")[(Y > 0).astype(int)]
    model = MarginPursuitClassifier().fit(X, dates)
    words = r"classes of this MarginPursuitClassifier .* dtype datetime64\[D\]; expected numbers or"
    with pytest.raises(ModelFileError, match=words):
        saved(model, tmp_path)


def test_a_model_that_could_not_be_read_is_not_written(tmp_path):
    model = MarginPursuitClassifier().fit(X, Y)
    model.coef_[0, 0] = np.nan
    with pytest.raises(ModelFileError, match="not finite"):
        saved(model, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = saved(MarginPursuitClassifier().fit(X, Y), tmp_path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_model(MarginPursuitClassifier(margin=2.0).fit(X, Y), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_others_may_read_what_the_user_lets_them(tmp_path):
    mask = os.umask(0o022)
    try:
        path = saved(MarginPursuitClassifier().fit(X, Y), tmp_path)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644


def refused(content, message, tmp_path):
    path = tmp_path / "b.model"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_headers_that_are_refused(content, tmp_path):
    def at(*keys, value):
        def edit(header):
            for key in keys[:-1]:
                header = header[key]
            header[keys[-1]] = value

        return edit

    def without(key):
        return lambda header: header.pop(key) and None

    def as_coefficients(header):
        fitted = header["model"]["fitted"]
        fitted["intercept_"] = fitted["coef_"]

    deep = {"list": [1]}
    for _ in range(400):
        deep = {"list": [deep]}
    cases = [
        (at("version", value=3), "version 3 of the format"),
        (at("version", value=None), "version None"),
        (at("format", value="another"), "not a model file"),
        (lambda header: ["no", "object"], "not a model file"),
        (at("model", "class", value="LogisticRegression"), "does not have"),
        (at("model", "class", value="os.system"), "does not have"),
        (at("model", "class", value=3), "does not describe a model"),
        (at("model", value=[]), "does not describe a model"),
        (without("arrays"), "lacks an entry"),
        (without("model"), "lacks an entry"),
        (
            at("model", "fitted", "link_", value={"record": "FittedLink", "fields": [1]}),
            "no model file has",
        ),
        (
            at("model", "fitted", "link_", value={"record": "Path", "fields": []}),
            "no model file has",
        ),
        (at("model", "fitted", "best_estimator_", value={"model": 1}), "does not describe a model"),
        (at("model", "parameters", "strange", value=1), r"does not have: \['strange'\]"),
        (at("model", "fitted", "predict", value=1), "not a fitted attribute"),
        (at("model", "fitted", "__class__", value=1), "not a fitted attribute"),
        (at("model", "fitted", "margin", value=1), "not a fitted attribute"),
        (at("model", "fitted", "_stream", value=1), "not a fitted attribute"),
        (at("model", "fitted", "coef_", value={"array": 99}), "no model file has"),
        (at("model", "fitted", "coef_", value={"array": -1}), "no model file has"),
        (at("model", "fitted", "coef_", value={"pickle": "x"}), "no model file has"),
        (at("model", "fitted", "coef_", value={"dict": [[{"list": []}, 1]]}), "no model file has"),
        (at("model", "fitted", "coef_", value=1.0), "missing"),
        (at("model", "fitted", "coef_", value={"text": ["a"], "object": True}), "shape"),
        (
            at("model", "fitted", "classes_", value={"text": ["a", "a"], "object": False}),
            "different",
        ),
        (at("model", "fitted", "n_features_in_", value=5), "shape"),
        (as_coefficients, "its intercept has shape"),
        (
            at("model", "fitted", "intercept_", value={"text": ["a", "b", "c"], "object": True}),
            "not floats",
        ),
        (at("model", "fitted", "n_features_in_", value=True), "shape"),
        (
            at("model", "fitted", "feature_names_in_", value={"text": ["a"], "object": True}),
            "names",
        ),
        (at("arrays", 0, "dtype", value="O"), "real numbers|not an array"),
        (at("arrays", 0, "dtype", value="<c16"), "real numbers"),
        (at("arrays", 0, "dtype", value="f8," * 9000), "plain dtype"),
        (at("arrays", 0, "shape", value=[1]), "describes"),
        (at("arrays", 0, value=None), "altered"),
        (lambda header: header["arrays"].pop() and None, "speaks of"),
        (at("model", "parameters", "margin", value=deep), "margin must be a number"),
    ]
    for edit, message in cases:
        refused(edited(content[0], edit), message, tmp_path)


def test_nesting_without_end_is_refused(content, tmp_path):
    deep = b'{"list":[' * 100_000 + b"]}" * 100_000
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("header.json", deep)
    refused(stream.getvalue(), "damaged", tmp_path)


def test_arrays_that_are_refused(content, tmp_path):
    file, model = content
    header = json.loads(zipfile.ZipFile(io.BytesIO(file)).read("header.json"))
    number = header["model"]["fitted"]["coef_"]["array"]
    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        huge, {"descr": "<f8", "fortran_order": False, "shape": (10**11,)}
    )
    claims = {
        "hash does not match": None,
        "does not suit its shape": huge.getvalue(),
        "not an array in the .npy format": b"not an array",
        "not finite": npy(np.full(model.coef_.shape, np.inf)),
        "describes": npy(np.asfortranarray(model.coef_)),
    }
    for message, new in claims.items():

        def edit(header, message=message):
            if "hash" in message:
                header["arrays"][number]["sha256"] = "0" * 64
            if "suit" in message:
                header["arrays"][number]["shape"] = [10**11]

        arrays = {} if new is None else {number: new}
        refused(edited(file, edit, arrays=arrays), message, tmp_path)


def test_long_dtypes_are_refused_and_empty_arrays_are_read():
    content = npy(np.zeros((0, 3)))
    about = {"dtype": "<f8", "shape": [0, 3], "sha256": hashlib.sha256(content).hexdigest()}
    assert model_files._read_array("a", content, about).shape == (0, 3)
    with pytest.raises(ModelFileError, match="has no plain dtype"):  # of two fields
        model_files._read_array("a", content, about | {"dtype": "<f8,<f8,<f8"})


def test_altered_header_with_the_old_hash_is_refused(content, tmp_path):
    def edit(header):
        header["model"]["parameters"]["margin"] = 5.0

    refused(edited(content[0], edit, rehash=False), "header was altered", tmp_path)


def test_archives_that_are_no_model_file(content, tmp_path):
    compressed = edited(content[0], lambda header: None, compression=zipfile.ZIP_DEFLATED)
    refused(compressed, "compressed", tmp_path)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b" " * 10**8)
    refused(bomb.getvalue(), "compressed", tmp_path)
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("../../outside", "x")
    refused(other.getvalue(), "members are others", tmp_path)
    for junk in (b"", b"PK", b"\x80\x04pickle", os.urandom(1000)):
        refused(junk, "not a model file", tmp_path)


def test_members_that_claim_more_than_the_file(content, tmp_path):
    """Entries of the directory that all point to one member, as overlapping bombs have it."""
    file = bytearray(content[0])
    start = file.find(b"PK\x01\x02")
    for offset in (20, 24):
        file[start + offset : start + offset + 4] = (2**31 - 2).to_bytes(4, "little")
    refused(bytes(file), "larger than the file", tmp_path)


def test_attributes_of_other_kinds_are_left_out(tmp_path):
    model = MarginPursuitClassifier().fit(X, Y)
    without = saved(model, tmp_path).read_bytes()
    model.generator_ = [np.arange(3), np.random.default_rng(0)]
    model.dates_ = np.array(["2026-01-01"], dtype="datetime64[D]")
    model.masked_ = np.ma.array([1.0, 2.0], mask=[True, False])
    assert saved(model, tmp_path).read_bytes() == without


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nowhere")


def same_or_refused(content, model):
    """A reader's only answers: an error of its own, or the model that was saved."""
    try:
        again = model_files._unpack(content)
    except ModelFileError:
        return
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@given(st.data())
@settings(max_examples=1500)
def test_flipped_bytes(content, data):
    file, model = content
    altered = bytearray(file)
    for _ in range(data.draw(st.integers(1, 4))):
        altered[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    same_or_refused(bytes(altered), model)


@given(st.data())
@settings(max_examples=300)
def test_cut_swapped_and_repeated_pieces(content, data):
    file, model = content
    a, b, c = sorted(data.draw(st.integers(0, len(file))) for _ in range(3))
    altered = data.draw(
        st.sampled_from(
            [file[:a], file[a:], file[:a] + file[b:], file[:b] + file[a:], file[:a] + file[b:c]]
        )
    )
    same_or_refused(altered, model)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["array", "text", "object", "list", "dict"]), inner)
    ),
    max_leaves=6,
)


@given(st.data())
@settings(max_examples=500)
def test_headers_edited_by_someone_who_knows_the_hashes(content, data):
    """Whatever a crafted header says: an error of our own, or a model that answers or says why."""

    def edit(header):
        for _ in range(data.draw(st.integers(1, 2))):
            place = header
            keys = list(place)
            while True:
                key = data.draw(st.sampled_from(keys))
                inner = place[key]
                if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
                    break
                place, keys = inner, list(inner) if isinstance(inner, dict) else range(len(inner))
            place[key] = data.draw(_JSON)

    try:
        model = model_files._unpack(edited(content[0], edit))
    except ModelFileError:
        return
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        assert model.predict(X).shape == Y.shape
