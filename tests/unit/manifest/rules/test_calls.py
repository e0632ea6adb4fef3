"""Tables of calls: where a call stands, and its arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.errors import ExporterError
from exporter.manifest import Container, Fill, InputsFrom, ModelSpec, ParameterNames
from exporter.manifest.syntax.values import DATA_SUFFIXES, split_data_file
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


@pytest.mark.parametrize(
    ("inputs", "keys", "names"),
    [
        ("{ shape = [3] }, { shape = [3] }", "", ("image", "mask")),
        ('{ name = "x", shape = [3] }, { shape = [3] }', "", ("x", "mask")),
        ("{ shape = [3] }", 'constants = [{ at = "args[0]", value = 1 }]', ("mask",)),
        ('{ shape = [3] }, { shape = [3], at = "kwargs.scale" }', "", ("image", "scale")),
        # Other keys refer to the name.
        ("{ shape = [3] }", 'cases = [{ name = "zeros", values.image = "zeros" }]', ("image",)),
        ("{ shape = [3] }", "dynamic_axes = { image = [0] }", ("image",)),
    ],
)
def test_an_input_without_a_name_has_that_of_its_parameter(
    inputs: str, keys: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    make_project(tmp_path, {"manifests/nets.py": _NET})
    spec = load_model(tmp_path, f"inputs = [{inputs}]\n{keys}", entry=_ENTRY)
    assert tuple(item.name for item in spec.inputs) == names


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


_HEAD = """\
source = "models/vision.py:AlexNet"
outputs = [{ name = "y{i}", shape = ["batch", 3], repeat = { i = 2 } }]
opsets = "9..21"
"""


def model(root: Path, keys: str) -> ModelSpec:
    return load_model(root, keys, _HEAD)


def test_adjacent_tables_with_the_same_repeat_alternate(tmp_path: Path) -> None:
    spec = model(
        tmp_path,
        """inputs = [
  { name = "x", shape = ["batch", 3] },
  { name = "past.{layer}.key", at = "kwargs.past[{layer}][0]", shape = ["batch", "p{layer}"],
    repeat = { layer = 2 } },
  { name = "past.{layer}.value", at = "kwargs.past[{layer}][1]", shape = ["batch", "p{layer}"],
    repeat = { layer = 2 } },
  { name = "mask", shape = ["batch"] },
  { name = "z{layer}", shape = [3], repeat = { layer = 2 } },
]""",
    )
    assert [(item.name, item.at) for item in spec.inputs] == [
        ("x", "args[0]"),
        ("past.0.key", "kwargs.past[0][0]"),
        ("past.0.value", "kwargs.past[0][1]"),
        ("past.1.key", "kwargs.past[1][0]"),
        ("past.1.value", "kwargs.past[1][1]"),
        ("mask", "args[1]"),
        ("z0", "args[2]"),
        ("z1", "args[3]"),
    ]
    assert [axis.name for axis in spec.axes] == ["batch", "p0", "p1"]
    assert [item.name for item in spec.outputs] == ["y0", "y1"]


def test_tables_with_different_repeats_do_not_alternate(tmp_path: Path) -> None:
    spec = model(
        tmp_path,
        """inputs = [
  { name = "a{i}", shape = ["batch"], repeat = { i = 2 } },
  { name = "b{i}", shape = ["batch"], repeat = { i = 3 } },
]""",
    )
    assert [item.name for item in spec.inputs] == ["a0", "a1", "b0", "b1", "b2"]


def test_containers_and_none(tmp_path: Path) -> None:
    spec = model(
        tmp_path,
        """inputs = [
  { name = "x", shape = ["batch"] },
  { name = "k{i}", at = "kwargs.past[{i}].key", shape = ["batch"], repeat = { i = 2 } },
]
containers = [
  { at = "kwargs.past", type = "list" },
  { at = "kwargs.past[{i}]", type = "models/vision.py:AlexNet", repeat = { i = 2 } },
  { at = "args[1]", type = "dict" },
]
constants = [
  { at = "args[2]" },
  { at = "kwargs.past[{i}].value", repeat = { i = 2 } },
]""",
    )
    assert spec.containers == (
        Container(at="kwargs.past", type="list"),
        Container(at="kwargs.past[0]", type="models/vision.py:AlexNet"),
        Container(at="kwargs.past[1]", type="models/vision.py:AlexNet"),
        Container(at="args[1]", type="dict"),
    )
    assert [each.is_object for each in spec.containers] == [False, True, True, False]
    assert [(fixed.at, fixed.value) for fixed in spec.constants] == [
        ("args[2]", None),
        ("kwargs.past[0].value", None),
        ("kwargs.past[1].value", None),
    ]


def test_an_empty_container_excludes_other_values_at_its_path(tmp_path: Path) -> None:
    keys = """inputs = [{ name = "x", at = "args[1][0]", shape = ["batch"] }]
containers = [{ at = "args[0]", type = "list" }, { at = "args[1][1]", type = "tuple" }]"""
    assert len(model(tmp_path, keys).containers) == 2
    with pytest.raises(ExporterError, match=r"containers\[0\].at: 'args\[0\]' is already used by"):
        model(tmp_path, keys.replace("args[1][0]", "args[0]").replace("args[1][1]", "args[1]"))


def test_data_files_of_a_model_include_tensor_files(tmp_path: Path) -> None:
    folder = tmp_path / "manifests" / "data"
    folder.mkdir(parents=True)
    for name in ("x.npy", "y.npz", "z.pb"):
        (folder / name).touch()
    spec = model(
        tmp_path,
        """inputs = [
  { name = "x", shape = ["batch"], fill = { file = "data/x.npy" } },
  { name = "k{i}", shape = ["batch"], fill = { file = "data/y.npz:{i}" }, repeat = { i = 2 } },
]
cases = [{ name = "z", values = { x = { file = "data/z.pb" } } }]""",
    )
    assert [item.fill.file for item in spec.inputs] == [
        "data/x.npy",
        "data/y.npz:0",
        "data/y.npz:1",
    ]
    assert spec.cases[0].fills == {"x": Fill(kind="file", file="data/z.pb")}
    assert spec.data_files == tuple(f"manifests/data/{n}" for n in ("x.npy", "y.npz", "z.pb"))


def test_a_function_creates_the_call(tmp_path: Path) -> None:
    spec = model(
        tmp_path,
        """inputs_from = "models/vision.py:make"
inputs = [{ name = "x", shape = ["batch"] }]
cases = [{ name = "other", inputs_from = "models/vision.py:build" }]""",
    )
    assert spec.inputs_from == InputsFrom(function="models/vision.py:make")
    assert [item.at for item in spec.inputs] == [""]
    assert spec.cases[0].inputs_from == InputsFrom(function="models/vision.py:build")
    assert spec.inputs[0].fill == Fill(kind="function")


def test_inputs_of_a_function_have_any_dtype_and_may_have_a_fill(tmp_path: Path) -> None:
    spec = model(
        tmp_path,
        """inputs_from = "models/vision.py:make"
inputs = [
  { name = "ids", shape = ["batch"], dtype = "int64" },
  { name = "mask", shape = ["batch"], dtype = "bool", fill = "ones" },
]
cases = [{ name = "open", values = { ids = { randint = [0, 3] } } }]""",
    )
    assert [item.fill for item in spec.inputs] == [Fill(kind="function"), Fill(kind="ones")]
    assert spec.cases[0].fills == {"ids": Fill(kind="randint", low=0, high=3)}


def test_a_case_takes_every_fill(tmp_path: Path) -> None:
    spec = model(
        tmp_path,
        """inputs = [{ name = "x", shape = ["batch"] }, { name = "y", shape = ["batch"] }]
cases = [{ name = "other", values = { x = "ones", y = { python = "models/vision.py:make" } } }]""",
    )
    assert spec.cases[0].fills == {
        "x": Fill(kind="ones"),
        "y": Fill(kind="python", python="models/vision.py:make"),
    }


def test_optional_inputs_of_a_script(tmp_path: Path) -> None:
    spec = load_model(
        tmp_path,
        """inputs = [{ name = "x", shape = [3] }, { name = "m", shape = [3], optional = true }]
cases = [{ name = "bare", values = { m = "none", x = [1, 2, 3] } }]""",
        """source = "models/vision.py:AlexNet"
outputs = [{ name = "y", shape = [3] }]
capture = "script"
opsets = "15..17"
""",
    )
    assert [item.optional for item in spec.inputs] == [False, True]
    assert spec.cases[0].absent == ("m",)
    assert spec.cases[0].fills == {"x": Fill(kind="value", value=[1, 2, 3])}


@given(
    st.from_regex(r"[a-z][a-z./]{0,9}", fullmatch=True),
    st.sampled_from(sorted(DATA_SUFFIXES)),
    st.from_regex(r"[a-z.:0-9]{0,9}", fullmatch=True),
)
def test_a_path_and_its_key_are_split(path: str, suffix: str, key: str) -> None:
    text = f"{path}{suffix}:{key}" if key else f"{path}{suffix}"
    parts = split_data_file(text)
    assert ":".join(part for part in parts if part) == text
    assert parts == (path + suffix, key) or any(end in path + ":" for end in DATA_SUFFIXES)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", None),
        ('parameters = "learned_{}"', ParameterNames(template="learned_{}")),
        ('parameters = ["w", "b"]', ParameterNames(names=("w", "b"))),
        (
            'parameters = { "*.weight" = "w_{}", "fc.bias" = "end" }',
            ParameterNames(patterns={"*.weight": "w_{}", "fc.bias": "end"}),
        ),
    ],
)
def test_each_form_sets_the_names_of_the_weights(
    text: str, names: ParameterNames | None, tmp_path: Path
) -> None:
    assert load_model(tmp_path, f"{text}\n").parameters == names
