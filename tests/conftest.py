"""Shared fixtures and settings of the test suite."""

import os
import shutil

import mpmath
import pytest
from file_server import running_server
from hypothesis import HealthCheck, settings

# No time limit per example: a busy machine must not make a test fail.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

# Oracles have 50 digits, also in values computed at import.
mpmath.mp.dps = 50


@pytest.fixture(autouse=True)
def _fifty_digits():
    """Reset the precision to 50 digits for every test."""
    mpmath.mp.dps = 50


# Without a CUDA device the kernels run in Triton's interpreter; Triton reads this when imported.
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
