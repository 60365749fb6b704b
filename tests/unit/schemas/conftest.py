"""Settings of the property tests here: machines that run them are shared, so no deadline per example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
