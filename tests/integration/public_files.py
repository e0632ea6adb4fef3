"""Export a model by a job of this project or by plain calls of `torch.onnx.export`.

Input: `python -m tests.integration.public_files`, with `job|public MODEL FOLDER OPSET...` on each
line of stdin. A fork of the process makes the export of a line. Output: the files in the folder, or
`failure.txt` if the exporter fails, and the exit code of the fork on a line of stdout.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from exporter.jobs import JobFolder
from exporter.manifest import ModelSpec, load_project
from exporter.worker.export.attempts import capture_program, list_dynamic_shapes
from exporter.worker.export.convert import convert_program
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.fork_server import preload_capture
from exporter.worker.inputs.call import build_tensor_call
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.process.setup import apply_state
from exporter.worker.torch_private.graph_operators import Decompositions

ROOT = Path(__file__).parents[2]


def main(method: str, name: str, folder: Path, opsets: list[int]) -> None:
    """Write the files; a job starts with the highest opset."""
    torch.set_num_threads(1)
    spec = next(spec for spec in load_project(ROOT).models if spec.id == name)
    model: Any = wrap_with_call_objects(load_model(spec, ROOT), spec, ROOT)
    inputs = draw_inputs(spec, choose_usual_sets(spec)[0], ROOT)
    export = export_by_job if method == "job" else export_by_public_calls
    try:
        for opset, graph in export(model, spec, inputs, opsets, folder):
            write_artifact(graph, spec, opset, JobFolder(folder), {})
    except Failure as failure:
        (folder / "failure.txt").write_text(failure.stage)
    except torch.onnx.OnnxExporterError as error:
        (folder / "failure.txt").write_text(type(error).__name__)


def export_by_job(model: Any, spec: ModelSpec, inputs: Any, opsets: list[int], folder: Path) -> Any:
    """Export with one capture and the other shared steps for all opsets."""
    program = capture_program(model, spec, inputs, strict=False)
    decompositions = Decompositions()
    for opset in opsets:
        yield opset, convert_program(program, spec, opset, folder, decompositions)


def export_by_public_calls(
    model: Any, spec: ModelSpec, inputs: Any, opsets: list[int], folder: Path
) -> Any:
    """Export each opset with its own public call, in the state of the job."""
    call = build_tensor_call(spec, inputs)
    is_dynamic = bool(spec.axes)
    for opset in opsets:
        with apply_state(spec):
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
    preload_capture()
    for line in sys.stdin:
        method, name, folder, *opsets = shlex.split(line)
        process = os.fork()
        if not process:
            os.dup2(2, 1)
            main(method, name, Path(folder), [int(each) for each in opsets])
            sys.exit()
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
