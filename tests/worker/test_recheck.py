"""Another file is proved by the samples of a finished job, unless its verdict needs the model."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from exporter.jobs import JobFolder, Reference, write_json
from exporter.manifest import ModelSpec
from exporter.records.record import Record, Status
from exporter.worker.recheck import prove_other_file
from tests.traps.prove import CPU, export
from tests.worker.contracts import declare_input, make_contract

SIGNATURE = "x [batch, 4], k [] -> total []"
OPSET = 17


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelSpec, Path, Record]:
    folder = tmp_path_factory.mktemp("build") / "net"
    spec = make_contract("ScaledMean", SIGNATURE, opsets=(OPSET,))
    (record,) = export(spec, folder)
    assert record.status is Status.PASS, record.message
    return spec, folder, record


def prove(
    job: tuple[ModelSpec, Path, Record], path: Path, spec: ModelSpec | None = None
) -> tuple[Record, ...]:
    return prove_other_file(job[1], spec or job[0], path, OPSET, CPU, job[2])


def test_a_right_file_passes_all_checks_with_its_own_names(
    job: tuple[ModelSpec, Path, Record], tmp_path: Path
) -> None:
    spec, folder, own = job
    file = onnx.load(JobFolder(folder).model(OPSET))
    file.graph.input[0].name = "onnx::first"
    for node in file.graph.node:
        node.input[:] = ["onnx::first" if each == "x" else each for each in node.input]
    onnx.save(file, tmp_path / "other.onnx")
    renamed = (declare_input("onnx::first"), *spec.inputs[1:])
    (record,) = prove(job, tmp_path / "other.onnx", spec.model_copy(update={"inputs": renamed}))
    assert (record.status, record.message) == (Status.PASS, "")
    assert [each.check for each in record.checks] == [each.check for each in own.checks]
    # With the names of the entry it does not.
    assert prove(job, tmp_path / "other.onnx") == ()


def test_a_wrong_file_needs_the_model(job: tuple[ModelSpec, Path, Record], tmp_path: Path) -> None:
    file = onnx.load(JobFolder(job[1]).model(OPSET))
    name = file.graph.output[0].name
    file.graph.node[-1].output[0] = "exact"
    file.graph.initializer.append(numpy_helper.from_array(np.float32(1.01), "factor"))
    file.graph.node.append(onnx.helper.make_node("Mul", ["exact", "factor"], [name]))
    path = tmp_path / "wrong.onnx"
    onnx.save(file, path)
    assert prove(job, path) == ()
    path.write_bytes(b"no file")
    assert prove(job, path) == ()


def test_the_samples_must_be_those_of_such_a_file_and_no_check_may_need_the_model(
    job: tuple[ModelSpec, Path, Record], tmp_path: Path
) -> None:
    spec, folder, own = job
    path = JobFolder(folder).model(OPSET)
    copy = tmp_path / "net"
    shutil.copytree(folder, copy)
    reference = Reference.read(JobFolder(folder).reference.read_bytes())
    changes: dict[str, object]
    for changes in ({"captures": ()}, {"constant_weights": ("weight",)}):
        write_json(JobFolder(copy).reference, reference.model_copy(update=changes))
        assert prove_other_file(copy, spec, path, OPSET, CPU, own) == ()
    write_json(JobFolder(copy).reference, reference)
    assert prove_other_file(copy, spec, path, OPSET, CPU, own)
    write_json(JobFolder(copy).contract, spec)
    assert prove_other_file(copy, spec, path, OPSET, CPU, own) == ()


def test_a_known_problem_of_the_model_is_that_of_its_files(tmp_path: Path) -> None:
    """An output that no input changes proves no file."""
    spec = make_contract("ScaledMean", SIGNATURE, opsets=(OPSET,), tolerance={"atol": 1e3})
    (own,) = export(spec, tmp_path / "net")
    assert (own.status, own.check) == (Status.INCONCLUSIVE, "power")
    own = own.model_copy(update={"advice": ("other inputs",)})
    path = JobFolder(tmp_path / "net").model(OPSET)
    (record,) = prove_other_file(tmp_path / "net", spec, path, OPSET, CPU, own)
    assert (record.status, record.message) == (own.status, own.message)
    assert record.advice == own.advice
    other = own.model_copy(update={"message": "another"})
    assert prove_other_file(tmp_path / "net", spec, path, OPSET, CPU, other) == ()
