"""Files of a model by our job and by plain calls of `torch.onnx.export`, each in its own process.

In: `python -m tests.integration.public_files OURS|PUBLIC MODEL FOLDER OPSET...`. Out: the files in
the folder, or `failure.txt` where the exporter refused.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from exporter.jobs.job_folder import JobFolder
from exporter.manifest import ModelSpec, load_project
from exporter.worker.export.capture import capture_program, list_dynamic_shapes
from exporter.worker.export.convert import convert_program
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.inputs.call import build_tensor_call
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.torch_private.decompositions import Decompositions

ROOT = Path(__file__).parents[2]


def main(who: str, name: str, folder: Path, opsets: list[int]) -> None:
    """Writes the files, highest opset first as a job does."""
    torch.set_num_threads(1)
    spec = next(spec for spec in load_project(ROOT).models if spec.id == name)
    model: Any = wrap_with_call_objects(load_model(spec, ROOT), spec, ROOT)
    inputs = draw_inputs(spec, choose_usual_sets(spec)[0], ROOT)
    make = ours if who == "ours" else public
    try:
        for opset, graph in make(model, spec, inputs, opsets, folder):
            write_artifact(graph, spec, opset, JobFolder(folder), {})
    except Failure as failure:
        (folder / "failure.txt").write_text(failure.stage)
    except torch.onnx.OnnxExporterError as error:
        (folder / "failure.txt").write_text(type(error).__name__)


def ours(model: Any, spec: ModelSpec, inputs: Any, opsets: list[int], folder: Path) -> Any:
    """One capture, and whatever else is done once for all opsets."""
    program = capture_program(model, spec, inputs, strict=False)
    kept = Decompositions()
    for opset in opsets:
        yield opset, convert_program(program, spec, opset, folder, kept)


def public(model: Any, spec: ModelSpec, inputs: Any, opsets: list[int], folder: Path) -> Any:
    """One public call each: from the module to the file."""
    call = build_tensor_call(spec, inputs)
    is_dynamic = bool(spec.axes)
    for opset in opsets:
        exported = torch.onnx.export(
            model,
            call.args,
            kwargs=call.kwargs,
            input_names=[item.name for item in spec.inputs],
            output_names=[item.name for item in spec.outputs],
            dynamic_shapes=list_dynamic_shapes(model, spec) if is_dynamic else None,
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
        assert exported is not None
        yield opset, exported.model


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), [int(each) for each in sys.argv[4:]])
