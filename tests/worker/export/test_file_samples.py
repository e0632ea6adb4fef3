"""Samples for conditions of a capture, branches of a trace, operators and single sizes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
import torch

from exporter.checks.protocol import SampleCache
from exporter.jobs import (
    LONG_SWEEP,
    SWEEP,
    Job,
    JobFolder,
    OpsetJob,
    Reference,
    list_groups,
    name_capture,
    write_json,
)
from exporter.manifest import Axis, ModelSpec
from exporter.planning.plan import choose_route
from exporter.records.record import EQUAL_VALUES, TRACER_PREFIX, Record, Status
from exporter.worker.export import file_samples, size_terms
from exporter.worker.export.attempts import Captures
from exporter.worker.export.operator_regions import choose_revealing_draws
from exporter.worker.export.size_terms import (
    CapturedConditions,
    choose_breaking_sizes,
    parse_term,
    read_conditions,
)
from exporter.worker.inputs.input_sets import choose_usual_sets, list_sweep
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.source_loader import load_model
from exporter.worker.recheck import recheck
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
    chosen, unproved = choose_breaking_sizes(read_conditions(program, spec), spec, sizes)
    assert not unproved
    return chosen


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
    assert [record.status for record in records] == [Status.FAIL] * 3
    assert all("batch=31" in record.message for record in records)
    assert reference.captures == ("trace inference", SWEEP, "export inference")
    (sample,) = (sample for sample in reference.samples if "batch=31" in sample.name)
    assert (sample.name, sample.captures) == ("batch=31", ("trace inference", "export inference"))
    alone = sample.model_copy(update={"captures": ("export inference",)})
    reference = reference.model_copy(update={"samples": (alone,)})
    assert not reference.select(records[0].route).samples
    assert reference.select(records[1].route).samples == (alone,)


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
    opset = OpsetJob(opset=18, route=choose_route(spec, 18), devices=(CPU,), reuse_from=spec.id)
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


def test_a_condition_without_a_sample_is_a_note() -> None:
    axes = {name: (name, 1) for name in ("batch", "s5")}
    texts = [f"batch != {size}" for size in range(100, 118)] + ["batch < 4194304"]
    terms = tuple(term for text in texts if (term := parse_term(text)))
    captured = CapturedConditions(terms, axes, ("condition `f(n)` of the capture: unknown",))
    sizes, unproved = choose_breaking_sizes(captured, declare("Long"), [{"batch": 3}])
    assert [each["batch"] for each in sizes] == list(range(100, 116))
    first, *others, large = unproved
    assert first == captured.unread[0]
    assert [other.split("`")[1] for other in others] == texts[16:18]
    assert all("only 16 conditions get a sample" in other for other in others)
    assert "more than 4194304 elements" in large


def test_a_condition_that_no_promised_size_breaks_is_no_note() -> None:
    term = parse_term("batch <= 30")
    assert term is not None
    captured = CapturedConditions((term,), {"batch": ("batch", 1)})
    spec = declare("Long", axes=(Axis(name="batch", example=3, max=30),))
    assert choose_breaking_sizes(captured, spec, [{"batch": 3}]) == ((), ())


def test_a_condition_on_an_unknown_number_is_unread() -> None:
    program = SimpleNamespace(range_constraints={})
    texts = ("s5 <= 9", "u0 <= 9", "g(s77)")
    with (
        patch.object(size_terms, "_list_dimensions", return_value=[("s77", "batch")]),
        patch.object(size_terms, "list_conditions", return_value=texts),
    ):
        captured = read_conditions(cast("Any", program), declare("Long"))
    assert [text.split("`")[1] for text in captured.unread] == ["s5 <= 9", "g(s77)"]


def test_the_sweep_gives_each_axis_each_small_size() -> None:
    spec = declare_picture("Square", max=20)
    known = [{"height": 5, "width": 7}, {"height": 1, "width": 1}]
    sizes = [chosen.sizes for chosen in list_sweep(spec, known)]
    assert {each["height"] for each in sizes} == {*range(1, 21)} - {1, 5}
    assert {each["width"] for each in sizes} == {*range(1, 65)} - {1, 7}
    assert len(sizes) == 62
    few = [chosen.sizes["width"] for chosen in list_sweep(spec, known, 16, 1 << 21)]
    assert len(few) == 7  # a run takes twice as long with these weights
    assert not list(list_sweep(spec, known, 16, 1 << 25))
    wide = declare("Long", inputs=(declare_input("x", "batch", 1 << 13),))
    assert [chosen.sizes for chosen in list_sweep(wide, [{"batch": 3}])] == [
        {"batch": 1},
        {"batch": 2},
    ]


def test_files_with_uneven_operators_have_a_longer_sweep() -> None:
    route = choose_route(declare("Long"), 18)
    assert list_groups(route, ("Add", "Resize")) == ("export inference", LONG_SWEEP)
    assert list_groups(route, ("custom::Op",)) == ("export inference", LONG_SWEEP)
    assert list_groups(route, ("Add", "Shape")) == ("export inference", SWEEP)
    assert list_groups(None, ()) == (SWEEP,)


class _Pool(torch.nn.Module):
    """A pooling with or without a divisor of its own, which counts its calls."""

    def __init__(self, divisor: int | None) -> None:
        super().__init__()
        self.divisor, self.calls = divisor, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.nn.functional.avg_pool2d(x[None], 2, divisor_override=self.divisor)[0]


@pytest.mark.parametrize(("divisor", "calls"), [(None, 1), (3, 2), (4, 64)])
def test_a_call_that_every_file_computes_needs_no_further_draw(
    divisor: int | None, calls: int
) -> None:
    spec, model = declare_picture("Square"), _Pool(divisor)
    context = cast("Any", SimpleNamespace(spec=spec, root=ROOT, model=model))
    draws, hidden = choose_revealing_draws(context, choose_route(spec, 18), ["aten.avg_pool2d.out"])
    assert not draws
    assert bool(hidden) == (divisor == 4)  # a window of four elements is divided by 4 in any case
    assert model.calls == calls


def test_each_operator_with_a_region_is_tried_if_torch_does_not_list_those_of_a_trace() -> None:
    context = SimpleNamespace(spec=declare_picture("Square"), root=ROOT, model=_Pool(4))
    _, hidden = choose_revealing_draws(cast("Any", context), choose_route(context.spec, 18), [])
    assert hidden == ["avg_pool2d of divisor_override: no draw reaches it with another output"]


@pytest.mark.parametrize(("reads", "runs"), [(False, 1), (True, 11)])
def test_a_line_that_reads_a_size_only_in_the_trace_needs_one_run(
    reads: bool, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{Path(__file__).name}:1"
    paths = []

    def follow(_: object, inputs: object) -> SimpleNamespace:
        paths.append(inputs)
        if reads:
            torch.ones(1).item()
        return SimpleNamespace(has_failed=False, has_branch=False, instructions=set())

    monkeypatch.setattr(file_samples, "find_frame_line", lambda *_: line)
    monkeypatch.setattr(file_samples, "read_input_tensors", lambda *_: {})
    monkeypatch.setattr(file_samples.model_branches, "follow_inputs", follow)
    spec = declare_picture("Square")
    known = [
        SimpleNamespace(index=index, error="", axes={"height": 5, "width": 7}) for index in range(3)
    ]
    note = f"{TRACER_PREFIX}{line}: Converting a tensor to a Python float"
    job: Any = SimpleNamespace(spec=spec, root=ROOT)
    samples: Any = known
    exported: Any = SimpleNamespace(notes=(note,))
    texts = list(file_samples._list_equal_values(job, JobFolder(Path("unused")), samples, exported))
    assert (texts, len(paths)) == ([f"{EQUAL_VALUES}{line}"] * reads, runs)
