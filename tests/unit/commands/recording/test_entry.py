"""The conversion of observations to entries."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.commands.recording.entry import (
    choose_fill,
    choose_id,
    format_entry,
    format_interface,
    update_entry,
)
from exporter.commands.recording.observation import (
    Construction,
    DynamicDim,
    Observation,
    ObservedOutput,
    ObservedTensor,
    ProbedOutput,
    ProbeResult,
    ScriptRun,
    merge_observations,
)
from exporter.commands.recording.sources import (
    Source,
    describe_configuration,
    describe_source,
    list_sources,
    runs_code,
)
from exporter.core.errors import ExporterError
from exporter.manifest.loader import load_layers

NET = "class Net:\n    def forward(self, x): ...\n"
IMAGE = ObservedTensor(at="args[0]", name="x", dtype="float32", shape=(2, 3), low=-2.0, high=2.0)


def observe(**fields: object) -> Observation:
    values = {"kind": "export", "class_name": "Net", "tensors": (IMAGE,), "opset": 17, **fields}
    return Observation.model_validate(values)


def convert(root: Path, observation: Observation, probe: ProbeResult) -> dict[str, object]:
    """Return the entry, after the manifest reader accepted it."""
    (root / "net.py").write_text(NET)
    (root / "manifests").mkdir(exist_ok=True)
    source = Source(text="../net.py:Net")
    text = format_entry("net", observation, source, probe, str(root / "manifests"))
    (root / "manifests" / "net.toml").write_text(text, encoding="utf-8")
    load_layers(root)
    entry: dict[str, object] = tomli.loads(text)["models"]["net"]
    return entry


def test_names_axes_limits_and_options_are_those_of_the_script(tmp_path: Path) -> None:
    dim = DynamicDim(name="batch", max=64)
    observation = observe(
        tensors=(IMAGE.model_copy(update={"dynamic": {0: dim}}),),
        outputs=(ObservedOutput(name="logits"),),
        exporter="torchscript",
        options={"do_constant_folding": False},
    )
    output = ProbedOutput(name="", dtype="float16", shape=("batch", "twice"))
    probe = ProbeResult(
        inputs=(("batch", 3),),
        outputs=(output,),
        axes={"batch": {}, "twice": {"product": ["batch", 2]}},
    )
    entry = convert(tmp_path, observation, probe)
    assert entry == {
        "source": "../net.py:Net",
        "inputs": [{"name": "x", "shape": ["batch", 3]}],
        "outputs": [{"name": "logits", "shape": ["batch", "twice"], "dtype": "float16"}],
        "axes": {"batch": {"max": 64}, "twice": {"product": ["batch", 2]}},
        "opsets": 17,
        "exporter": "torchscript",
        "options": {"do_constant_folding": False},
    }


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,12}", fullmatch=True)
AXES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@settings(max_examples=25, deadline=None)
@given(
    names=st.lists(NAMES, min_size=1, max_size=4),
    axes=st.lists(AXES, min_size=4, max_size=4, unique=True),
    opsets=st.sets(st.integers(9, 21), max_size=3),
    note=st.text(max_size=200),
)
def test_each_observation_gives_a_valid_entry(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    axes: list[str],
    opsets: set[int],
    note: str,
) -> None:
    tensors = tuple(
        ObservedTensor(at=f"args[{index}]", name=name, dtype="int64", shape=(2, 3), low=0, high=5)
        for index, name in enumerate(names)
    )
    observation = observe(tensors=tensors, opsets=tuple(sorted(opsets)), notes=(note,))
    shapes = tuple((axis, 3) for axis in axes[: len(names)])
    outputs = tuple(ProbedOutput(name=n, dtype="float32", shape=(axes[0], 4)) for n in names[:2])
    probe = ProbeResult(inputs=shapes, outputs=outputs, axes={axes[0]: {"max": 2048}})
    entry = convert(tmp_path_factory.mktemp("p"), observation, probe)
    assert [each["shape"] for each in entry["inputs"]] == [list(shape) for shape in shapes]
    assert entry["axes"] == {axes[0]: {"max": 2048}}


@pytest.mark.parametrize(
    ("name", "dtype", "low", "high", "rows", "fill"),
    [
        ("image", "float32", -3.0, 3.0, None, None),
        ("image", "float32", 0.0, 0.0, None, None),
        ("image", "float32", 0.0, 0.99, None, {"uniform": [0.0, 1.0]}),
        ("image", "float32", 0.0, 254.0, None, {"uniform": [0.0, 255.0]}),
        ("depth", "float32", -40.0, 900.0, None, {"uniform": [-40.0, 900.0]}),
        ("scale", "float32", 50.0, 50.0, None, {"uniform": [25.0, 75.0]}),
        ("offset", "float32", -2.0, -2.0, None, {"uniform": [-3.0, -1.0]}),
        ("ones", "float32", 1.0, 1.0, None, None),
        ("ids", "int64", 3, 20, 100, {"randint": [0, 100]}),
        ("ids", "int64", 3, 20, None, {"randint": [3, 21]}),
        ("steps", "int64", 4, 4, None, {"randint": [4, 6]}),
        ("attention_mask", "int64", 1, 1, None, {"mask": "right"}),
        ("key_padding_mask", "bool", 0, 1, None, {"padding": "right"}),
        ("text_lengths", "int64", 3, 7, None, {"lengths_of": "length"}),
        ("flags", "bool", 0, 1, None, {"bernoulli": 0.5}),
    ],
)
def test_fills_follow_names_values_and_embeddings(
    name: str, dtype: str, low: float, high: float, rows: int | None, fill: object
) -> None:
    sizes, shape = ((2,), ("batch",)) if "lengths" in name else ((2, 7), ("batch", "length"))
    tensor = ObservedTensor(at="args[0]", name=name, dtype=dtype, shape=sizes, low=low, high=high)
    value, reason = choose_fill(tensor, shape, rows, {2: "batch", 7: "length"})
    assert value == fill
    assert bool(reason) is (fill is not None and rows is None)


@pytest.mark.parametrize(("shape", "is_guessed"), [((), True), ((1,), True), ((1, 3, 8), False)])
def test_a_number_of_one_is_a_value_and_a_tensor_of_ones_an_example(
    shape: tuple[int, ...], is_guessed: bool
) -> None:
    tensor = ObservedTensor(at="args[0]", name="x", dtype="float32", shape=shape, low=1.0, high=1.0)
    value, reason = choose_fill(tensor, shape, None, {})
    assert value == ({"uniform": [0.5, 1.5]} if is_guessed else None)
    assert bool(reason) is is_guessed


def test_an_output_axis_with_a_name_of_its_own_is_valid(tmp_path: Path) -> None:
    output = ProbedOutput(name="y", dtype="float32", shape=("rows", "width"))
    axes = {"batch": {}, "rows": {"sum": ["batch", 0]}, "width": {}}
    probe = ProbeResult(inputs=(("batch", 3),), outputs=(output,), axes=axes)
    assert convert(tmp_path, observe(), probe)["axes"] == {"rows": {"sum": ["batch", 0]}}


MEMORY, ACTIONS, FLAGS = (1, "batch", 8), ("batch", 3), ("batch",)
RESETS = [1.0, *[0.0] * 4] * 3 + [1.0]


@pytest.mark.parametrize(
    ("inputs", "outputs", "feeds"),
    [
        ({"x_in": ACTIONS, "h_in": MEMORY}, {"y": ACTIONS, "h": MEMORY}, {"h": "h_in"}),
        ({"x": ACTIONS, "hx": MEMORY}, {"y": ACTIONS, "hx_out": MEMORY}, {"hx_out": "hx"}),
        (
            {"h0": MEMORY, "c0": MEMORY, "x": ACTIONS},
            {"c1": MEMORY, "h1": MEMORY},
            {"h1": "h0", "c1": "c0"},
        ),
        (
            {"lstm_states_0": MEMORY, "lstm_states_1": MEMORY},
            {"": ACTIONS, "states_0": MEMORY, "states_1": MEMORY},
            {"states_0": "lstm_states_0", "states_1": "lstm_states_1"},
        ),
        ({"x": ACTIONS, "state": MEMORY}, {"y": ACTIONS, "": MEMORY}, {"output_1": "state"}),
        # No memory, another size, two outputs that it could be, and a network of pictures.
        ({"x": ACTIONS}, {"x_out": ACTIONS}, {}),
        ({"x": ACTIONS, "h": MEMORY}, {"h_out": (2, "batch", 8)}, {}),
        ({"x": ACTIONS, "hidden": MEMORY}, {"y": MEMORY, "z": MEMORY}, {}),
        ({"image": ACTIONS, "scale": ACTIONS}, {"image_out": ACTIONS}, {}),
    ],
)
def test_the_loop_of_a_memory_is_written(
    tmp_path: Path,
    inputs: dict[str, tuple[object, ...]],
    outputs: dict[str, tuple[object, ...]],
    feeds: dict[str, str],
) -> None:
    tensors = [
        {"at": f"args[{index}]", "name": name, "dtype": "float32"}
        | {"shape": [4 if size == "batch" else size for size in shape]}
        for index, (name, shape) in enumerate(inputs.items())
    ]
    starts = {"at": f"args[{len(tensors)}]", "name": "episode_starts", "dtype": "float32"}
    probe = ProbeResult.model_validate(
        {
            "inputs": [*inputs.values(), FLAGS],
            "outputs": [
                {"name": name, "dtype": "float32", "shape": shape}
                for name, shape in outputs.items()
            ],
            "axes": {"batch": {}},
        }
    )
    observation = observe(tensors=(*tensors, {**starts, "shape": [4]}))
    rollout = convert(tmp_path, observation, probe).get("rollout")
    constants = {"episode_starts": RESETS}
    assert rollout == ({"steps": 16, "feeds": feeds, "constants": constants} if feeds else None)


def test_an_output_keeps_the_number_that_names_it_in_the_file(tmp_path: Path) -> None:
    output = ProbedOutput(name="", dtype="float32", shape=(2, 5))
    probe = ProbeResult(inputs=((2, 3),), outputs=(output,))
    entry = convert(tmp_path, observe(file_outputs=("12",)), probe)
    assert entry["outputs"] == [{"name": "12", "shape": [2, 5]}]


def test_axes_are_named_by_the_script_and_then_by_its_file() -> None:
    dims = {0: DynamicDim(name="rows"), 1: DynamicDim()}
    observation = observe(
        tensors=(IMAGE.model_copy(update={"dynamic": dims}),),
        outputs=(ObservedOutput(name="y", dynamic={0: DynamicDim(name="total")}),),
        file_outputs=("y", "z"),
        file_axes={"x": ["rows", "width"], "y": ["other", "2*rows"], "z": ["late"]},
    )
    assert [observation.name_input_axis(0, dim) for dim in (0, 1)] == ["rows", "width"]
    assert [observation.name_output_axis(0, dim) for dim in (0, 1)] == ["total", ""]
    assert observation.name_output_axis(1, 0) == "late"
    assert observation.name_output_axis(2, 0) == ""


@pytest.mark.parametrize(
    ("title", "label", "taken", "id"),
    [
        ("", "BertEncoder", (), "bert-encoder"),
        ("Résumé net", "Net", (), "r-sum-net"),
        ("", "Net", ("net", "net-2"), "net-3"),
        ("...", "Net", (), "model"),
        ("model", "YoloHead", (), "yolo-head"),
        ("model", "Model", (), "tracker"),
        ("deploy", "Model", (), "tracker"),
        ("output", "", (), "tracker"),
        ("repro", "Net", (), "repro-2"),
    ],
)
def test_ids_are_valid_and_new(title: str, label: str, taken: tuple[str, ...], id: str) -> None:
    script = ScriptRun(file="/home/tracker/deploy/ONNX/export.py")
    observation = observe(title=title, class_name=label, script=script)
    assert choose_id(observation, taken) == id


def test_calls_of_other_sizes_and_opsets_are_one_observation() -> None:
    wide = IMAGE.model_copy(update={"shape": (2, 9), "high": 7.0})
    calls = [observe(kind="call", opset=None), observe(kind="call", opset=None, tensors=(wide,))]
    (merged,) = merge_observations(calls)
    assert merged.tensors[0].dynamic == {1: DynamicDim()}
    assert merged.tensors[0].high == 7.0
    (merged,) = merge_observations([observe(opset=18), observe(opset=13)])
    assert merged.opsets == (13, 18)
    assert len(merge_observations([observe(), observe(class_name="Other")])) == 2


def list_texts(root: Path, observation: Observation) -> list[str]:
    sources = list_sources(observation, "net", root, root / "manifests")
    for each in sources:
        if each.builder:
            ast.parse(each.builder)
    return [each.text for each in list_sources(observation, "net", root, root / "manifests")]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("net.py", "net:Net"),
        ("manifests/net.py", "net.py:Net"),
        ("manifests/inner/net.py", "inner/net.py:Net"),
        ("tools/net.py", "../tools/net.py:Net"),
        ("acme/net.py", "acme.net:Net"),  # a package
    ],
)
def test_add_writes_the_path_of_a_file(
    file: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("class Net:\n    def forward(self, x):\n        return x\n")
    if file.startswith("acme"):
        (tmp_path / "acme/__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    # An earlier test of the process can leave the relative folder of its manifests.
    monkeypatch.setattr(sys, "path", [each for each in sys.path if Path(each).is_absolute()])
    observation = describe_source(f"{file}:Net", ["x=2x3"], [], tmp_path)
    first, *_ = list_sources(observation, "net", tmp_path, tmp_path / "manifests")
    assert first.text == source


def test_the_source_is_the_class_if_an_import_finds_it(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET)
    construction = Construction(module="net", file=str(file), name="Net")
    assert list_texts(tmp_path, observe(construction=construction))[0] == "net:Net"
    inner = tmp_path / "tools" / "inner.py"
    inner.parent.mkdir()
    inner.write_text(NET)
    construction = Construction(module="inner", file=str(inner), name="Net")
    assert list_texts(tmp_path, observe(construction=construction))[0] == "../tools/inner.py:Net"


def test_a_path_of_the_project_is_relative_to_the_function(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    file = f"{tmp_path}/words.txt"
    for code, init in (("", {"words": file}), (f"net.Net({file!r})", None)):
        construction = Construction(
            module="net", file=str(tmp_path / "net.py"), name="Net", init=init, code=code
        )
        observation = observe(construction=construction)
        first, *_ = list_sources(observation, "net", tmp_path, tmp_path / "manifests")
        assert (first.text, first.init) == ("models/net.py:build", {})
        assert "str(pathlib.Path(__file__).parents[2] / 'words.txt')" in first.builder
        assert str(tmp_path) not in first.builder
        assert "import pathlib" in first.builder
    construction = construction.model_copy(update={"init": {"words": "/usr/share/words"}})
    observation = observe(construction=construction)
    first, *_ = list_sources(observation, "net", tmp_path, tmp_path / "manifests")
    assert first.text == "net:Net"


def test_a_function_adds_the_folder_of_a_script_that_imports_its_neighbors(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tools" / "inner.py"
    file.parent.mkdir()
    file.write_text(f"import neighbor\n{NET}")
    (file.parent / "neighbor.py").touch()
    construction = Construction(
        module="inner", file=str(file), name="Net", folders=(str(file.parent),)
    )
    (_, source) = list_sources(
        observe(construction=construction), "net", tmp_path, tmp_path / "manifests"
    )
    assert source.text == "models/net.py:build"
    assert 'Path(__file__).parents[2] / "tools"' in source.builder
    assert "return inner.Net()" in source.builder


def test_a_function_with_a_module_of_the_root_runs_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    construction = Construction(
        module="net",
        file=str(tmp_path / "net.py"),
        name="Net",
        init=None,
        code="net.Net(int)",
        imports=("builtins", "net"),
        folders=(str(tmp_path),),
    )
    observation = observe(construction=construction)
    first, *_ = list_sources(observation, "net", tmp_path, tmp_path / "manifests")
    assert "sys.path.append(str(Path(__file__).parents[2]))" in first.builder
    assert first.builder.index("sys.path.append") < first.builder.index("import net")


def test_a_script_that_exports_at_import_builds_its_own_model(tmp_path: Path) -> None:
    script = tmp_path / "export.py"
    script.write_text(f"import torch\n{NET}torch.onnx.export(Net(), ())\n")
    construction = Construction(module="export", file=str(script), name="Net")
    arguments = ("--config", str(tmp_path / "a.yml"))
    run = ScriptRun(file=str(script), folder=str(tmp_path), index=1, arguments=arguments)
    observation = observe(construction=construction, script=run)
    copied, source = list_sources(observation, "net", tmp_path, tmp_path / "manifests")
    assert f"{NET}\n\ndef build() -> object:" in copied.builder
    assert "return Net()" in copied.builder
    assert "torch.onnx" not in copied.builder
    assert "sys.path" not in copied.builder
    assert "runpy.run_path" in source.builder
    assert "ARGUMENTS = ['--config', str(ROOT / 'a.yml')]" in source.builder
    assert str(tmp_path) not in source.builder
    assert "an import of export.py runs the script" in source.builder
    trained = observation.model_copy(update={"has_trained": True})
    sources = list_sources(trained, "net", tmp_path, tmp_path / "manifests")
    assert [each.builder for each in sources] == [copied.builder]  # it would train again


@pytest.mark.parametrize(
    ("code", "is_run"),
    [
        ("torch.onnx.export(net, x)", True),
        ("def main(): torch.onnx.export(net, x)\nmain()", True),
        ("def main(): torch.onnx.export(net, x)\nif __name__ == '__main__':\n    main()", False),
        ("parser = ArgumentParser()\nclass Net: ...", False),
        ("def (", True),
    ],
)
def test_code_that_an_import_runs_is_recognized(tmp_path: Path, code: str, is_run: bool) -> None:
    (tmp_path / "export.py").write_text(code)
    assert runs_code(tmp_path / "export.py") is is_run


ENTRY = """\
format = 1
[models.net]
source = "../net.py:Net"
weights = "old.pt"  # by hand
inputs = [{ name = "x", shape = ["n", 3], fill = "ones" }]
outputs = [{ name = "logits", shape = ["n", 4], compare = { sqnr = 40 } }]
axes.n.max = 9
opsets = [17, 19]
tolerance = { atol = 0.1 }
"""


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({}, []),
        ({"inputs": ((8, 3),)}, []),  # the entry promises more
        ({"inputs": (("n", "m"),)}, ["inputs"]),
        ({"inputs": ((8, 5),)}, ["inputs"]),
        ({"outputs": (("n", 5), "float32")}, ["outputs"]),
        ({"outputs": (("n", 4), "float16")}, ["outputs"]),
        ({"weights": "/new.pt"}, ["weights"]),
        ({"weights": ""}, ["weights"]),
        ({"opset": 20}, ["opsets"]),
        ({"name": "scores"}, ["outputs"]),
        ({"options": {"optimize": False}}, ["options"]),
    ],
)
def test_an_entry_differs_if_it_promises_less_than_the_script(
    change: dict[str, Any], keys: list[str]
) -> None:
    shape, dtype = change.get("outputs", (("n", 4), "float32"))
    observation = observe(
        opset=change.get("opset", 17),
        outputs=(ObservedOutput(name=change.get("name", "logits")),),
        options=change.get("options", {}),
    )
    probe = ProbeResult(
        inputs=change.get("inputs", (("n", 3),)),
        outputs=(ProbedOutput(name="", dtype=dtype, shape=shape),),
        axes={"n": {"max": 5}, **({"m": {"max": 7}} if keys == ["inputs"] else {})},
        weights=change.get("weights", "/manifests/old.pt"),
    )
    recorded = format_entry("net", observation, Source(text="../net.py:Net"), probe, "/manifests")
    text, differences = update_entry(ENTRY, "net", recorded, observation, (17, 19))
    assert sorted(differences) == keys
    assert (text == ENTRY) is (not keys)
    again, rest = update_entry(text, "net", recorded, observation, (17, 19, observation.opset or 0))
    assert (again, rest) == (text, {})
    entry = tomli.loads(text)["models"]["net"]
    assert entry["tolerance"] == {"atol": 0.1}
    assert entry["inputs"][0]["fill"] == "ones"
    assert entry["axes"]["n"] == {"max": 9}
    assert ("m" in entry["axes"]) is (keys == ["inputs"])
    assert (entry["inputs"][0]["shape"][0], entry["outputs"][0]["compare"]) == ("n", {"sqnr": 40})


def test_an_input_without_a_name_in_the_entry_is_no_difference() -> None:
    entry = ENTRY.replace('name = "x", ', "").replace('weights = "old.pt"  # by hand\n', "")
    observation = observe(outputs=(ObservedOutput(name="logits"),))
    output = ProbedOutput(name="", dtype="float32", shape=("n", 4))
    probe = ProbeResult(inputs=(("n", 3),), outputs=(output,))
    recorded = format_entry("net", observation, Source(text="../net.py:Net"), probe, "/manifests")
    assert update_entry(entry, "net", recorded, observation, (17,)) == (entry, {})


@pytest.mark.parametrize(
    ("config", "source", "message"),
    [
        (None, "net", "net/config.json: is no file of the project; copy it there"),
        ('{"architectures":', "net", "net: needs a class of transformers, such as"),
        ('{"model_type": "llama"}', "net", "net: needs a class of transformers, such as"),
        ('{"architectures": ["A"]}', "torch:A", "torch:A: needs a class of transformers"),
    ],
)
def test_a_folder_names_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str | None, source: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net").mkdir()
    if config:
        (tmp_path / "net/config.json").write_text(config)
    with pytest.raises(ExporterError, match=f"^{message}"):
        describe_configuration(source, Path("net"), tmp_path, {})


@pytest.mark.parametrize(
    ("heads", "names"),
    [
        ([2, 2], ["past_key_values.{layer}.key"]),
        ([2, 4], ["past_key_values.0.key", "past_key_values.1.key"]),
    ],
)
def test_equal_layers_are_one_table(heads: list[int], names: list[str]) -> None:
    tensors = [
        {"name": f"past_key_values.{layer}.key", "dtype": "float32", "shape": ["batch", count]}
        for layer, count in enumerate(heads)
    ]
    parts = {"decoder": {"inputs": tensors, "outputs": []}}
    text = format_interface("net", {"parts": parts, "limit": None, "vocabulary": 9})
    assert [item["name"] for item in tomli.loads(text)["decoder"]["inputs"]] == names
