"""Every other argument of torch.onnx.export."""

from __future__ import annotations

from tests.features.feature import Section

SECTION = Section(name="Options", text="", rows=())
