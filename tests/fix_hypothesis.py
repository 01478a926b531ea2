"""Property tests: no deadline per example, since a loaded machine is no fault, and the same examples everywhere."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("cuetl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cuetl")
