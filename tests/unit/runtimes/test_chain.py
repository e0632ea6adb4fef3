"""The session of a chain: the files of its links, one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from exporter.checks.model_file import find_link_problems, measure_artifact, read_model
from exporter.core.device_name import DeviceName
from exporter.core.files import hash_file
from exporter.jobs import format_link_name
from exporter.manifest import Device
from exporter.runtimes import LoadFailure, RunFailure, open_session
from exporter.runtimes.chain import DOMAIN, LinkFile, list_links, make_nodes, read_chain

DEVICE = Device(name=DeviceName("cpu"), runtime="onnxruntime", providers=("CPUExecutionProvider",))
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
FIRST = HEAD + "(float[n] x) => (float[n] y) { y = Neg(x) }"
SECOND = HEAD + "(float[2] a) => (float[2] b) { b = Exp(a) }"


def write_link(folder: Path, text: str) -> str:
    path = folder / "new.onnx"
    onnx.save(parser.parse_model(text), path)
    return path.rename(folder / format_link_name(hash_file(path))).name


def write_chain(folder: Path, *files: str) -> Path:
    """Write a chain of two links, of which the second has a fixed size."""
    links = [
        LinkFile(id="first", file=files[0], inputs={"x": "in"}, outputs={"y": "first.y"}),
        LinkFile(id="second", file=files[1], inputs={"a": "first.y"}, outputs={"b": "out"}),
    ]
    values = [helper.make_tensor_value_info(name, 1, ["n"]) for name in ("in", "out")]
    graph = helper.make_graph(make_nodes(links), "whole", values[:1], values[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    onnx.save(model, folder / "17.onnx")
    assert list_links(model) == tuple(links)
    return folder / "17.onnx"


def test_each_link_gets_what_the_links_before_it_give(tmp_path: Path) -> None:
    path = write_chain(tmp_path, write_link(tmp_path, FIRST), write_link(tmp_path, SECOND))
    session = open_session(path, DEVICE)
    assert list(session.output_names) == ["out"]
    x = np.array([1, 2], np.float32)
    (out,) = session.run({"in": x})
    np.testing.assert_allclose(out, np.exp(-x), rtol=1e-6)
    text = r"the link 'second' fails: .*; 'a' is float32 \[3\] from 'first\.y'"
    with pytest.raises(RunFailure, match=text):
        session.run({"in": np.zeros(3, np.float32)})
    facts = measure_artifact(path, "whole")
    assert (facts.nodes, facts.operators, len(facts.external_data)) == (2, {"Exp": 1, "Neg": 1}, 2)
    assert not list(find_link_problems(read_model(path), tmp_path))


def test_a_file_of_a_link_is_beside_the_chain_and_no_chain(tmp_path: Path) -> None:
    first = write_link(tmp_path, FIRST)
    for name, text in (
        ("../other.onnx", "'../other.onnx' is no file beside it"),
        ("17.onnx", f"{DOMAIN}:first"),
        ("link-0123456789abcdef.onnx", "the link 'second'"),
    ):
        path = write_chain(tmp_path, first, name)
        with pytest.raises(LoadFailure, match=text):
            open_session(path, DEVICE)
        assert len(list(find_link_problems(read_model(path), tmp_path))) == 1
    onnx.save(parser.parse_model(SECOND), tmp_path / first)
    problem = next(find_link_problems(read_model(write_chain(tmp_path, first, first)), tmp_path))
    assert "is not the file that was proved" in problem


def test_another_file_is_no_chain(tmp_path: Path) -> None:
    name = write_link(tmp_path, FIRST.replace(" g ", f" {DOMAIN.replace('.', '_')} "))
    (tmp_path / "text.onnx").write_text(DOMAIN)
    for file in (name, "text.onnx", "missing.onnx"):
        assert read_chain(tmp_path / file) is None
