"""What all tests share: property tests are not timed, since a busy machine would fail them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
