"""Operators that ONNX lacks, and the kernels that run them."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Custom operators", text="", rows=())
