"""Opsets and IR versions."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Opsets", text="", rows=())
