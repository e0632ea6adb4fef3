"""What the documentation warns of."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Pitfalls", text="", rows=())
