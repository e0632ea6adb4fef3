"""The checks `determinism` and `placement`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from exporter.checks.protocol import CheckedFile
from exporter.checks.validity_checks import check_determinism, check_placement
from exporter.core.check_table import STATEFUL_PREFIX
from exporter.jobs import JobFolder
from exporter.manifest import Device
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Placement as Placed
from exporter.runtimes import open_session
from tests.unit.checks.contexts import ConstantSession, contract, make_reference, make_subject


def determinism(unstable: str, mode: Literal["eval", "train", "keep"] = "eval") -> CheckResult:
    subject = CheckedFile(
        folder=JobFolder(Path()),
        opset=18,
        spec=contract(mode=mode),
        reference=make_reference(unstable=unstable),
    )
    assert check_determinism.applies(subject)
    return check_determinism(subject, ConstantSession(), "cpu")


def test_a_stable_model_passes() -> None:
    assert determinism("") == CheckResult(check="determinism", status=Status.PASS)


@pytest.mark.parametrize(
    ("unstable", "mode", "message"),
    [
        (
            "output 'y' differs by 0.5 between two runs",
            "eval",
            "PyTorch differs from itself: output 'y' differs by 0.5 between two runs; "
            + "make random numbers an input, or draw them once when the model is built",
        ),
        ("it differs", "train", "mode is 'train': 'eval' turns dropout"),
        ("it differs", "keep", "mode is 'keep': 'eval' turns dropout"),
        (f"{STATEFUL_PREFIX}: it differs", "eval", "state as an input and return it as an output"),
    ],
)
def test_a_model_that_differs_from_itself_is_inconclusive_with_a_fix(
    unstable: str, mode: Literal["eval", "train", "keep"], message: str
) -> None:
    result = determinism(unstable, mode)
    assert result.status is Status.INCONCLUSIVE
    assert message in result.message


CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def placement(
    folder: Path, nodes: Mapping[str, Mapping[str, int]] | None, *, strict: bool = False
) -> CheckResult:
    session = ConstantSession()
    session.placement = (
        None if nodes is None else Placed(requested=CUDA, nodes=nodes, strict=strict)
    )
    return check_placement(make_subject(folder), session, "cuda")


@pytest.mark.parametrize("strict", [True, False])
def test_all_nodes_on_the_provider_pass(strict: bool, tmp_path: Path) -> None:
    result = placement(tmp_path, {CUDA: {"Add": 2, "Mul": 1}}, strict=strict)
    assert (result.check, result.status, result.message) == ("placement", Status.PASS, "")
    assert result.metrics == {"nodes": 3}


def test_emulated_hardware_is_named(tmp_path: Path) -> None:
    session = ConstantSession()
    session.placement = Placed(requested=CUDA, nodes={CUDA: {"Add": 2}}, is_software=True)
    result = check_placement(make_subject(tmp_path), session, "cuda")
    assert (result.status, result.metrics) == (Status.PASS, {"nodes": 2, "hardware": "software"})


@pytest.mark.parametrize("strict", [True, False])
def test_a_graph_without_remaining_nodes_is_inconclusive(strict: bool, tmp_path: Path) -> None:
    result = placement(tmp_path, {}, strict=strict)
    assert result.status is Status.INCONCLUSIVE
    assert CUDA in result.message


@pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
def test_a_graph_without_nodes_runs_on_the_only_provider(runtime: str, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[n] x) => (float[n] x) { }'
    subject = make_subject(tmp_path, text)
    session = open_session(subject.path, Device(name="here", runtime=runtime))
    result = check_placement(subject, session, "here")
    assert (result.status, result.metrics) == (Status.PASS, {"nodes": 0})


@pytest.mark.parametrize("nodes", [{CPU: {"Add": 2}}, {CUDA: {}, CPU: {"Add": 2}}])
def test_a_graph_without_nodes_on_the_provider_fails(
    nodes: Mapping[str, Mapping[str, int]], tmp_path: Path
) -> None:
    result = placement(tmp_path, nodes)
    assert result.status is Status.FAIL
    assert result.message == f"no node runs on {CUDA}: {CPU} runs Add 2"
    assert result.metrics == {"nodes": 2, "elsewhere": 2}


def test_nodes_on_other_providers_are_counted_and_fail_if_the_device_is_strict(
    tmp_path: Path,
) -> None:
    nodes = {CUDA: {"Conv": 5}, CPU: dict.fromkeys("EDCBA", 1) | {"Shape": 3, "Gather": 3}}
    result = placement(tmp_path, nodes)
    assert result.status is Status.PASS
    assert result.message == (
        f"11 of 16 nodes do not run on {CUDA}: {CPU} runs Gather 3, Shape 3, A 1, B 1, C 1, …"
    )
    assert result.metrics == {"nodes": 16, "elsewhere": 11}
    assert placement(tmp_path, nodes, strict=True).status is Status.FAIL


@pytest.mark.parametrize(
    ("operators", "copies", "status", "message"),
    [
        ({"Concat": 5}, 0, Status.PASS, "each of 14 nodes has a kernel on {cuda}; 5 nodes"),
        ({"Concat": 4}, 0, Status.FAIL, "1 of 14 nodes has no kernel on {cuda}: {cpu} runs Con"),
        ({"Concat": 5}, 2, Status.FAIL, "each of 14 nodes has a kernel on {cuda} (2 copies); 5"),
        ({}, 1, Status.FAIL, "5 of 14 nodes have no kernel on {cuda} (1 copy): {cpu} runs Concat"),
    ],
)
def test_strict_counts_nodes_that_cost_something(
    operators: Mapping[str, int], copies: int, status: Status, message: str, tmp_path: Path
) -> None:
    for strict, expected in ((True, status), (False, Status.PASS)):
        session = ConstantSession()
        nodes = {CUDA: {"Conv": 9}, CPU: {"Concat": 5}}
        session.placement = Placed(
            requested=CUDA, nodes=nodes, strict=strict, shapes=operators, copies=copies
        )
        result = check_placement(make_subject(tmp_path), session, "cuda")
        assert result.status is expected
        assert result.message.startswith(message.format(cuda=CUDA, cpu=CPU))
        assert result.metrics["shapes"] == sum(operators.values())
        assert result.metrics["copies"] == copies
        assert ("fallback" in result.metrics) is (" no kernel" in result.message)


def test_a_runtime_without_placement_is_inconclusive(tmp_path: Path) -> None:
    result = placement(tmp_path, None)
    assert result.status is Status.INCONCLUSIVE
    assert "try a newer version of the runtime" in result.message


BRANCHES = """<ir_version: 8, opset_import: ["" : 18]>
g (float[n] x, bool c) => (float[n] y) {
  y = If (c) <
    then_branch = a () => (float[n] p) { p = Neg (x) },
    else_branch = b () => (float[n] q) { r = Sin (x)  q = Cos (r) }
  >
}"""


def test_the_real_runtimes_report_the_placement_of_nodes_in_branches(tmp_path: Path) -> None:
    subject = make_subject(tmp_path, BRANCHES)
    cpu = open_session(subject.path, Device(name="cpu", runtime="onnxruntime", providers=(CPU,)))
    placed = cpu.placement
    assert placed is not None
    assert placed.nodes == {CPU: {"If": 1, "Neg": 1, "Sin": 1, "Cos": 1}}
    assert check_placement(subject, cpu, "cpu").metrics == {"nodes": 4}
    reference = open_session(subject.path, Device(name="reference", runtime="reference"))
    assert check_placement(subject, reference, "reference").status is Status.PASS
