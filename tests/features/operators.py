"""Which operators can be converted, and what runs the file."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Operators and runtimes", text="", rows=())
