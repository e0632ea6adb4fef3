"""Graphs as text: large weights are summarized and hostile names are harmless."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, parser

from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs import write_json
from exporter.plugins.show.child import elide_weights, format_model, format_scopes
from exporter.plugins.show.command import show
from exporter.records.record import Stage, Status
from tests.unit.checks.contexts import DOUBLE
from tests.unit.factory import make_record
from tests.unit.manifest.projects import ENTRY, make_project

HOSTILE = 'x"><script>alert(1)</script>\x1b[31m\u202e'


def large() -> onnx.ModelProto:
    model = parser.parse_model(DOUBLE)
    values = [float(number) for number in range(12)]
    model.graph.initializer.append(helper.make_tensor("big", TensorProto.FLOAT, [3, 4], values))
    return model


def branching(name: str = "x") -> onnx.ModelProto:
    """An `If` whose branches use a value of the graph around them."""

    def branch(operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, [name], ["inner"])
        return helper.make_graph([node], operator, [], [value("inner")])

    def value(called: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(called, TensorProto.FLOAT, [2])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")
    )
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    graph = helper.make_graph([node], "g", [value(name)], [value("y")], [condition])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_the_text_begins_with_versions_signature_and_operators() -> None:
    model = branching()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert format_model(model).splitlines()[:5] == [
        "# opsets: ai.onnx 18; IR version 8",
        "# input: x float32 [batch]",
        "# output: y float32 [2]",
        "# 1 node: 1 If; 1 weight",
        "",
    ]


def test_a_hostile_name_cannot_add_lines_to_the_header() -> None:
    lines = format_model(branching("x\nFORGED\x1b[31m")).splitlines()
    assert all(line.startswith("#") for line in lines[: lines.index("")])


def test_large_weights_are_summarized_and_small_ones_are_not() -> None:
    model = large()
    elide_weights(model)
    shown = format_model(model)
    assert '"left out": "12 values from 0 to 11"' in shown
    assert "two =  {2}" in shown
    assert "y = Mul (x, two)" in shown


def test_hostile_names_are_harmless() -> None:
    model = branching(HOSTILE)
    model.graph.name = HOSTILE
    model.graph.node[0].name = HOSTILE
    shown = format_model(model)
    for steering in ("\x1b", "\u202e"):
        assert steering not in shown


def project(root: Path) -> Path:
    make_project(root, {"manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}"})
    (root / "build" / "net").mkdir(parents=True)
    return root


def test_the_command_prints_the_graph_or_the_scopes(tmp_path: Path) -> None:
    root = project(tmp_path)
    onnx.save(large(), root / "build" / "net" / "17.onnx")
    shown = CliRunner().invoke(show, ["net/17/cpu", "--root", str(root)])
    assert (shown.exit_code, "y = Mul (x, two)" in shown.output) == (0, True)
    scopes = CliRunner().invoke(show, ["net/17/cpu", "--root", str(root), "--scopes"])
    assert (scopes.exit_code, scopes.output) == (0, "no module: Mul\n")


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, ExitCode.NOTHING_SELECTED, "has no file: no result yet"),
        (b"no ONNX", ExitCode.UNREADABLE, "17.onnx: is not an ONNX file"),
    ],
)
def test_a_file_that_cannot_be_shown_is_an_error(
    content: bytes | None, code: ExitCode, message: str, tmp_path: Path
) -> None:
    root = project(tmp_path)
    if content is not None:
        (root / "build" / "net" / "17.onnx").write_bytes(content)
    result = CliRunner().invoke(show, ["net/17/cpu", "--root", str(root)])
    assert isinstance(result.exception, ExporterError)
    assert result.exception.exit_code == code
    assert message in str(result.exception)


def test_the_error_for_a_missing_file_has_the_outcome_of_the_cell(tmp_path: Path) -> None:
    root = project(tmp_path)
    record = make_record("net/17/cpu", Status.ERROR, stage=Stage.CAPTURE, message="no such thing")
    write_json(root / "build" / "net" / "records" / "17.cpu.json", record)
    result = CliRunner().invoke(show, ["net/17/cpu", "--root", str(root)])
    assert str(result.exception) == (
        "net/17/cpu: has no file: error at capture: no such thing; "
        "run `exporter export` to create it"
    )


def make_model(*nodes: tuple[str, str, str]) -> str:
    """Return the scopes of nodes with an operator, a name and a namespace."""
    protos = []
    for operator, name, namespace in nodes:
        node = helper.make_node(operator, ["x"], ["x"], name=name)
        if namespace:
            node.metadata_props.add(key="namespace", value=namespace)
        protos.append(node)
    return format_scopes(helper.make_model(helper.make_graph(protos, "g", [], [])))


def test_a_file_of_dynamo_has_the_classes_of_its_modules() -> None:
    features = ": net.Net/features: torch.nn.Sequential/features.0: torch.nn.modules.conv.Conv2d"
    assert make_model(
        ("Conv", "node_conv2d", f"{features}/conv2d: aten.conv2d.default"),
        ("Add", "node_add_1", f"{features}/add: aten.add.Tensor"),
        ("ReduceMean", "node_mean", ": net.Net/mean: aten.mean.dim"),
    ).splitlines() == [
        "Net/Sequential[features]/Conv2d[features.0]: Conv, Add",
        "Net: ReduceMean",
    ]


def test_a_file_of_torchscript_has_the_names_of_its_modules() -> None:
    assert make_model(
        ("Conv", "/features/features.0/Conv", ""),
        ("Relu", "/features/features.1/Relu", ""),
        ("ReduceMean", "/ReduceMean", ""),
        ("Gemm", "", ""),
    ).splitlines() == [
        "features/features.0: Conv",
        "features/features.1: Relu",
        "no module: ReduceMean, Gemm",
    ]


def test_names_of_a_file_cannot_create_lines() -> None:
    assert make_model(("Relu", "/a\nb/Relu", "")).count("\n") == 1
