"""The files in a reproducer's folder, and folders that it does not replace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference, Sample
from exporter.manifest import Container, Device, InputsFrom
from exporter.records.record import Record, Source, Stage
from exporter.tools.repro import ReproducedCell, write_reproducer
from tests.unit.factory import make_record, make_spec

SOURCE = Source(file="manifests/models.py", state="0" * 64)


def cell(root: Path, record: Record) -> ReproducedCell:
    """Return a cell of a model that was built in `root`."""
    built = JobFolder(root / "build/alexnet")
    built.sample(0).mkdir(parents=True, exist_ok=True)
    (built.sample(0) / "input_0.pb").write_bytes(b"tensor")
    (built.sample(0) / "output_0.pb").write_bytes(b"tensor")
    sample = Sample(index=0, name="declared", kind="declared", axes={"batch": 3})
    reference = Reference(samples=(sample,), noise=(1e-7,), output_spread=(0.5,))
    built.reference.write_text(reference.to_json())
    (root / "manifests").mkdir(exist_ok=True)
    (root / "manifests/models.py").write_text("# the model\n")
    return ReproducedCell(
        spec=make_spec(),
        record=record,
        device=Device(name="cpu", runtime="onnxruntime"),
        tools={},
        root=root,
        built=built,
    )


def test_sources_and_tensors_are_copied_and_an_earlier_one_is_replaced(tmp_path: Path) -> None:
    listing = Source(file="manifests/*.py", state="1" * 64)
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(SOURCE, listing)))
    folder = tmp_path / "out"
    for _ in range(2):
        write_reproducer(failed_cell, folder)
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
        assert files == {
            "repro.py",
            "README.md",
            "declared/input_0.pb",
            "showing/input_0.pb",
            "source/manifests/models.py",
        }


@pytest.mark.parametrize("name", ["notes.txt", "repro.py.orig"])
def test_a_folder_with_other_files_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "repro.py").write_text("mine")
    (folder / name).write_text("mine")
    with pytest.raises(ExporterError, match="contains other files") as caught:
        write_reproducer(cell(tmp_path, make_record("alexnet/17/cpu", "fail")), folder)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert (folder / "repro.py").read_text() == "mine"


@pytest.mark.parametrize("file", ["../outside.py", "/etc/outside.py", "a/../../outside.py"])
def test_a_record_cannot_name_files_outside(file: str, tmp_path: Path) -> None:
    source = Source(file=file, state="0" * 64)
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(source,)))
    with pytest.raises(ExporterError, match="is outside the project"):
        write_reproducer(failed_cell, tmp_path / "out")


def test_a_failure_before_the_export_has_no_reproducer(tmp_path: Path) -> None:
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "error", stage=Stage.SOURCE))
    with pytest.raises(ExporterError, match="fails before the export"):
        write_reproducer(failed_cell, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_call_of_inputs_from_is_read_from_the_build_folder(tmp_path: Path) -> None:
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(SOURCE,)))
    spec = failed_cell.spec.model_copy(
        update={"inputs_from": InputsFrom(function="models.py:make")}
    )
    failed_cell = replace(failed_cell, spec=spec)
    with pytest.raises(ExporterError, match="export the model again"):
        write_reproducer(failed_cell, tmp_path / "out")
    inputs = tuple(
        item.model_copy(update={"at": f"kwargs.given{index}"})
        for index, item in enumerate(spec.inputs)
    )
    failed_cell.built.contract.write_text(spec.model_copy(update={"inputs": inputs}).to_json())
    write_reproducer(failed_cell, tmp_path / "out")
    assert "'given0': inputs[" in (tmp_path / "out" / "repro.py").read_text()


def test_a_class_that_a_script_cannot_import_is_an_error(tmp_path: Path) -> None:
    failed_cell = cell(tmp_path, make_record("alexnet/17/cpu", "fail", sources=(SOURCE,)))
    containers = (Container(at="args[7]", type="my-models/x.py:Cache"),)
    failed_cell = replace(
        failed_cell, spec=failed_cell.spec.model_copy(update={"containers": containers})
    )
    with pytest.raises(ExporterError, match="a script cannot import my-models"):
        write_reproducer(failed_cell, tmp_path / "out")


def test_a_plugin_runtime_has_no_reproducer(tmp_path: Path) -> None:
    device = Device.model_construct(name="npu", runtime="vendor")
    plugin = replace(cell(tmp_path, make_record("alexnet/17/cpu", "fail")), device=device)
    with pytest.raises(ExporterError, match="plugin runtime 'vendor'"):
        write_reproducer(plugin, tmp_path / "repro")
