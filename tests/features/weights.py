"""Weights: where they come from, and where they lie in the file."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Weights", text="", rows=())
