"""Jobs are divided between workers by their earlier times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.jobs import OpsetJob
from exporter.manifest import Device
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.schedule import Cost, count_parts, divide_opsets, estimate_costs, make_tasks
from exporter.records.record import Record
from tests.unit.factory import DYNAMO, make_artifact, make_record, make_run
from tests.unit.pipeline.builders import job, spec

CPU = (Device(name="cpu", runtime="onnxruntime"),)


def opsets(count: int, *, rechecked: int = 0) -> tuple[OpsetJob, ...]:
    """Return `count` opsets. The first ones are rechecks."""
    return tuple(
        OpsetJob(
            opset=18 + index, route=DYNAMO, devices=CPU, reuse_from="net" * (index < rechecked)
        )
        for index in range(count)
    )


def cost(shared: float, per_opset: float, size: int = 1) -> Cost:
    return Cost(shared=shared, export=per_opset / 2, checks=per_opset / 2, bytes=size)


def parts_of_job(tmp_path: Path, known: Cost, device: Device, **fields: Any) -> int:
    """Return the number of parts of a model with eight opsets for two workers."""
    of = job(tmp_path / "build/.work/first", spec(opsets=tuple(range(18, 26)), **fields))
    opsets = tuple(opset.model_copy(update={"devices": (device,)}) for opset in of.opsets)
    build = BuildFolder(tmp_path / "build")
    (build.path / ".work").mkdir(parents=True)
    of = of.model_copy(update={"opsets": opsets})
    return len(make_tasks([of], {of.spec.id: known}, build, workers=2))


OPENVINO = Device(name="ov", runtime="openvino")


@pytest.mark.parametrize(
    ("known", "device", "fields", "parts"),
    [
        (cost(6, 1), CPU[0], {}, 2),
        (cost(6, 1, size=1 << 29), CPU[0], {}, 2),
        (cost(6, 1, size=1 << 30), CPU[0], {}, 1),
        (cost(6, 1), CPU[0], {"measure": ("latency",)}, 1),
        (cost(6, 1), CPU[0], {"export_device": "cuda"}, 1),
        (cost(6, 1), CPU[0].model_copy(update={"providers": ("CPUExecutionProvider",)}), {}, 2),
        (cost(6, 1), CPU[0].model_copy(update={"providers": ("CUDAExecutionProvider",)}), {}, 1),
        (cost(6, 1), OPENVINO, {}, 2),
        (cost(6, 1), OPENVINO.model_copy(update={"device": "GPU"}), {}, 1),
    ],
)
def test_large_gpu_and_measured_jobs_are_not_divided(
    tmp_path: Path, known: Cost, device: Device, fields: dict[str, Any], parts: int
) -> None:
    assert parts_of_job(tmp_path, known, device, **fields) == parts


SHORT, LONG = cost(6, 1), cost(60, 10)


@pytest.mark.parametrize(
    ("costs", "count", "workers", "undivided", "parts"),
    [
        # The second-longest job is divided if the longest one cannot be.
        ({"a": cost(7, 1), "b": LONG}, 8, 2, "", {"a": 1, "b": 2}),
        ({"a": cost(7, 1), "b": LONG}, 8, 2, "b", {"a": 1, "b": 1}),
        ({"a": cost(61, 10), "b": LONG}, 8, 3, "a", {"a": 1, "b": 1}),
        ({"a": LONG, "b": LONG}, 8, 4, "a", {"a": 1, "b": 1}),
        # A single model is divided if workers are idle.
        ({"a": SHORT}, 8, 2, "", {"a": 2}),
        ({"a": SHORT}, 8, 1, "", {"a": 1}),
        (dict.fromkeys("abcdefgh", SHORT), 8, 2, "", dict.fromkeys("abcdefgh", 1)),
        ({"a": LONG, "b": SHORT, "c": SHORT}, 8, 2, "", {"a": 2, "b": 1, "c": 1}),
        ({"a": cost(3, 1), "b": cost(3, 1)}, 9, 8, "", {"a": 3, "b": 3}),
        # never made, few opsets, mostly shared, soon done
        ({"a": None}, 8, 4, "", {"a": 1}),
        ({"a": SHORT}, 5, 4, "", {"a": 1}),
        ({"a": cost(60, 1)}, 8, 4, "", {"a": 1}),
        ({"a": cost(0.6, 0.1)}, 8, 4, "", {"a": 1}),
        # A job of unknown length counts like the longest: the run takes 14 s in any case.
        ({"a": SHORT, "b": None}, 8, 2, "", {"a": 1, "b": 1}),
        ({"a": SHORT, "b": None}, 8, 8, "", {"a": 1, "b": 1}),
    ],
)
def test_a_job_is_divided_if_the_run_ends_earlier(
    costs: dict[str, Cost | None], count: int, workers: int, undivided: str, parts: dict[str, int]
) -> None:
    known = {name: each for name, each in costs.items() if each}
    jobs = dict.fromkeys(costs, opsets(count))
    assert count_parts(jobs, known, workers, {*undivided}) == parts


def test_rechecks_have_no_shared_cost() -> None:
    full_cost = cost(60, 2)
    assert full_cost.estimate_seconds(opsets(8, rechecked=8)) == 8
    assert full_cost.estimate_seconds(opsets(8, rechecked=7)) == 69
    assert count_parts({"a": opsets(8, rechecked=8)}, {"a": full_cost}, 2) == {"a": 2}


WORK = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(
        st.integers(1, 19),
        st.none() | st.tuples(st.floats(0, 100), st.floats(0, 20)),
    ),
    min_size=1,
)


@given(WORK, st.integers(1, 16))
def test_a_division_is_small_and_never_delays_the_end(
    work: dict[str, tuple[int, tuple[float, float] | None]], workers: int
) -> None:
    jobs = {model: opsets(count) for model, (count, _) in work.items()}
    costs = {model: cost(*known) for model, (_, known) in work.items() if known}
    parts = count_parts(jobs, costs, workers)
    assert parts.keys() == jobs.keys()
    for model, count in parts.items():
        pieces = divide_opsets(jobs[model], count)
        assert sorted(o.opset for piece in pieces for o in piece) == [o.opset for o in jobs[model]]
        if count > 1:
            assert model in costs
            assert count <= workers
            assert min(map(len, pieces)) >= 3
            longest = max(costs[model].estimate_seconds(piece) for piece in pieces)
            assert longest < costs[model].estimate_seconds(jobs[model])
    before, after = ends(jobs, costs, {}, workers), ends(jobs, costs, parts, workers)
    assert after == before if set(parts.values()) == {1} else after <= before * 0.9


def ends(
    jobs: dict[str, tuple[OpsetJob, ...]],
    costs: dict[str, Cost],
    parts: dict[str, int],
    workers: int,
) -> float:
    """Return the end of the last worker. Unknown jobs count as long."""
    pieces = [
        costs[model].estimate_seconds(piece)
        for model, full_cost in jobs.items()
        if model in costs
        for piece in divide_opsets(full_cost, parts.get(model, 1))
    ]
    longest = max(
        (cost.estimate_seconds(jobs[model]) for model, cost in costs.items()), default=0.0
    )
    pieces += [longest] * (len(jobs) - len(costs))
    at = [0.0] * workers
    for seconds in sorted(pieces, reverse=True):
        at[at.index(min(at))] += seconds
    return max(at)


def test_one_long_job_among_thousands_is_found() -> None:
    jobs = {f"m{index}": opsets(8) for index in range(1250)}
    costs = {model: cost(6, 1) for model in jobs} | {"m0": cost(6000, 1000)}
    assert {model for model, count in count_parts(jobs, costs, 64).items() if count > 1} == {"m0"}


def took(cell: str, **seconds: float) -> Record:
    artifact = make_artifact("a", int(cell.split("/")[1]), bytes=77)
    return make_record(cell, artifact=artifact).model_copy(update={"seconds": seconds})


def test_a_cost_separates_shared_time_from_time_per_opset() -> None:
    shared = {"source": 1.0, "reference": 2.0, "capture": 3.0}
    records = [
        took("a/18/cpu", **shared, convert=0.5, structure=0.1, parity=0.4),
        took("a/18/gpu", **shared, convert=0.5, structure=0.1, parity=0.9),
        took("a/19/cpu", **shared, convert=0.5, structure=0.1, parity=0.4),
        took("a/19/gpu", **shared, convert=0.5, structure=0.1, parity=0.9),
        took("a/20/cpu", **shared, convert=2.5, structure=0.1, parity=0.4),
        took("a/20/gpu", **shared, convert=2.5, structure=0.1, parity=0.9),
    ]
    costs = estimate_costs({"a": make_run(*records).by_cell()})["a"]
    assert costs.shared == pytest.approx(6 + 2)  # the first conversion includes the decomposition
    assert costs.export == pytest.approx(0.5)
    assert costs.checks == pytest.approx(1.5)
    assert costs.bytes == 77


def test_records_without_times_are_ignored() -> None:
    unmeasured = make_record("a/18/cpu", "crash")
    assert estimate_costs({"a": make_run(unmeasured).by_cell(), "b": {}}) == {}
    measured = took("a/19/cpu", convert=1.0)
    assert estimate_costs({"a": make_run(unmeasured, measured).by_cell()})["a"].export == 1.0


def test_models_without_times_are_ordered_by_their_accepted_nodes(tmp_path: Path) -> None:
    build = BuildFolder(tmp_path / "build")
    jobs = [
        job(tmp_path / "build/.work" / name, spec(id=name))
        for name in ("known", "small", "unknown", "large")
    ]
    sizes = {"large": 900, "small": 20}
    tasks = make_tasks(jobs, {"known": cost(6, 1)}, build, 2, lambda: sizes)
    assert [task.job.spec.id for task in tasks] == ["large", "small", "unknown", "known"]
