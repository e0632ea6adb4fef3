"""The operator and the model's line behind an exception of an exporter."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch

from exporter.records.record import Stage
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.process.model_lines import ErrorOrigin, find_origin, find_source_line

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).relative_to(ROOT).as_posix()


class AddNet(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


ADD_LINE = AddNet.forward.__code__.co_firstlineno + 1


def captured_nodes() -> list[Any]:
    program = torch.export.export(AddNet(), (torch.zeros(2),))
    return list(program.graph.nodes)


def file_nodes() -> list[Any]:
    node = ir.node("Relu", [ir.val("x")])
    trace = f'File "{__file__}", line {ADD_LINE}, in forward'
    node.metadata_props["pkg.torch.onnx.stack_trace"] = trace
    return [node]


def traced_nodes() -> list[Any]:
    graph = torch.jit.trace(AddNet(), torch.zeros(2)).graph
    return [node for node in graph.nodes() if node.kind() == "aten::add"]


def translate(node: Any) -> None:
    raise AttributeError(f"'NoneType' object has no attribute '{type(node).__name__.lower()}'")


def translate_each(nodes: list[Any]) -> None:
    for node in nodes:
        if "add" in str(node) or "Relu" in str(node):
            raise AttributeError("'NoneType' object has no attribute 'ndim'")


def visit_all(nodes: list[Any]) -> None:
    for node in nodes:
        if "add" in str(node) or "Relu" in str(node):
            break
    raise AttributeError("'NoneType' object has no attribute 'ndim'")


def catch(function: Callable[[Any], None], argument: Any) -> BaseException:
    with pytest.raises(AttributeError) as caught:
        function(argument)
    return caught.value


@pytest.mark.parametrize(
    ("list_nodes", "operator"),
    [(captured_nodes, "aten.add.Tensor"), (file_nodes, "Relu"), (traced_nodes, "aten::add")],
)
def test_a_node_of_each_graph_is_found(list_nodes: Callable[[], list[Any]], operator: str) -> None:
    origin = ErrorOrigin(operator=operator, line=f"{HERE}:{ADD_LINE}")
    nodes = list_nodes()
    assert find_origin(catch(translate_each, nodes), ROOT) == origin
    node = next(node for node in nodes if "add" in str(node) or "Relu" in str(node))
    assert find_origin(catch(translate, node), ROOT) == origin


def test_the_variable_of_a_finished_loop_is_not_blamed() -> None:
    assert find_origin(catch(visit_all, captured_nodes()), ROOT).operator == ""


def test_the_last_line_of_the_model_is_found_without_a_node() -> None:
    with pytest.raises(TypeError) as caught:
        AddNet()("text")
    assert find_origin(caught.value, ROOT) == ErrorOrigin(line=f"{HERE}:{ADD_LINE}")


def test_a_failure_contains_the_operator_and_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(Failure) as caught, wrap_errors(Stage.CONVERT):
        translate_each(captured_nodes())
    message = "AttributeError: 'NoneType' object has no attribute 'ndim'"
    assert caught.value.message == f"{message}; the operator is aten.add.Tensor"
    assert caught.value.lines == (f"{HERE}:{ADD_LINE}",)


def test_an_operator_in_the_message_is_not_repeated() -> None:
    def translate_sum(node: Any) -> None:
        raise ValueError(f"no translation of {node.target}")

    with pytest.raises(Failure) as caught, wrap_errors(Stage.CONVERT):
        translate_sum(captured_nodes()[1])
    assert caught.value.message == "ValueError: no translation of aten.add.Tensor"


LINEAR = torch.nn.modules.linear.__file__
PACKAGES = Path(sysconfig.get_path("purelib"))


DYNAMO = f"""File "{{root}}/nets.py", line 3, in forward
    y = self.block(x)
  File "{{root}}/sub/block.py", line 8, in forward
    return self.linear(x)
  File "{LINEAR}", line 134, in forward
    return F.linear(x)"""
TORCHSCRIPT = f"""{LINEAR}(134): forward
{{root}}/sub/block.py(8): forward
{{root}}/nets.py(3): forward
"""
SCRIPTED = "{root}/sub/block.py:8:15"


@pytest.mark.parametrize("trace", [DYNAMO, TORCHSCRIPT, SCRIPTED])
def test_innermost_line_of_the_project_is_found(trace: str, tmp_path: Path) -> None:
    assert find_source_line(trace.format(root=tmp_path), tmp_path) == "sub/block.py:8"


@pytest.mark.parametrize(
    "trace",
    ["", f'File "{LINEAR}", line 134, in forward', f"{LINEAR}(134): forward", "no trace at all"],
)
def test_trace_without_a_line_of_the_project_gives_none(trace: str, tmp_path: Path) -> None:
    assert find_source_line(trace, tmp_path) == ""


WRAPPER = 'File "{root}/nets.py", line 3, in forward\n    return self.library(x)\n'


def test_line_of_a_library_is_found_inside_the_wrapper_of_the_project(tmp_path: Path) -> None:
    library = PACKAGES / "library" / "models.py"
    inner = f'  File "{library}", line 78, in forward\n    return F.relu(x)\n'
    kernel = f'  File "{LINEAR}", line 134, in forward\n    return F.linear(x)'
    trace = WRAPPER.format(root=tmp_path) + inner + kernel
    assert find_source_line(trace, tmp_path) == "library/models.py:78"


@pytest.mark.parametrize("package", ["onnxscript", "torch", "numpy", "sympy"])
def test_line_of_a_tool_is_no_line_of_the_model(package: str, tmp_path: Path) -> None:
    inner = f'  File "{PACKAGES / package / "models.py"}", line 78, in forward\n'
    trace = WRAPPER.format(root=tmp_path) + inner
    assert find_source_line(trace, tmp_path) == "nets.py:3"
