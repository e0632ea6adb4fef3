"""The names of inputs without `name`: those of the parameters of `forward`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from tests.unit.manifest.projects import load_model, make_project

_NET = """
class Net:
    def forward(self, image, mask, *rest): ...
"""
_ENTRY = """
source = "nets.py:Net"
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = 18
"""


def _names(root: Path, inputs: str, keys: str = "") -> tuple[str, ...]:
    make_project(root, {"manifests/nets.py": _NET})
    spec = load_model(root, f"inputs = [{inputs}]\n{keys}", entry=_ENTRY)
    return tuple(item.name for item in spec.inputs)


def test_names_of_parameters(tmp_path: Path) -> None:
    assert _names(tmp_path, "{ shape = [3] }, { shape = [3] }") == ("image", "mask")


def test_an_explicit_name_and_a_constant_between(tmp_path: Path) -> None:
    inputs = '{ name = "x", shape = [3] }, { shape = [3] }'
    assert _names(tmp_path, inputs) == ("x", "mask")
    constants = 'constants = [{ at = "args[0]", value = 1 }]'
    assert _names(tmp_path, "{ shape = [3] }", constants) == ("mask",)


def test_the_names_of_keywords(tmp_path: Path) -> None:
    assert _names(tmp_path, '{ shape = [3] }, { shape = [3], at = "kwargs.scale" }') == (
        "image",
        "scale",
    )


def test_other_keys_refer_to_the_name(tmp_path: Path) -> None:
    keys = 'cases = [{ name = "zeros", values = { image = "zeros" } }]'
    assert _names(tmp_path, "{ shape = [3] }, { shape = [3] }", keys) == ("image", "mask")
    assert _names(tmp_path, "{ shape = [3] }", "dynamic_axes = { image = [0] }") == ("image",)


@pytest.mark.parametrize(
    ("inputs", "keys", "message"),
    [
        ("{ shape = [3] }, { shape = [3] }, { shape = [3] }", "", r"this position in \*rest; wr"),
        ('{ shape = [3], at = "args[0][0]" }', "", "is inside a container"),
        ("{ shape = [3] }", 'inputs_from = "nets.py:Net"', "creates the call"),
        ("{ shape = [3], repeat = { i = 2 } }", "", "needs the key 'name' with '{i}'"),
        ("{ shape = [3] }", 'outputs = [{ name = "image", shape = [3] }]', '"image" is already'),
    ],
)
def test_inputs_that_need_a_name(tmp_path: Path, inputs: str, keys: str, message: str) -> None:
    entry = _ENTRY.replace('outputs = [{ name = "y", shape = ["batch", 3] }]\n', "")
    keys = keys if "outputs" in keys else keys + '\noutputs = [{ name = "y", shape = [3] }]'
    make_project(tmp_path, {"manifests/nets.py": _NET})
    with pytest.raises(ExporterError, match=message):
        load_model(tmp_path, f"inputs = [{inputs}]\n{keys}", entry=entry)


def test_more_inputs_than_parameters(tmp_path: Path) -> None:
    make_project(tmp_path, {"manifests/nets.py": _NET.replace(", *rest", "")})
    inputs = "inputs = [{ shape = [3] }, { shape = [3] }, { shape = [3] }]"
    message = r"m.*inputs\[2\]: needs the key 'name': `forward` has only image and mask, so pos"
    with pytest.raises(ExporterError, match=message):
        load_model(tmp_path, inputs, entry=_ENTRY)


def test_a_source_without_parameters(tmp_path: Path) -> None:
    make_project(tmp_path, {"manifests/net.pt2": ""})
    entry = _ENTRY.replace("nets.py:Net", "net.pt2")
    with pytest.raises(ExporterError, match="a saved model has no parameters"):
        load_model(tmp_path, "inputs = [{ shape = [3] }]", entry=entry)
