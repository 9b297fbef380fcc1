"""Shared fixtures and settings of the test suite."""

import os
import shutil

import mpmath
import pytest
from file_server import running_server
from hypothesis import HealthCheck, settings

# A time limit per example would make the suite fail on a busy machine, not on a wrong result.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

# Oracles have 50 digits, in what modules compute at import too.
mpmath.mp.dps = 50


@pytest.fixture(autouse=True)
def _fifty_digits():
    """Give every test 50 digits again, whatever another one has left."""
    mpmath.mp.dps = 50


# Without a CUDA device its kernels run in Triton's interpreter. Triton must know when imported.
if shutil.which("nvidia-smi") is None:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def server():
    """An HTTP server whose files and failures the test sets."""
    with running_server() as server:
        yield server


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    """An empty cache, no data folder unless a test sets one, and no pauses between downloads."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MARGINPURSUIT_DATA", raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
