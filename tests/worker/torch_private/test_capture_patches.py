"""Patches of the capture, reuse of decompositions and operator counts change no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exporter.jobs import JobFolder
from exporter.worker.export.convert import convert_program
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.model.source_loader import load_model
from exporter.worker.torch_private import guards
from exporter.worker.torch_private.graph_operators import (
    Decompositions,
    _DecomposedProgram,
    count_captured_operators,
    count_traced_operators,
)
from exporter.worker.torch_private.guards import is_known_torch
from tests.worker.contracts import ROOT, make_contract
from tests.worker.graphs import capture, draw_declared

BLOCK = make_contract("NewOperators", "x [batch, 6, 8] -> y [batch, 6, 8]", opsets=(18, 20, 23))


def test_installed_torch_is_a_tested_version() -> None:
    assert is_known_torch()


def test_shared_decomposition_gives_files_of_separate_public_calls(tmp_path: Path) -> None:
    model = load_model(BLOCK, ROOT)
    assert isinstance(model, nn.Module)
    inputs, program, cache = draw_declared(BLOCK), capture(BLOCK), Decompositions()
    files: dict[str, list[bytes]] = {"shared": [], "public": []}
    for name, contents in files.items():
        folder = JobFolder(tmp_path / name)
        folder.path.mkdir()
        for opset in reversed(BLOCK.opsets):
            if name == "shared":
                graph = convert_program(program, BLOCK, opset, tmp_path, cache)
            else:
                graph = public_export(model, inputs["x"], opset)
            contents.append(write_artifact(graph, BLOCK, opset, folder, {}).read_bytes())
    assert files["shared"] == files["public"]
    # The operators of these opsets differ, so the files do too.
    assert len(set(files["shared"])) == 3
    # Opset 23 translates rms_norm itself and the others decompose it; 20 and 18 share theirs.
    assert len(cache._programs) == 2


def public_export(model: nn.Module, x: Tensor, opset: int) -> Any:
    exported = torch.onnx.export(
        model,
        (x,),
        opset_version=opset,
        input_names=["x"],
        output_names=["y"],
        dynamic_shapes={"x": {0: "batch"}},
        dynamo=True,
        verbose=False,
    )
    assert exported is not None
    return exported.model


def test_patch_is_removed_after_an_exception() -> None:
    from torch.onnx._internal.exporter import _core

    before = _core._prepare_exported_program_for_export

    def fail_inside() -> None:
        with Decompositions().reuse():
            assert _core._prepare_exported_program_for_export is not before
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail_inside()
    assert _core._prepare_exported_program_for_export is before


def test_is_in_onnx_export_is_true_during_a_capture() -> None:
    spec = make_contract("ExportBranch", "x [batch, 4] -> y []")
    operators = [str(node.target) for node in capture(spec).graph.nodes]
    assert "aten.add.Tensor" in operators
    assert "aten.mul.Tensor" not in operators
    assert not torch.onnx.is_in_onnx_export()


def test_other_torch_version_exports_without_private_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_TESTED", dict.fromkeys(guards._TESTED, ()))
    cache = Decompositions()
    graph = convert_program(capture(BLOCK), BLOCK, 18, tmp_path, cache)
    assert graph.opset_imports[""] == 18
    assert cache._programs == []


class Graph:
    """The part of a decomposed program that the code reads."""

    def __init__(self, *targets: str) -> None:
        node = type("Node", (), {})
        module = type("Module", (), {})()
        module.graph = type("G", (), {"nodes": []})()
        for target in targets:
            item = node()
            item.target = target
            module.graph.nodes.append(item)
        self.graph_module = type("Top", (), {"modules": lambda self: [module]})()


@pytest.mark.parametrize(
    ("left", "translated", "is_valid"),
    [
        (("a", "b"), {"a", "b", "c"}, True),
        (("a", "b"), {"a", "b"}, True),
        # `c` is not decomposed here and would be decomposed there.
        (("a", "c"), {"a", "b"}, False),
        # `d` would not be decomposed there. Its decomposition here cannot be detected.
        (("a", "b"), {"a", "b", "c", "d"}, False),
        (("a", "b"), {"a", "d"}, False),
    ],
)
def test_decomposition_is_reused_only_for_equal_results(
    left: tuple[str, ...], translated: set[str], is_valid: bool
) -> None:
    decomposed = _DecomposedProgram(object(), frozenset({"a", "b", "c"}), Graph(*left))
    assert decomposed.is_valid_for(frozenset(translated)) is is_valid


class Mixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu_(x + 1) + torch.relu(x)
        if bool(x.sum() > 0):
            y = torch.tanh(y)
        return y


def test_operators_of_a_traced_graph_are_counted(tmp_path: Path) -> None:
    from torch.onnx._internal.torchscript_exporter import utils

    before = utils._optimize_graph
    with count_traced_operators() as counts:
        torch.onnx.export(
            torch.jit.script(Mixed()),
            (torch.ones(2),),
            str(tmp_path / "a.onnx"),
            opset_version=17,
            dynamo=False,
        )
    assert utils._optimize_graph is before
    assert (counts["aten::relu"] + counts["aten::relu_"], counts["aten::tanh"]) == (2, 1)
    assert not [name for name in counts if name.startswith(("prim::", "onnx::"))]


def test_operators_of_a_captured_program_and_its_branches_are_counted() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = torch.cond(x.sum() > 0, lambda x: x.tanh(), lambda x: x + 1, (x,))
            return result.relu()

    counts = count_captured_operators(torch.export.export(Branches(), (torch.ones(2),)))
    assert counts["aten.relu.default"] == 1
    assert counts["aten.tanh.default"] == 1


def test_other_torch_version_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_TESTED", dict.fromkeys(guards._TESTED, ()))
    with count_traced_operators() as counts:
        path = str(tmp_path / "a.onnx")
        torch.onnx.export(nn.ReLU(), (torch.ones(2),), path, opset_version=17, dynamo=False)
    assert not counts
