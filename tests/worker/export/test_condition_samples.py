"""Samples for the conditions of a captured program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.checks.files.sample_files import SampleCache
from exporter.jobs.job import Job, OpsetJob
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.jobs.reference import Reference, name_capture
from exporter.manifest import Axis, ModelSpec
from exporter.planning.plan import choose_route
from exporter.records.record import Record, Status
from exporter.worker.export.attempts import Captures
from exporter.worker.export.captured_conditions import choose_breaking_sizes, read_conditions
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.source_loader import load_model
from exporter.worker.verify.recheck import recheck
from tests.traps.prove import CPU, export
from tests.traps.trap import ROOT, contract, declare_input, declare_output


def declare(net: str, **changes: object) -> ModelSpec:
    return contract(f"branches.py:{net}", 18, **changes)


def declare_picture(net: str, **height: Any) -> ModelSpec:
    return declare(
        net,
        inputs=(declare_input("x", 2, "height", "width"),),
        outputs=(declare_output("y", 2, "height", "width"),),
        axes=(
            Axis.model_validate({"name": "height", "example": 5} | height),
            Axis(name="width", example=7),
        ),
    )


def choose_sizes(spec: ModelSpec, *, known: bool = True) -> tuple[dict[str, int], ...]:
    model, sets = load_model(spec, ROOT), choose_usual_sets(spec)
    captures = Captures(model, spec, draw_inputs(spec, sets[0], ROOT))
    program = captures.capture(choose_route(spec, 18)).program
    sizes = [chosen.sizes for chosen in sets] if known else [sets[0].sizes]
    return choose_breaking_sizes(read_conditions(program, spec), spec, sizes)


def test_the_nearest_size_breaks_a_limit() -> None:
    assert choose_sizes(declare("Long")) == ({"batch": 31},)


def test_a_size_that_is_not_promised_is_not_chosen() -> None:
    assert choose_sizes(declare("Long", axes=(Axis(name="batch", example=3, max=30),))) == ()


def test_other_samples_may_break_a_condition() -> None:
    assert choose_sizes(declare("Aligned")) == ()
    (sizes,) = choose_sizes(declare("Aligned"), known=False)
    assert sizes["batch"] % 8 == 0


def test_equal_axes_break_a_condition() -> None:
    (sizes,) = choose_sizes(declare_picture("Square"), known=False)
    assert sizes["height"] == sizes["width"]


def test_the_contract_may_exclude_equal_axes() -> None:
    assert all(
        sizes["height"] % 4 == 0 and sizes["height"] == sizes["width"]
        for sizes in choose_sizes(
            declare_picture("Square", example=8, multiple_of=4, min=8), known=False
        )
    )


def _export_both(folder: Path) -> tuple[tuple[Record, ...], Reference]:
    spec = declare("Long", opsets=(13, 18, 20))
    records = export(spec, folder)
    return records, Reference.read(JobFolder(folder).reference.read_bytes())


def test_only_files_of_the_capture_have_the_samples(tmp_path: Path) -> None:
    records, reference = _export_both(tmp_path / "trap")
    first, *others = records
    assert (first.cell.opset, first.status) == (13, Status.PASS)  # no condition in a trace
    assert [record.status for record in others] == [Status.FAIL, Status.FAIL]
    assert all("batch=31" in record.message for record in others)
    assert reference.captures == ("export inference",)
    (sample,) = (sample for sample in reference.samples if sample.captures)
    assert (sample.name, sample.captures) == ("batch=31", reference.captures)
    assert sample not in reference.select(first.route).samples
    assert sample in reference.select(others[0].route).samples


def test_the_verdict_does_not_depend_on_other_opsets(tmp_path: Path) -> None:
    records, _ = _export_both(tmp_path / "both")
    (alone,) = export(declare("Long"), tmp_path / "alone")
    match = next(record for record in records if record.cell == alone.cell)
    assert (match.status, match.message) == (alone.status, alone.message)
    assert match.artifact == alone.artifact


def test_a_recheck_needs_the_samples_of_its_capture(tmp_path: Path) -> None:
    spec = declare("LongAlike")
    (record,) = export(spec, tmp_path / "trap")
    assert record.status is Status.PASS
    source = JobFolder(tmp_path / "trap")
    opset = OpsetJob(opset=18, route=choose_route(spec, 18), devices=(CPU,), reuse_file=True)
    first = _recheck(spec, opset, tmp_path, "first")
    assert [each.status for each in first or ()] == [Status.PASS]
    reference = Reference.read(source.reference.read_bytes())
    assert name_capture(record.route) in reference.captures
    write_json(source.reference, reference.model_copy(update={"captures": ()}))
    assert _recheck(spec, opset, tmp_path, "second") is None


def _recheck(spec: ModelSpec, opset: OpsetJob, build: Path, name: str) -> list[Record] | None:
    folder = build / name
    (folder / "logs").mkdir(parents=True)
    job = Job(spec=spec, root=str(ROOT), build=str(build), folder=str(folder), opsets=(opset,))
    return recheck(job, opset, SampleCache())
