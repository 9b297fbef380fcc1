"""Shared settings of the test suite."""

from hypothesis import HealthCheck, settings

# A time limit per example would make the suite fail on a busy machine, not on a wrong result.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")
