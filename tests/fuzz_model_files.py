"""Damaged model files, checkpoints and runs: each is read or refused by the error of its reader.

`make fuzz` runs this file for some minutes; `tests/test_damaged_files.py` runs a smaller number of
cases. A case is determined by its seed and its number, which a failure prints:

    python tests/fuzz_model_files.py --seed 1 --cases 1000000 --seconds 1200
    python tests/fuzz_model_files.py --seed 1 --first 4711 --cases 1
"""

import argparse
import hashlib
import io
import json
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mixed_table import mixed_table
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV, save_model
from marginpursuit.classifiers._checkpoint import Checkpoint, _digest
from marginpursuit.experiments.runs import Run, RunFileError, Table
from marginpursuit.model_files import ModelFileError, _unpack
from marginpursuit.tables import TableVectoriser

X, Y = load_iris(return_X_y=True)
FRAME = mixed_table(40)
IDENTITY = {"shape": (150, 4)}

#: Values that replace a value of a header or run.
VALUES = (
    *(None, True, -1, 0, 1, 2**61 - 1, 2**63, 10**400, 0.5, 1e308, float("nan"), float("inf")),
    *("", "a", "\0", "\ud800", "a" * 5000, "balanced", "<f16", "|O", "<U9"),
    *([], {}, [0], [[]], [1, 2, 3], {"array": 0}, {"array": 1}, {"array": 10**9}, {"array": True}),
    *({"array": 0, "list": []}, {"list": []}, {"tuple": [1]}, {"list": {}}, {"tuple": None}),
    *({"text": ["a", "b", "c"], "object": False}, {"text": ["a", "b", "c"], "object": True}),
    *({"text": ["a", "\ud800", "c"], "object": False}, {"text": [1], "object": True}, {"text": 0}),
    *({"dict": [[1, 2]]}, {"dict": [[[], 2]]}, {"dict": [1]}, {"dict": [[{"list": []}, 1]]}),
    *({"model": None}, {"model": {"class": "LDMClassifier", "parameters": {}, "fitted": {}}}),
    *({"objects": [None, 1]}, {"objects": 0}, {"slice": [0, 1, None]}, {"slice": [0, 2.5, "a"]}),
    *({"dtype": "<f8"}, {"dtype": "|O"}, {"dtype": []}, {"scalar": "float64"}, {"scalar": "bool"}),
    *({"estimator": "StandardScaler", "state": {}}, {"estimator": "eval", "state": {}}),
    *({"record": "Column", "fields": ["a", "number", "", ".", "", "", 0]}, {"estimator": []}),
    *({"record": "Feature", "fields": ["a", "a", "+1", 0.0]}, r"(a+)+$", "%Y", "text", "category"),
    *({"record": "FittedLink", "fields": [1, 2, 3]}, {"record": [], "fields": []}, {"record": ""}),
)

#: Arrays that replace an array of a file.
ARRAYS = (
    *(np.zeros((3, 4)), np.zeros((3, 4), np.float32), np.zeros((3, 4), np.longdouble), np.ones(3)),
    *(np.full((3, 4), np.nan), np.array(1.0), np.array(-1.0), np.zeros((0, 4)), np.arange(3)),
    *(np.array([0.0, np.inf, 1.0]), np.array([True, False]), np.array(["a"]), np.zeros(3, "V3")),
)


class Sample(NamedTuple):
    """An intact file, what its reader accepts, and the structured damage that it may get."""

    content: bytes
    read: Callable[[bytes], None]
    edit: Callable[[bytes, np.random.Generator], bytes]


@cache
def samples() -> tuple[Sample, ...]:
    """Return a file of each kind."""
    weighted = MarginPursuitClassifier(class_weight={0: 1.0, 1: 2.0, 2: 1.0}).fit(X, Y)
    chosen = MarginPursuitClassifierCV(cv=2).fit(X[50:], np.array(["a", "b", "c"])[Y[50:]])
    run = Run.now("fuzz", listings=(Table("a", "b", ("c",), (("d",),)),))
    files = []
    with tempfile.TemporaryDirectory() as folder:
        models = [weighted, chosen, *([_pipeline()] if find_spec("skrub") else [])]
        for number, model in enumerate(models):
            files.append(save_model(model, Path(folder, str(number))).read_bytes())
    return (
        *(Sample(file, _read_model, _edit_model) for file in files),
        Sample(_checkpoint(), _read_checkpoint, _edit_checkpoint),
        Sample(run.to_json().encode(), _read_run, _edit_run),
    )


def _pipeline() -> Any:
    """Return a pipeline of a mixed table, with all kinds of columns."""
    vectoriser = TableVectoriser(target="status", min_frequency=3)
    return make_pipeline(vectoriser, MarginPursuitClassifier()).fit(FRAME, FRAME["status"])


def _checkpoint() -> bytes:
    parts = {"coef": np.ones((4, 3)), "intercept": np.ones(3), "scale": 1.0, "n_iter": 5}
    return checkpoint_of(**parts)


def checkpoint_of(**parts: Any) -> bytes:
    """Return a checkpoint with these arrays and the hash that belongs to them."""
    identity = json.dumps({name: repr(value) for name, value in IDENTITY.items()})
    arrays = {name: np.asarray(part) for name, part in ({"fit": identity} | parts).items()}
    stream = io.BytesIO()
    np.savez(stream, sha256=_digest(arrays), **arrays)
    return stream.getvalue()


def run_case(seed: int, number: int) -> None:
    """Damage one file and read it; raise whatever the reader should not raise."""
    rng = np.random.default_rng([seed, number])
    sample = samples()[rng.integers(len(samples()))]
    damage = (_flip, _cut, sample.edit, sample.edit)[rng.integers(4)]
    content = damage(sample.content, rng)
    try:
        sample.read(content)
    except Exception as error:
        raise AssertionError(f"seed {seed}, case {number}: {error!r}") from error


def _read_model(content: bytes) -> None:
    try:
        model = _unpack(content)
    except ModelFileError:
        return
    if hasattr(model, "steps"):
        names = [column.name for column in model[0].used_columns]
        if set(names) <= set(FRAME.columns):
            assert model.predict(FRAME).shape == (len(FRAME),)
            assert model.predict(FRAME[names[::-1]][:1]).shape == (1,)
    elif model.n_features_in_ == X.shape[1]:
        assert model.predict(X).shape == Y.shape
        if hasattr(model, "predict_proba"):
            assert model.predict_proba(X).shape == (len(X), len(model.classes_))


def _read_checkpoint(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            saved_state = Checkpoint(file.name, IDENTITY).saved_state
        except ValueError as error:
            if not str(error).startswith("checkpoint"):
                raise
            return
    assert saved_state is not None
    assert saved_state.scale > 0
    assert all(np.isfinite(part).all() for part in saved_state.linear)


def _read_run(content: bytes) -> None:
    try:
        run = Run.from_json(content)
    except RunFileError:
        return
    assert Run.from_json(run.to_json()) == run


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    altered = bytearray(content)
    for place in rng.integers(len(content), size=rng.integers(1, 5)):
        altered[place] = rng.integers(256)
    return bytes(altered)


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    a, b, c = np.sort(rng.integers(len(content) + 1, size=3)).tolist()
    pieces = (content[:a], content[a:], content[:a] + content[b:], content[:b] + content[a:c])
    return pieces[rng.integers(len(pieces))]


def _edit_json(document: Any, rng: np.random.Generator) -> Any:
    """Replace, copy or remove some values of a JSON document, in place."""
    for _ in range(rng.integers(1, 4)):
        inner, key = _place(document, rng)
        choice = rng.integers(8)
        if choice == 0:
            del inner[key]
        elif choice == 1:
            other, other_key = _place(document, rng)
            inner[key] = deepcopy(other[other_key])
        else:
            inner[key] = deepcopy(VALUES[rng.integers(len(VALUES))])
        if not document:
            break
    return document


def _place(document: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return a container within a document that is not empty, and one of its keys."""
    inner = document
    while True:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        key = keys[rng.integers(len(keys))]
        if not isinstance(inner[key], dict | list) or not inner[key] or rng.random() < 0.1:
            return inner, key
        inner = inner[key]


def _edit_model(content: bytes, rng: np.random.Generator) -> bytes:
    """Edit the header and some arrays, and correct the hashes."""
    members = dict(_intact_members(content))
    header = json.loads(members["header.json"])
    if rng.random() < 0.3:
        number, array = rng.integers(len(header["arrays"])), ARRAYS[rng.integers(len(ARRAYS))]
        new = members[f"arrays/{number}.npy"] = _npy(array)
        about = {"dtype": array.dtype.str, "shape": list(array.shape)}
        header["arrays"][number] = about | {"sha256": hashlib.sha256(new).hexdigest()}
    if rng.random() < 0.8:
        header = _edit_json(header, rng)
    members["header.json"] = json.dumps(header).encode()
    return _archive(members, hashlib.sha256(members["header.json"]).hexdigest().encode())


def _edit_checkpoint(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace or remove arrays, with the hash that belongs to them or without."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "sha256"}
    for name in rng.choice(sorted(arrays), rng.integers(1, 3), replace=False):
        if rng.random() < 0.2:
            del arrays[name]
        else:
            arrays[name] = ARRAYS[rng.integers(len(ARRAYS))]
    members = _members(checkpoint_of(**arrays))
    if rng.random() < 0.3:
        name = rng.choice(sorted(members))
        members[name] = _flip(members[name], rng)
    return _archive(members, b"")


def _edit_run(content: bytes, rng: np.random.Generator) -> bytes:
    return json.dumps(_edit_json(json.loads(content), rng)).encode()


@cache
def _intact_members(content: bytes) -> dict[str, bytes]:
    """Return the members of an intact file, of which there are few."""
    return _members(content)


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(members: dict[str, bytes], comment: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member)
        archive.comment = comment
    return stream.getvalue()


@cache
def _npy_of(number: int) -> bytes:
    stream = io.BytesIO()
    np.save(stream, ARRAYS[number])
    return stream.getvalue()


def _npy(array: Any) -> bytes:
    return _npy_of(next(number for number, known in enumerate(ARRAYS) if known is array))


def run_cases(seed: int, numbers: range, end: float) -> int:
    """Run cases until a time of the monotonic clock; return their number."""
    warnings.simplefilter("ignore")
    for done, number in enumerate(numbers):
        if time.monotonic() >= end:
            return done
        run_case(seed, number)
    return len(numbers)


def main(chunk: int = 2000) -> None:
    """Run cases until their number or the time is reached; print the seed first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1200.0)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    end, last = time.monotonic() + options.seconds, options.first + options.cases
    samples()  # forked processes have the same files
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        starts = range(options.first, last, chunk)
        runs = [
            pool.submit(run_cases, options.seed, range(start, min(start + chunk, last)), end)
            for start in starts
        ]
        done = sum(run.result() for run in runs)
    print(f"{done} damaged files: each read or refused")


if __name__ == "__main__":
    main()
