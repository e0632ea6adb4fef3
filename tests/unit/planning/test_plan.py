"""The plan has all cells of the manifests and the selected ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.manifest import (
    Device,
    Input,
    Manifest,
    ModelSpec,
    Output,
    Project,
    RuntimeEnvironment,
    Skip,
)
from exporter.planning import Selection
from exporter.planning.plan import (
    choose_route,
    make_plan,
    pattern_matches,
)
from exporter.records.record import CellId, Status
from tests.unit.factory import make_manifest


def spec(id: str = "net", **changes: object) -> ModelSpec:
    values: dict[str, object] = {
        "id": id,
        "manifest": "manifests/a.toml",
        "line": 3,
        "source": "net.py:Net",
        "opsets": (17, 18),
        "devices": ("cpu", "cuda"),
        "inputs": (Input(name="x", shape=(2,), at="args[0]"),),
        "outputs": (Output(name="y", shape=(2,)),),
        "timeout": 60.0,
    }
    return ModelSpec.model_validate(values | changes)


def ids(cells: object) -> list[str]:
    return [str(cell.cell) for cell in cells]


def test_the_plan_has_every_cell_in_order() -> None:
    plan = make_plan(make_manifest(spec("b"), spec("a", opsets=(20,))))
    assert ids(plan.cells) == [
        "b/17/cpu",
        "b/17/cuda",
        "b/18/cpu",
        "b/18/cuda",
        "a/20/cpu",
        "a/20/cuda",
    ]
    assert plan.selected == plan.cells


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(patterns=("a",)), ["a/17/cpu", "a/17/cuda", "a/18/cpu", "a/18/cuda"]),
        (Selection(patterns=("a/*",), devices=("cpu",)), ["a/17/cpu", "a/18/cpu"]),
        (Selection(patterns=("*/18/cuda",)), ["a/18/cuda", "b/18/cuda"]),
        (Selection(patterns=("a/17/cpu", "b/18/*")), ["a/17/cpu", "b/18/cpu", "b/18/cuda"]),
        (Selection(opsets=(17,), devices=("cuda",)), ["a/17/cuda", "b/17/cuda"]),
        (Selection(tags=("big",), opsets=(18,)), ["b/18/cpu", "b/18/cuda"]),
    ],
)
def test_each_part_of_a_selection_narrows_it(selection: Selection, expected: list[str]) -> None:
    plan = make_plan(make_manifest(spec("a"), spec("b", tags=("big",))), selection)
    assert ids(plan.selected) == expected
    assert len(plan.cells) == 8


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(patterns=("alexnt/*",)), "no cell matches 'alexnt/*'; did you mean 'alexnet'?"),
        # A wrong pattern is an error even if another pattern matches.
        (
            Selection(patterns=("alexnet", "vgg")),
            "no cell matches 'vgg'; `exporter list` shows the models",
        ),
        (
            Selection(patterns=("alexnet/9",)),
            "no cell matches 'alexnet/9'; alexnet has the opsets 17, 18 on cpu and cuda",
        ),
        (Selection(tags=("visoin",)), "no model has the tag 'visoin'; did you mean 'vision'?"),
        (Selection(opsets=(25,)), "no model has opset 25; use one of 17..18"),
        (Selection(devices=("tpu",)), "no model has the device 'tpu'; did you mean 'cpu'?"),
        (
            Selection(patterns=("alexnet/17",), opsets=(18,)),
            "no cell is selected: each part of the selection matches cells, "
            + "but no cell matches all parts",
        ),
    ],
)
def test_a_selection_that_matches_nothing_is_an_error(selection: Selection, message: str) -> None:
    with pytest.raises(ExporterError) as caught:
        make_plan(make_manifest(spec("alexnet", tags=("vision",))), selection)
    assert caught.value.exit_code is ExitCode.NOTHING_SELECTED
    assert str(caught.value) == message


def test_problems_of_the_manifests_precede_a_pattern_without_a_cell() -> None:
    broken = make_manifest(spec("a")).model_copy(
        update={"problems": (Problem(message="m.toml: bad"),)}
    )
    with pytest.raises(ExporterError, match=r"m.toml: bad\nno cell matches 'm'") as caught:
        make_plan(broken, Selection(patterns=("m",)))
    assert caught.value.exit_code is ExitCode.MANIFEST


def test_a_skipped_cell_is_planned_but_does_not_run() -> None:
    skips = (Skip(opsets=(17,), device="cu*", reason="no kernel"),)
    plan = make_plan(make_manifest(spec(skip=skips)))
    assert [cell.skip for cell in plan.cells] == ["", "no kernel", "", ""]
    assert ids(plan.to_run) == ["net/17/cpu", "net/18/cpu", "net/18/cuda"]


@pytest.mark.parametrize(
    ("requirement", "changes", "unavailable"),
    [
        ("onnxruntime==1.17.*", {}, ["net/21/old"]),
        ("onnxruntime~=1.18.0", {}, []),
        ("onnxruntime>=1.17", {}, []),
        ("onnxruntime~=1.17", {}, []),  # pip may install 1.31
        ("openvino==2025.3", {}, []),
        # Promises that the file must keep: they fail if the runtime rejects it.
        ("onnxruntime==1.17.*", {"consumers": ("onnxruntime>=1.17",)}, []),
        ("onnxruntime==1.17.*", {"consumers": ("onnxruntime>=1.20",)}, ["net/21/old"]),
        ("onnxruntime==1.17.*", {"artifact": "net.onnx"}, []),
    ],
)
def test_opsets_that_the_pinned_runtime_rejects_do_not_run(
    requirement: str, changes: dict[str, object], unavailable: list[str]
) -> None:
    environment = RuntimeEnvironment(name="old", requirements=(requirement,))
    devices = (
        Device(name="cpu", runtime="onnxruntime"),
        Device(name="old", runtime="onnxruntime", environment=environment),
    )
    project = Project(root="/project", devices=devices)
    net = spec(opsets=(20, 21), devices=("cpu", "old"), **changes)
    plan = make_plan(Manifest(project=project, models=(net,)))
    beyond = [cell for cell in plan.cells if cell.skip]
    assert ids(beyond) == unavailable
    assert {(each.skip, each.skip_status) for each in beyond} <= {
        ("ONNX Runtime 1.17 loads opsets up to 20", Status.UNAVAILABLE)
    }
    assert len(plan.to_run) == 4 - len(unavailable)


def test_a_device_that_is_measured_elsewhere_does_not_run() -> None:
    devices = (Device(name="cpu", runtime="onnxruntime"), Device(name="gpu", runtime="onnxruntime"))
    net = spec(opsets=(18,), devices=("cpu", "gpu"))
    for elsewhere, cells in ((("gpu",), ["net/18/cpu"]), ((), ["net/18/cpu", "net/18/gpu"])):
        project = Project(root="/project", devices=devices, elsewhere=elsewhere)
        plan = make_plan(Manifest(project=project, models=(net,)))
        assert ids(plan.to_run) == cells
        unavailable = {each.skip_status for each in plan.cells if each.skip}
        assert unavailable == ({Status.UNAVAILABLE} if elsewhere else set())


def test_a_skip_of_the_manifest_comes_before_the_limit_of_the_runtime() -> None:
    environment = RuntimeEnvironment(name="old", requirements=("onnxruntime==1.17.*",))
    device = Device(name="old", runtime="onnxruntime", environment=environment)
    project = Project(root="/project", devices=(device,))
    skips = (Skip(reason="too slow"),)
    (cell,) = make_plan(
        Manifest(project=project, models=(spec(opsets=(21,), devices=("old",), skip=skips),))
    ).cells
    assert (cell.skip, cell.skip_status) == ("too slow", Status.SKIP)


@pytest.mark.parametrize(
    ("exporter", "capture", "opset", "expected"),
    [
        ("auto", None, 17, ("torchscript", "trace")),
        ("auto", None, 18, ("dynamo", "export")),
        ("auto", "script", 18, ("torchscript", "script")),
        ("auto", "trace", 20, ("torchscript", "trace")),
        ("auto", "strict", 18, ("dynamo", "strict")),
        ("dynamo", None, 18, ("dynamo", "export")),
        ("dynamo", "strict", 18, ("dynamo", "strict")),
        ("torchscript", None, 19, ("torchscript", "trace")),
        ("torchscript", "script", 9, ("torchscript", "script")),
    ],
)
def test_exporter_capture_and_opset_determine_the_route(
    exporter: str, capture: str | None, opset: int, expected: tuple[str, str]
) -> None:
    route = choose_route(spec(exporter=exporter, capture=capture), opset)
    assert (route.exporter, route.capture) == expected
    assert route.reason


@pytest.mark.parametrize(("opset", "is_converted"), [(17, True), (18, False)])
def test_the_reason_mentions_the_version_converter(opset: int, is_converted: bool) -> None:
    reason = choose_route(spec(exporter="dynamo"), opset).reason
    assert ("version converter" in reason) is is_converted


@given(
    model=st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,8}", fullmatch=True),
    opset=st.integers(7, 28),
    device=st.sampled_from(["cpu", "cuda"]),
)
def test_the_id_of_a_cell_and_its_prefixes_match_it(model: str, opset: int, device: str) -> None:
    cell = CellId(model=model, opset=opset, device=device)
    for pattern in (str(cell), f"{model}/{opset}", model, "*", "*/*/*", f"{model[:1]}*"):
        assert pattern_matches(pattern, cell)
    for pattern in (f"{cell}/more", f"{model}x", f"{model}/{opset + 1}", f"*/*/{device}x"):
        assert not pattern_matches(pattern, cell)
