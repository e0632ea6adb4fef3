"""The graph of a small model, by one of the exporters."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import torch

from exporter.manifest import ModelSpec
from exporter.worker.export.attempts import capture_program
from exporter.worker.export.convert import convert_module, convert_program
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.source_loader import load_model
from exporter.worker.torch_private.graph_operators import Decompositions
from tests.worker.contracts import ROOT


def draw_declared(spec: ModelSpec, root: Path = ROOT) -> dict[str, torch.Tensor]:
    return draw_inputs(spec, choose_usual_sets(spec)[0], root)


def capture(spec: ModelSpec) -> torch.export.ExportedProgram:
    return capture_program(load_model(spec, ROOT), spec, draw_declared(spec), strict=False)


def trace(spec: ModelSpec, opset: int, folder: Path) -> tuple[ir.Model, list[str]]:
    """Return the graph of TorchScript and its notes."""
    path = folder / ".scratch" / "a.onnx"
    return convert_module(load_model(spec, ROOT), spec, draw_declared(spec), opset, path)


def convert(spec: ModelSpec, opset: int, folder: Path, *, dynamo: bool) -> ir.Model:
    if dynamo:
        return convert_program(capture(spec), spec, opset, folder, Decompositions())
    return trace(spec, opset, folder)[0]
