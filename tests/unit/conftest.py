"""Hypothesis without clocks and chance: what fails here fails everywhere."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
