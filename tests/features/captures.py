"""Which exporter captures the model, how, and from what."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Exporters, captures and sources", text="", rows=())
