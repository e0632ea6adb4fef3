"""The passes of an entry: functions of the project that make the file that ships.

Each pass runs in a process of its own. The files before each pass stay in a folder of the job until
the checks have passed: a failed check needs them to name the pass.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from exporter.checks.model_file import (
    UnreadableModel,
    find_external_data_problems,
    list_external_files,
    read_model,
)
from exporter.checks.protocol import CheckedFile
from exporter.core.files import hash_file
from exporter.core.text import format_bytes, join_names, memory_limit_message
from exporter.jobs import Reference, Sample
from exporter.manifest import Device, ModelSpec
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.records.record import Blame, Culprit, Record, Stage, Status
from exporter.runtimes import Session, open_session
from exporter.worker.diagnosis.explanation import Explanation, explain_record
from exporter.worker.diagnosis.first_divergence import DivergenceSearch
from exporter.worker.diagnosis.replay import SampleReplay, find_failing_sample
from exporter.worker.diagnosis.runtime_values import FileGraph, RuntimeValues
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.export.write_onnx import copy_file
from exporter.worker.job_output import JobOutput
from exporter.worker.process.failure import Failure, format_message
from exporter.worker.process.observed_call import CallReport
from exporter.worker.verify.run_checks import FileProof

_FUNCTION = "exporter.worker.passes.pass_process:run_pass"
#: One pass may use half of the time of the model's job, so that its name is known at a timeout.
_SHARE = 0.5


class PassFailure(Failure):
    """A pass failed; the export before it was right."""

    def __init__(
        self, spec: ModelSpec, number: int, problem: str, status: Status = Status.ERROR
    ) -> None:
        message = format_message(f"{name_pass(spec, number)}: {problem}")
        super().__init__(Stage.CONVERT, message, status=status)
        self.broken_pass = number + 1


def name_pass(spec: ModelSpec, number: int) -> str:
    """Return the name of a pass in messages: `pass 2 of 3 (passes.py:slim)`."""
    return f"pass {number + 1} of {len(spec.passes)} ({spec.passes[number].call})"


def apply(
    output: JobOutput, spec: ModelSpec, opset: int, reference: Reference
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Run all passes on the exported file, and replace it by the last file.

    `output`: The job; its records get the dependencies of the passes.

    Returns:
        The file before each pass, the exported one first, and notes.

    Raises:
        PassFailure: If a pass fails, or writes no valid file at its target.
    """
    folder, final = output.folder.passes(opset), output.folder.model(opset)
    shutil.rmtree(folder, ignore_errors=True)
    files = [_make_path(folder, 0, opset)]
    exported = copy_file(final, files[0])
    notes: list[str] = []
    samples = [output.folder.sample(each.index) for each in choose_samples(reference)]
    for number in range(len(spec.passes)):
        source, target = files[-1], _make_path(folder, number + 1, opset)
        digests = _hash_files(source)
        report = _run(output, spec, number, source, target, samples)
        if report.problem:
            status = Status.KILLED if report.is_out_of_memory else Status.ERROR
            has_limit = report.is_out_of_memory and spec.memory is not None
            text = memory_limit_message(spec.memory or 0) if has_limit else report.problem
            failure = PassFailure(spec, number, text, status)
            failure.detail = report.detail
            raise failure
        if problem := _find_problem(target):
            raise PassFailure(spec, number, problem)
        if _hash_files(source) != digests:
            problem = "changes the file `source`; write only the file `target`"
            raise PassFailure(spec, number, problem)
        name = name_pass(spec, number)
        notes += [f"{name} {text}" for text in _compare_files(source, target)]
        files.append(target)
    copy_file(files[-1], final)
    # Remove external data of the exported file that no file of an opset refers to.
    models = [read_model(path) for path in output.folder.path.glob("*.onnx")]
    used = {name for proto in models for name in list_external_files(proto)}
    for name in set(list_external_files(exported)) - used:
        (output.folder.path / name).unlink(missing_ok=True)
    return tuple(files[:-1]), tuple(notes)


def _make_path(folder: Path, number: int, opset: int) -> Path:
    """Return the path of the file after so many passes, in a folder of its own."""
    path = folder / str(number) / f"{opset}.onnx"
    path.parent.mkdir(parents=True)
    return path


def remove_sources(output: JobOutput, opset: int) -> None:
    """Remove the files before and after each pass, which a right file does not need."""
    folder = output.folder.passes(opset)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # another opset has files
        folder.parent.rmdir()


def choose_samples(reference: Reference) -> list[Sample]:
    """Return the samples for calibration, the declared one first.

    They contain the ends of all ranges, because the checks compare the file there, too.
    """
    return [
        sample
        for sample in reference.promised_samples
        if not sample.error and not sample.captures and sample.factor == 1.0
    ]


def _run(
    output: JobOutput,
    spec: ModelSpec,
    number: int,
    source: Path,
    target: Path,
    samples: Sequence[Path],
) -> CallReport:
    arguments = {
        "root": output.root.resolve(),
        "spec": spec,
        "file_pass": spec.passes[number],
        "source": source.resolve(),
        "target": target.resolve(),
        "samples": [path.resolve() for path in samples],
    }

    def log(line: str) -> None:
        sys.stdout.write(f"{line}\n")  # the output of this process is the log of the job

    try:
        # In the worker's process group, with its limit of memory.
        report = call_in_child(
            _FUNCTION,
            arguments,
            CallReport,
            None,
            seconds=spec.timeout * _SHARE,
            on_line=log,
        )
    except ChildFailure as failure:
        status = Status.ERROR
        if failure.code is None or failure.code < 0:
            kinds = {None: Status.TIMEOUT, -9: Status.KILLED}
            status = kinds.get(failure.code, Status.CRASH)
        raise PassFailure(spec, number, f"its process {failure}", status) from failure
    output.add_report(report)
    return report


def _find_problem(target: Path) -> str:
    """Return why there is no valid file at the target, or ""."""
    if not target.is_file() or target.is_symlink():
        others = sorted(path.name for path in target.parent.iterdir())
        instead = f"{join_names(others)} in place of its target" if others else "nothing"
        return f"writes {instead}; write the file to the path `target`"
    try:
        proto = read_model(target)
    except UnreadableModel as error:
        return f"writes an invalid file: {error}"
    problems = tuple(find_external_data_problems(proto, target.parent))
    if not proto.graph.output:
        problems = ("its graph has no output",)
    return f"writes an invalid file: {problems[0]}" if problems else ""


def _hash_files(path: Path) -> list[str]:
    names = list_external_files(read_model(path))
    return [hash_file(each) for each in (path, *(path.parent / name for name in names))]


def _compare_files(source: Path, target: Path) -> list[str]:
    """Return notes about a pass without effect, or with a larger file."""
    sizes = [
        sum(each.stat().st_size for each in path.parent.iterdir() if each.is_file())
        for path in (source, target)
    ]
    if _read_content(source) == _read_content(target):
        return ["changes nothing; remove it"]
    if sizes[1] > sizes[0]:
        return [f"makes the file larger: {format_bytes(sizes[0])} to {format_bytes(sizes[1])}"]
    return []


def _read_content(path: Path) -> tuple[bytes, list[str]]:
    """Return the graph without the name of its producer, and the hashes of its external data."""
    proto = read_model(path)
    external = [hash_file(path.parent / name) for name in list_external_files(proto)]
    for key in ("producer_name", "producer_version", "doc_string", "metadata_props"):
        proto.ClearField(key)
    return proto.SerializeToString(deterministic=True), external


def explain(
    record: Record,
    sources: Sequence[Path],
    proof: FileProof,
    opset_export: OpsetExport,
    device: Device,
) -> Explanation:
    """Yield the pass that broke the file, or the explanation of the export."""
    spec = proof.checked.spec
    broken = len(sources)
    for number, path in enumerate(sources):
        before = proof.of_other(path).prove(device, is_full=True)
        if before.status.is_red:
            broken = number
            break
    if broken == 0:
        exported = replace(proof.checked, file=sources[0])
        yield from explain_record(before, opset_export, exported, device)
        return
    number = broken - 1
    after = proof.checked.path if broken == len(sources) else sources[broken]
    message = f"{name_pass(spec, number)} breaks the file: {record.message}"
    yield {"message": message, "broken_pass": broken}
    yield {"blame": _blame_pass(record, sources[number], after, proof.checked, device)}


def _blame_pass(
    record: Record, source: Path, target: Path, checked: CheckedFile, device: Device
) -> Blame | None:
    """Return the sample that fails after the pass, and the first value that differs."""
    checked = replace(checked, file=target)
    session = open_session(target, device, checked.kernels)
    sample = find_failing_sample(record.check or "", checked, session, device.name)
    if sample is None or sample.error:
        return None
    replay = SampleReplay(checked, device.name, sample)
    before = replay.compare(open_session(source, device, checked.kernels))
    after = replay.compare(session)

    def load(path: Path) -> Session:
        return open_session(path, device, checked.kernels)

    inputs = replay.data.inputs
    source_values = RuntimeValues("the file before the pass", source, inputs, load)
    target_values = RuntimeValues("the file", target, inputs, load)
    return Blame(
        culprit=Culprit.PASS,
        sample=sample.name,
        evidence=(f"before the pass: {before.text}", f"after the pass: {after.text}"),
        first=DivergenceSearch(FileGraph(target), target_values, source_values).find(),
        allowed=replay.list_limits(),
    )
