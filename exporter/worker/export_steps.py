"""The steps of a job: one for each file or capture, which writes and checks its files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from exporter.cache.states import read_tool_versions
from exporter.jobs import OpsetJob
from exporter.records.record import Stage
from exporter.worker.diagnosis.links import require_same_initial_weights
from exporter.worker.export import chain_file, weight_interface
from exporter.worker.export.attempts import (
    Captures,
    ExportedFile,
    ExportedGraph,
    export_module,
    export_program,
    follow_route,
    require_capture,
)
from exporter.worker.export.convert import collect_converter_warnings
from exporter.worker.export.graph_names import rename_weights
from exporter.worker.export.write_onnx import (
    copy_artifact,
    rename_exporter_reports,
    write_artifact,
)
from exporter.worker.file_check import FileCheck
from exporter.worker.prepared_job import PreparedJob
from exporter.worker.process.failure import Failure
from exporter.worker.reference.python_state import ModelSnapshot
from exporter.worker.torch_private.graph_operators import (
    count_captured_operators,
    count_traced_operators,
)
from exporter.worker.verify.run_checks import (
    StageTimes,
)

#: One file, or the files of one capture.
Step: TypeAlias = Callable[[], None]


def list_steps(job: PreparedJob, opsets: tuple[OpsetJob, ...]) -> list[Step]:
    """Return the steps of the job in their order, one for each file or capture."""
    if job.output.spec.chain:
        return [partial(_check_chain, job, opset) for opset in opsets]
    if job.output.spec.artifact:
        return [partial(_check_finished_file, job, opset) for opset in opsets]
    # TorchScript first: its opsets are cheap, and a crash of the capture does not affect them.
    steps: list[Step] = [
        partial(_export_by_opset, job, opset)
        for opset in opsets
        if opset.route.exporter != "dynamo"
    ]
    # One capture for all opsets, unless an override asks for another kind of capture.
    groups: dict[Hashable, list[OpsetJob]] = {}
    for opset in opsets:
        if opset.route.exporter == "dynamo":
            routes = job.list_routes(opset)
            groups.setdefault(tuple((r.capture, r.state) for r in routes), []).append(opset)
    return steps + [partial(_export_by_dynamo, job, tuple(group)) for group in groups.values()]


def _check_finished_file(job: PreparedJob, opset: OpsetJob) -> None:
    """Copy and check the artifact of one opset."""
    output, times = job.output, StageTimes(job.times)
    output.announce(Stage.CONVERT, (opset,))
    try:
        with times.measure(Stage.CONVERT):
            notes = copy_artifact(output.spec, opset.opset, output.root, output.folder)
    except Failure as failure:
        output.write_failures((opset,), failure, times)
        return
    exported = ExportedFile(route=opset.route, notes=notes)
    FileCheck(job, job.make_opset_export(opset), exported, times).run()


def _check_chain(job: PreparedJob, opset: OpsetJob) -> None:
    """Write the chain of one opset and check it where all of its links are green."""
    output, times = job.output, StageTimes(job.times)
    for part, failure in chain_file.split_by_links(opset):
        output.announce(Stage.CONVERT, (part,))
        try:
            if failure:
                raise failure
            require_same_initial_weights(output.job, output.root, job.model)
            with times.measure(Stage.CONVERT):
                chain_file.write_chain(output.job, part, output.spec)
        except Failure as problem:
            output.write_failures((part,), problem, times)
        else:
            exported = ExportedFile(route=part.route)
            FileCheck(job, job.make_opset_export(part), exported, times).run()


def _export_by_opset(job: PreparedJob, opset: OpsetJob) -> None:
    """Convert, write and check one opset without a capture."""
    output, times = job.output, StageTimes(job.times)
    output.announce(Stage.CONVERT, (opset,))
    state = ModelSnapshot(job.model)
    scratch = output.folder.path / ".scratch" / f"{opset.opset}.onnx"
    opset_export = job.make_opset_export(opset)
    output.operators = {}
    try:
        with times.measure(Stage.CONVERT), count_traced_operators() as output.operators:
            exported = export_module(opset_export, job.list_routes(opset), scratch)
            _write_file(job, opset.opset, exported)
    except Failure as failure:
        job.write_failures(opset_export, (opset,), failure, times)
        return
    finally:
        state.restore()
        shutil.rmtree(scratch.parent, ignore_errors=True)
    try:
        FileCheck(job, follow_route(opset_export, exported), exported, times).run()
    finally:
        state.restore()


def _export_by_dynamo(job: PreparedJob, opsets: tuple[OpsetJob, ...]) -> None:
    """Capture once, then convert, write and check each opset."""
    output = job.output
    captures = Captures(job.model, output.spec, job.inputs, output.root)
    output.announce(Stage.CAPTURE, opsets)
    output.operators = {}
    try:
        with job.times.measure(Stage.CAPTURE):
            first = require_capture(captures, job.list_routes(opsets[0]))
    except Failure as failure:
        job.write_failures(job.make_opset_export(opsets[0]), opsets, failure, job.times)
        return
    output.operators = count_captured_operators(first.program)
    # From the highest opset down: its decomposition serves most of the others, too.
    for opset in reversed(opsets):
        output.announce(Stage.CONVERT, (opset,))
        times = StageTimes(job.times)
        opset_export = replace(
            job.make_opset_export(opset), program=first.program, decompositions=first.decompositions
        )
        try:
            with times.measure(Stage.CONVERT), collect_converter_warnings() as notes:
                reports = output.folder.artifacts(opset.opset)
                exported = export_program(opset_export, job.list_routes(opset), captures, reports)
                _write_file(job, opset.opset, exported)
                notes.extend(rename_exporter_reports(reports, output.folder.path))
        except Failure as failure:
            job.write_failures(opset_export, (opset,), failure, times)
        else:
            exported = replace(exported, notes=(*notes, *exported.notes))
            FileCheck(job, follow_route(opset_export, exported), exported, times).run()


def _write_file(job: PreparedJob, opset: int, exported: ExportedGraph) -> None:
    output = job.output
    tools = read_tool_versions()
    route = exported.route
    state = "" if route.state == "inference" else f" {route.state}"
    provenance = {
        "model": output.spec.id,
        "fingerprint": output.job.fingerprint.get("entry", ""),
        "route": f"{route.exporter} {route.capture}{state}",
        **{name: tools[name] for name in ("torch", "onnx", "onnxscript", "exporter")},
    }
    rename_weights(exported.graph, job.names)
    spec = output.spec.resolve_cell(opset)
    if spec.weights_are_inputs:
        weight_interface.move_weights_to_inputs(exported.graph, job.weight_inputs)
    write_artifact(exported.graph, spec, opset, output.folder, provenance)
