"""The explanation of a red file whose reference is another file: its weights, its first wrong node.

Nothing is exported again, because there is no model in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from exporter.checks.comparison.compare_samples import remove_tolerance_advice
from exporter.checks.file_differences import compare_weights
from exporter.checks.model_file import read_model
from exporter.checks.protocol import CheckedFile
from exporter.checks.sample_checks import SAMPLE_KINDS
from exporter.manifest import Device
from exporter.records.record import Blame, Culprit, Record, Stage, Status
from exporter.runtimes import RunFailure, open_session
from exporter.worker.diagnosis.first_divergence import find_first_difference
from exporter.worker.diagnosis.replay import (
    SampleReplay,
    find_exchanged_outputs,
    find_failing_sample,
)
from exporter.worker.model.onnx_model import OnnxModel


def explain_against_file(
    model: OnnxModel, record: Record, checked: CheckedFile, device: Device
) -> Iterator[dict[str, Any]]:
    """Yield the weights that differ before the message, then the first wrong node."""
    message = record.message
    yield {"message": message}
    failed = [each for each in record.checks if each.status is Status.FAIL]
    if record.stage not in (Stage.STRUCTURE, Stage.PARITY) or not failed:
        return
    reference, path = model.file.path, checked.path
    weights = compare_weights(
        read_model(path), path.parent, read_model(reference), reference.parent
    )
    compared = next((each.check for each in failed if each.check in SAMPLE_KINDS), "")
    weights = weights.blame_values() if compared else weights
    if weights.problems:
        message = f"{weights.problems[0]}; {remove_tolerance_advice(message)}"
        yield {"message": message}
    if not compared:
        return
    session = open_session(path, device, checked.kernels)
    sample = find_failing_sample(compared, checked, session, device.name)
    if sample is None or sample.error:
        return
    replay = SampleReplay(checked, device.name, sample)
    inputs = replay.data.inputs
    names = [output.name for output in checked.spec.outputs]
    with suppress(RunFailure):
        actual = session.run({name: array.copy() for name, array in inputs.items()})
        if exchanged := find_exchanged_outputs(names, actual, replay.data.outputs):
            message = f"{exchanged}; {message}"
            yield {"message": message}
    load = partial(open_session, device=device, kernels=checked.kernels)
    blame = Blame(
        culprit=Culprit.FILE,
        sample=sample.name,
        evidence=(*weights.problems, *weights.notes),
        allowed=replay.list_limits(),
    )
    yield {"message": message, "blame": blame}
    first = find_first_difference((path, reference), inputs, inputs, load, checked.folder.path)
    yield {"message": message, "blame": blame.model_copy(update={"first": first})}
