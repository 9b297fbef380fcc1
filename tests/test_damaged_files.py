"""Damaged and hostile files: refused by the error of their reader, in bounded memory and time."""

import hashlib
import io
import json
import time
import tracemalloc
import zipfile

import fuzz_model_files as fuzz
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, save_model
from marginpursuit._files import read_npz
from marginpursuit.classifiers._checkpoint import Checkpoint
from marginpursuit.experiments.runs import Run, RunFileError
from marginpursuit.model_files import ModelFileError, _unpack


def edited(content, edit):
    """Return a model file with an edited header and the hash that belongs to it."""
    members = fuzz._members(content)
    header = json.loads(members["header.json"])
    edit(header)
    members["header.json"] = json.dumps(header).encode()
    return fuzz._archive(members, hashlib.sha256(members["header.json"]).hexdigest().encode())


def with_fitted(content, **values):
    return edited(content, lambda header: header["model"]["fitted"].update(values))


def with_parameters(content, **values):
    return edited(content, lambda header: header["model"]["parameters"].update(values))


@pytest.fixture(scope="module")
def weighted():
    return fuzz.samples()[0].content


@pytest.fixture(scope="module")
def selected():
    return fuzz.samples()[1].content


def peak_of(function, *args):
    """Return the peak of the memory that a call allocates, in bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):  # noqa: PT011
            function(*args)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(10))
def test_damaged_files_are_read_or_refused(part):
    """`make fuzz` runs a million cases."""
    for number in range(part, 10_000, 10):
        fuzz.run_case(20261116, number)


@pytest.mark.parametrize(
    "texts",
    [["a"] * 20_000 + ["b" * 4000], ["a"] * 500_000 + ["b" * 1000], ["a", "b" * 5_000_000]],
    ids=["short and long", "many", "one of 5e6 characters"],
)
@pytest.mark.parametrize("name", ["classes_", "other_"])
def test_padded_text_is_refused_before_it_is_allocated(weighted, texts, name):
    content = with_fitted(weighted, **{name: {"text": texts, "object": False}})
    with pytest.raises(ModelFileError, match="characters"):
        _unpack(content)
    assert peak_of(_unpack, content) < 100 * len(content)


def test_labels_that_could_not_be_read_are_not_written(tmp_path):
    y = np.array(["a", "b" * 5000])[(fuzz.Y == 1).astype(int)]
    model = MarginPursuitClassifier().fit(fuzz.X, y)
    with pytest.raises(ModelFileError, match="5000 characters; expected at most 4096"):
        save_model(model, tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("as_tuple", [False, True])
def test_colliding_keys_take_linear_time(weighted, as_tuple):
    """The hash of each of these integers is 0; a dict of them takes minutes."""
    keys = [k * (2**61 - 1) for k in range(100_000)]
    items = [[{"tuple": [key]} if as_tuple else key, 1] for key in keys]
    content = with_parameters(weighted, class_weight={"dict": items})
    start = time.perf_counter()
    with pytest.raises(ModelFileError, match="no model file has"):
        _unpack(content)
    assert time.perf_counter() - start < 5


def test_nested_containers_take_a_bounded_multiple_of_the_file(weighted):
    for value in ({"list": [{"list": []}] * 100_000}, {"dict": [[k, 0] for k in range(100_000)]}):
        content = with_parameters(weighted, margin=value)
        assert peak_of(_unpack, content) < 100 * len(content)


def test_an_array_without_a_shape_is_refused(weighted):
    with pytest.raises(ModelFileError, match="describes"):
        _unpack(edited(weighted, lambda header: header["arrays"][0].pop("shape") and None))


@pytest.mark.parametrize(
    "values",
    [
        {"margin": -1.0},
        {"margin": float("nan")},
        {"margin": 10**400},
        {"alpha": "large"},
        {"scale": 1e-9},
        {"solver": "none"},
        {"max_iter": 0.5},
        {"class_weight": 3},
        {"n_threads": 0},
    ],
    ids=repr,
)
def test_parameters_that_fit_refuses_are_refused(weighted, values):
    with pytest.raises(ModelFileError, match="that fit refuses"):
        _unpack(with_parameters(weighted, **values))


def test_parameters_that_a_search_refuses_are_refused(selected):
    with pytest.raises(ModelFileError, match="fit refuses: rule"):
        _unpack(with_parameters(selected, rule="lowest"))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), "a", True])
def test_scales_that_no_fit_has_are_refused(weighted, scale):
    with pytest.raises(ModelFileError, match="its scale is"):
        _unpack(with_fitted(weighted, scale_=scale))


@pytest.mark.parametrize("value", [1, "both", {"array": 0}])
def test_losses_of_several_classes_that_no_fit_has_are_refused(weighted, value):
    with pytest.raises(ModelFileError, match="its loss of several classes"):
        _unpack(with_fitted(weighted, multi_class_=value))


@pytest.mark.parametrize("name", ["scale_", "multi_class_"])
def test_attributes_that_probabilities_need_are_required(weighted, name):
    with pytest.raises(ModelFileError, match="it lacks"):
        _unpack(edited(weighted, lambda header: header["model"]["fitted"].pop(name) and None))
    with pytest.raises(ModelFileError, match="it lacks"):
        _unpack(with_fitted(weighted, **{name: None}))


def test_a_search_needs_its_link(selected):
    with pytest.raises(ModelFileError, match="it lacks"):
        _unpack(with_fitted(selected, link_=None))
    with pytest.raises(ModelFileError, match="no probabilities"):
        _unpack(with_fitted(with_parameters(selected, link="exact"), best_estimator_=1))


@pytest.mark.parametrize(
    "fields",
    [
        [1.0, {"array": 0}, 0.0, 0.0],
        [0.0, 1.0, 2.0, 0.0],
        ["a", "b", "c", "d"],
        [1.0, {"list": [1.0] * 4}, 0.0, 0.0],
    ],
)
def test_links_that_no_fit_has_are_refused(selected, fields):
    assert isinstance(_unpack(selected), MarginPursuitClassifierCV)
    with pytest.raises(ModelFileError, match="its link"):
        _unpack(with_fitted(selected, link_={"record": "FittedLink", "fields": fields}))


PARTS = {"coef": np.ones((4, 3)), "intercept": np.ones(3), "scale": 1.0, "n_iter": 5, "n_fits": 1}


@pytest.mark.parametrize(
    "values",
    [
        {"scale": -1.0},
        {"scale": np.nan},
        {"scale": [1.0, 2.0]},
        {"scale": "a"},
        {"n_iter": 0},
        {"n_fits": -1},
        {"n_iter": np.inf},
        {"coef": np.full((4, 3), np.nan)},
        {"coef": np.ones((4, 2))},
        {"coef": np.ones(4)},
        {"intercept": np.array(["a", "b", "c"])},
    ],
    ids=repr,
)
def test_checkpoints_with_values_that_no_fit_has_are_refused(values, tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(fuzz.checkpoint_of(**PARTS))
    assert Checkpoint(path, fuzz.IDENTITY).saved_state.n_iter == 5
    path.write_bytes(fuzz.checkpoint_of(**PARTS | values))
    with pytest.raises(ValueError, match="cannot be read: remove it"):
        Checkpoint(path, fuzz.IDENTITY)


def test_an_edited_checkpoint_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(fuzz.checkpoint_of(**PARTS))
    with np.load(path) as archive:
        parts = dict(archive) | {"scale": np.array(100.0)}
    np.savez(path, **parts)
    X, y = load_breast_cancer(return_X_y=True)
    for read in (
        lambda: Checkpoint(path, fuzz.IDENTITY),
        lambda: MarginPursuitClassifier(checkpoint=path).fit(X, y),
    ):
        with pytest.raises(ValueError, match="it was altered"):
            read()


def archive_of(content, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("X.npy", content)
    return stream.getvalue()


def header_of(shape, dtype="<f8"):
    stream = io.BytesIO()
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        archive_of(header_of((80, 10**12)) + bytes(3000)),
        archive_of(header_of((80, 10**12)) + bytes(100_000), zipfile.ZIP_DEFLATED),
        archive_of(header_of((-1, 8)) + bytes(64)),
        archive_of(header_of((0, 10**30))),
        archive_of(header_of((1,), "|O") + bytes(8)),
        archive_of(b"text"),
        b"PK",
    ],
    ids=["stored", "deflated", "negative", "empty", "objects", "text", "cut"],
)
def test_archives_are_refused_before_memory_is_allocated(content):
    assert peak_of(read_npz, content) < 1_000_000


def test_deflated_bombs_are_refused_where_nothing_is_compressed():
    content = archive_of(header_of((10**7,)) + bytes(8 * 10**7), zipfile.ZIP_DEFLATED)
    assert read_npz(content)["X"].shape == (10**7,)
    with pytest.raises(ValueError, match="larger than the archive"):
        read_npz(content, max_expansion=1)
    claim = bytearray(content)
    start = claim.find(b"PK\x01\x02") + 24
    claim[start : start + 4] = (2**32 - 2).to_bytes(4, "little")
    assert peak_of(read_npz, bytes(claim)) < 1_000_000


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf")])
def test_numbers_of_runs_beyond_the_floats_are_refused(value):
    content = json.loads(Run.now("a").to_json())
    content["sets"] = [{"name": "a", "error": value}]
    with pytest.raises(RunFileError):
        Run.from_json(json.dumps(content))
