"""A distribution that adds a runtime through the entry-point group `exporter.runtimes`."""

from __future__ import annotations

from pathlib import Path

#: The name of the runtime.
NAME = "ncnn"
_MODULE = """
from collections import Counter

from onnx.reference import ReferenceEvaluator

from exporter.runtimes import LoadFailure, Placement, RunFailure

VERSION = "{version}"


class TractSession:
    def __init__(self, path, device):
        try:
            self._evaluator = ReferenceEvaluator(str(path))
        except Exception as error:
            raise LoadFailure(f"ncnn: {{error}}") from error
        self._device = device.device or "cpu"

    @property
    def output_names(self):
        return tuple(self._evaluator.output_names)

    @property
    def placement(self):
        nodes = Counter(node.op_type for node in self._evaluator.rt_nodes_)
        return Placement(requested=self._device, nodes={{self._device: nodes}})

    def run(self, inputs):
        try:
            return self._evaluator.run(None, dict(inputs))
        except Exception as error:
            raise RunFailure(f"ncnn: {{error}}") from error


def open_session(path, device, kernels):
    return TractSession(path, device)
"""


def install_runtime_plugin(
    folder: Path, *, value: str = "ncnn_plugin:open_session", version: str = "1.0"
) -> Path:
    """Write a module and its `dist-info` to the folder, which must be added to the path.

    Args:
        folder: Created if it is missing.
        value: The object that the entry point names.
        version: Version of the distribution.
    """
    info = folder / "ncnn_plugin.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "ncnn_plugin.py").write_text(_MODULE.format(version=version), encoding="utf-8")
    metadata = f"Metadata-Version: 2.1\nName: ncnn-plugin\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entry_points = f"[exporter.runtimes]\n{NAME} = {value}\n"
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    (info / "top_level.txt").write_text("ncnn_plugin\n", encoding="utf-8")
    record = f"ncnn_plugin.py,sha256={version},\nncnn_plugin.dist-info/METADATA,,\n"
    (info / "RECORD").write_text(record, encoding="utf-8")
    return folder
