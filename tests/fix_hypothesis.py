"""How property tests run: no deadline per example, since a loaded machine is not a fault, and the same examples in CI."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("cuetl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cuetl")
