"""Graphs as text and HTML: large weights are summarized and hostile names are escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, parser

from exporter.cli.tool_commands.show import show
from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs.job_folder import write_json
from exporter.records.record import Stage, Status
from exporter.tools.graph_view.child.html_page import render_page
from exporter.tools.graph_view.child.text_form import elide_weights, format_model
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


class _Page(HTMLParser):
    """The anchors of a page, the links to them and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.anchors: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        attributes = dict(attrs)
        self.anchors += [str(attributes["id"])] if "id" in attributes else []
        self.links += [str(attributes["href"])[1:]] if "href" in attributes else []


def test_large_weights_are_summarized_and_small_ones_are_not() -> None:
    model = large()
    elide_weights(model)
    shown = format_model(model)
    assert '"left out": "12 values from 0 to 11"' in shown
    assert "two =  {2}" in shown
    assert "y = Mul (x, two)" in shown


def test_each_value_is_a_link_to_its_node() -> None:
    model = branching()
    html_page = _Page(render_page(model, "18.onnx"))
    assert len(html_page.anchors) == len(set(html_page.anchors))
    assert set(html_page.links) <= set(html_page.anchors)
    # x twice, c, y, and `inner` of each branch.
    assert len(html_page.links) == 6


def test_the_page_shows_functions_and_summarized_weights() -> None:
    model = large()
    nodes = [helper.make_node("Relu", ["a"], ["b"])]
    imports = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("own", "f", ["a"], ["b"], nodes, imports))
    elide_weights(model)
    html = render_page(model, "18.onnx")
    assert "Function own::f" in html
    assert "float32[3, 4] 12 values from 0 to 11" in html


def test_hostile_names_are_harmless() -> None:
    model = branching(HOSTILE)
    model.graph.name = HOSTILE
    model.graph.node[0].name = HOSTILE
    html = render_page(model, HOSTILE)
    assert "script" not in _Page(html).tags
    assert "&lt;script&gt;" in html
    shown = format_model(model)
    for steering in ("\x1b", "\u202e"):
        assert steering not in html
        assert steering not in shown


def project(root: Path) -> Path:
    make_project(root, {"manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}"})
    (root / "build" / "net").mkdir(parents=True)
    return root


def test_the_command_prints_the_graph_or_writes_its_page(tmp_path: Path) -> None:
    root = project(tmp_path)
    onnx.save(large(), root / "build" / "net" / "17.onnx")
    shown = CliRunner().invoke(show, ["net/17/cpu", "--root", str(root)])
    assert (shown.exit_code, "y = Mul (x, two)" in shown.output) == (0, True)
    html = tmp_path / "net.html"
    arguments = ["net/17/cpu", "--root", str(root), "--html", str(html)]
    assert CliRunner().invoke(show, arguments).exit_code == 0
    assert "<h1>17.onnx</h1>" in html.read_text(encoding="utf-8")


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
