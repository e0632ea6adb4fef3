"""What torch.onnx has and this tool does another way, or does not do."""

from __future__ import annotations

from tests.features.feature import Elsewhere, Section

SECTION = Section(
    name="Elsewhere",
    text="What is deliberately no key of a manifest, and what stands in its place.",
    rows=(
        Elsewhere(
            name="file name",
            api="export(model, args, f)",
            torch="1.0+",
            instead="Every file is `build/<model>/<opset>.onnx`, written beside and renamed.",
        ),
        Elsewhere(
            name="run the file after the export",
            api="export(..., verify=True)",
            torch="2.5+",
            instead="Always: the checks run the file that ships, on every device of `devices`.",
        ),
    ),
)
