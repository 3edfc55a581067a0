"""What all tests share: property tests are not timed, since a busy machine would fail them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A slow example says nothing about the code when other work has the processors; a test that hangs is ended by its
# own limit.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
