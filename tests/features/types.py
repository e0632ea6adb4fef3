"""Types of values: precisions, dtypes, sequences."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Types", text="", rows=())
