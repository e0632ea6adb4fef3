"""How a model is called: arguments, containers, scalars, inputs from files and code."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Calls", text="", rows=())
