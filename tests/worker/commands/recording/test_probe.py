"""The prober finds the axes of a model, their limits, and the relations of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from exporter.commands.recording.child.call_description import (
    add_declarations,
    describe_call,
    list_parameters,
    store_call,
)
from exporter.commands.recording.child.probe import fit_size, probe
from exporter.commands.recording.observation import Observation, ProbeResult
from exporter.manifest import StateNames
from exporter.manifest.loader import load_layers

MODELS = """
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn


class Cached(nn.Module):
    def forward(self, new, past, mask):
        return torch.cat([past, new], 1) * mask.unsqueeze(-1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(3, 5)

    def forward(self, h_in, x):
        y, h = self.memory(x[None], h_in)
        return y[0], h


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(3, 4, 8, 8)

    def forward(self, image):
        assert image.shape[2] % 8 == 0 and image.shape[3] == 16
        return self.net(image).flatten(2)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 4), nn.Embedding(21, 4)

    def forward(self, ids):
        return {"hidden": self.words(ids) + self.places(torch.arange(ids.shape[1]))}


class Selected(nn.Module):
    def forward(self, x):
        return x[x > 0]


class Long(nn.Module):
    def forward(self, wave):
        return wave.unfold(1, 70, 10).sum(1)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 4)

    def forward(self, items):
        return self.bag(items)


class Counted(nn.Module):
    def forward(self, x):
        with open(__file__ + ".sizes", "a") as file:
            print(x.numel(), file=file)
        return x + 1


class Best(nn.Module):
    def forward(self, image):
        assert image.shape[1] == 3
        return image[:, 0, ::2, ::2].flatten(1).topk(10, dim=1).values


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.head(self.drop(self.body(x).tanh()))


class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, image):
        return self.conv(image).argmax(1)


class Rows(nn.Module):
    def forward(self, x):
        return list(x)


class Labelled(nn.Module):
    def __init__(self, kind="tuple"):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        logits, hidden = x + 1, x * 2
        def inner(): return hidden, logits
        return logits, hidden, {"aux": x - 1}, [x, x + 2]


class Early(nn.Module):
    def forward(self, x):
        if x.shape[0] == 0:
            return x, x
        first = x + 1
        return first, x


class Single(nn.Module):
    def forward(self, x):
        scores = x + 1
        return scores


class Same(nn.Module):
    def forward(self, x):
        x = x + 1
        return x


class Point(NamedTuple):
    place: torch.Tensor
    size: torch.Tensor


@dataclass
class Boxes:
    corner: torch.Tensor
    label: torch.Tensor


class Fields(nn.Module):
    def forward(self, x):
        result = Point(x + 1, x + 2)
        return result


class Data(nn.Module):
    def forward(self, x):
        return Boxes(x + 1, x + 2)


class Attention(nn.Module):
    def forward(self, new, past_key):
        cache = torch.cat([past_key, new], 2)
        return cache[:, :2, :, :4]


class Exported(nn.Module):
    def forward(self, x):
        return x if torch.onnx.is_in_onnx_export() else [x, [x + 1, x + 2]]


class Threads(nn.Module):
    def forward(self, x):
        return x * torch.get_num_threads()


class Scored(nn.Module):
    def forward(self, x):
        return x.sigmoid() if torch.onnx.is_in_onnx_export() else x


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Faster(nn.Module):
    def forward(self, x):
        return x * 2 if torch.onnx.is_in_onnx_export() else x + x


class Broken(nn.Module):
    def forward(self, x):
        raise RuntimeError("needs a GPU")
"""


#: The state of `Net`.
WEIGHTS = {
    f"{part}.{name}": torch.ones(shape)
    for part in ("body", "head")
    for name, shape in (("weight", (3, 3)), ("bias", (3,)))
}


def run(root: Path, source: str, inputs: str, **fields: Any) -> ProbeResult:
    """Return the facts; by default, of a source without a script."""
    (root / "manifests").mkdir()
    (root / "manifests/models.py").write_text(MODELS)
    (root / "manifests/net.toml").write_text(
        f'format = 1\n[models.net]\nsource = "models.py:{source}"\nopsets = 18\n'
        f'inputs = [{inputs}]\noutputs = [{{ name = "y", shape = [] }}]\n'
    )
    spec = load_layers(root).manifest.models[0]
    tensors = [{"at": "", "name": i.name, "dtype": i.dtype, "shape": i.shape} for i in spec.inputs]
    observation = Observation.model_validate({"tensors": tensors, **fields})
    return probe(spec, str(root), observation)


def test_dimensions_that_change_together_are_axes_and_sums(tmp_path: Path) -> None:
    inputs = ", ".join(
        f'{{ name = "{name}", shape = {shape} }}'
        for name, shape in (("new", [2, 5, 4]), ("past", [2, 3, 4]), ("mask", [2, 8]))
    )
    result = run(tmp_path, "Cached", inputs)
    batch, new, past = result.inputs[0][0], result.inputs[0][1], result.inputs[1][1]
    assert batch == result.inputs[1][0] == result.inputs[2][0] == "batch"
    total = result.inputs[2][1]
    assert result.axes[str(total)] == {"sum": [new, past]}
    assert len({batch, new, past, total}) == 4
    assert result.outputs[0].shape[1] == total


def test_the_batch_of_a_memory_is_the_same_axis(tmp_path: Path) -> None:
    inputs = '{ name = "h_in", shape = [1, 4, 5] }, { name = "x", shape = [4, 3] }'
    result = run(tmp_path, "Recurrent", inputs)
    assert result.inputs == ((1, "batch", 5), ("batch", 3))
    assert [each.shape for each in result.outputs] == [("batch", 5), (1, "batch", 5)]
    assert result.axes == {"batch": {}}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("Labelled", ["logits", "hidden", "aux", "", ""]),
        ("Early", ["", ""]),  # one `return` names another variable, the other a parameter
        ("Single", ["scores"]),
        ("Same", [""]),  # an input has this name
        ("Fields", ["place", "size"]),
        ("Data", ["corner", "label"]),
        ("Net", [""]),
    ],
)
def test_outputs_have_the_names_of_the_source(
    tmp_path: Path, source: str, names: list[str]
) -> None:
    result = run(tmp_path, source, '{ name = "x", shape = [2, 3] }')
    assert [each.name for each in result.outputs] == names


def test_the_axis_of_a_cache_is_no_height(tmp_path: Path) -> None:
    inputs = '{ name = "new", shape = [1, 2, 1, 4] }, { name = "past_key", shape = [1, 2, 3, 4] }'
    result = run(tmp_path, "Attention", inputs)
    assert [shape[2] for shape in result.inputs] == ["length", "past"]
    assert {"height", "width"}.isdisjoint(result.axes)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"model": {f"module.{key}": each for key, each in WEIGHTS.items()}, "step": 3}, ""),
        ({**WEIGHTS, "body.bias": torch.zeros(9)}, "size mismatch for body.bias"),
        ({"other": torch.zeros(2)}, "it has other, and the model body.weight, body.bias"),
        ([1], "it has no tensors by name"),
    ],
)
def test_weights_of_the_user_are_found_in_their_file(
    tmp_path: Path, content: object, problem: str
) -> None:
    torch.save(content, tmp_path / "weights.pt")
    path = str(tmp_path / "weights.pt")
    result = run(tmp_path, "Net", '{ name = "x", shape = [2, 3] }', weights=path)
    assert problem in result.problem
    assert bool(problem) == bool(result.problem)
    if not problem:
        assert result.weights == path
        assert result.weights_names == StateNames(key="model", strip="module.")


def test_multiples_and_fixed_sizes_are_limits(tmp_path: Path) -> None:
    inputs = '{ name = "image", shape = [1, 3, 32, 16] }'
    result = run(tmp_path, "Patches", inputs)
    assert result.inputs == (("batch", 3, "height", 16),)
    assert result.axes["height"] == {"multiple_of": 8}
    label = str(result.outputs[0].shape[2])
    assert result.axes[label] == {"of": "height", "stride": 4}


def test_a_number_of_pixels_limits_height_and_width(tmp_path: Path) -> None:
    result = run(tmp_path, "Best", '{ name = "image", shape = [1, 3, 32, 32] }')
    assert result.inputs == (("batch", 3, "height", "width"),)
    assert result.axes == {"batch": {}, "height": {"min": 8}, "width": {"min": 8}}
    assert result.outputs[0].shape == ("batch", 10)


def test_a_smallest_size_is_not_the_observed_one(tmp_path: Path) -> None:
    result = run(tmp_path, "Long", '{ name = "wave", shape = [2, 800] }')
    assert result.axes == {"batch": {}, "length": {"min": 96}}


def test_a_model_of_floats_runs_once_at_its_sizes(tmp_path: Path) -> None:
    result = run(tmp_path, "Counted", '{ name = "x", shape = [2, 3] }')
    assert (result.problem, result.rows) == ("", {})
    (log,) = tmp_path.rglob("*.sizes")
    assert log.read_text().split().count("6") == 2  # the second with other values


def test_a_bag_of_embeddings_has_rows(tmp_path: Path) -> None:
    fill = 'dtype = "int64", fill = { randint = [0, 9] }'
    result = run(tmp_path, "Bag", f'{{ name = "items", shape = [2, 6], {fill} }}')
    assert result.rows == {"items": 50}


def test_lengths_follow_the_size_of_their_rows(tmp_path: Path) -> None:
    """Lengths above the size are an error of PyTorch, and limited the size before."""
    fill = 'dtype = "int64", fill = { randint = [5, 10] }'
    inputs = f'{{ name = "x", shape = [2, 9, 4] }}, {{ name = "lengths", shape = [2], {fill} }}'
    tensors = [
        {"at": "", "name": "x", "dtype": "float32", "shape": (2, 9, 4)},
        {"at": "", "name": "lengths", "dtype": "int64", "shape": (2,), "low": 5, "high": 9},
    ]
    result = run(tmp_path, "Tagger", inputs, tensors=tensors)
    assert result.inputs == (("batch", "length", 4), ("batch",))
    assert result.axes == {"batch": {}, "length": {}}
    assert result.outputs[0].shape == ("batch", "length", 6)


def test_tables_limit_ids_and_lengths(tmp_path: Path) -> None:
    fill = 'dtype = "int64", fill = { randint = [0, 9] }'
    inputs = f'{{ name = "ids", shape = [2, 7], {fill} }}'
    dynamic = {0: {"name": "b"}, 1: {"name": "seq"}}
    ids = {"at": "args[0]", "name": "ids", "dtype": "int64", "shape": (2, 7), "dynamic": dynamic}
    result = run(tmp_path, "Table", inputs, kind="export", tensors=[ids])
    assert result.rows == {"ids": 50}
    assert result.inputs == (("b", "seq"),)
    assert result.axes == {"b": {}, "seq": {"max": 21}}
    assert (result.outputs[0].name, result.outputs[0].shape) == ("hidden", ("b", "seq", 4))


def test_a_size_that_depends_on_values_is_an_axis_of_its_own(tmp_path: Path) -> None:
    result = run(tmp_path, "Selected", '{ name = "x", shape = [3, 5] }', kind="export")
    assert result.inputs == ((3, 5),)
    assert result.axes == {"output_0": {}}
    assert result.notes == ("axis output_0: no relation to the inputs was measured",)


def test_an_output_axis_of_the_script_keeps_its_name_and_is_no_number(tmp_path: Path) -> None:
    inputs = ", ".join(
        f'{{ name = "{name}", shape = {shape} }}'
        for name, shape in (("new", [2, 5, 4]), ("past", [2, 3, 4]), ("mask", [2, 8]))
    )
    named = {0: {"name": "rows"}, 1: {"name": "total"}}
    result = run(tmp_path, "Cached", inputs, outputs=[{"name": "y", "dynamic": named}])
    assert result.outputs[0].shape[:2] == ("rows", "total")
    assert result.axes["rows"] == {"sum": ["batch", 0]}


def test_an_output_axis_that_the_script_declares_is_no_number(tmp_path: Path) -> None:
    named = {2: {"name": "width"}}
    inputs = '{ name = "ids", shape = [2, 7], dtype = "int64", fill = { randint = [0, 9] } }'
    result = run(tmp_path, "Table", inputs, outputs=[{"name": "y", "dynamic": named}])
    assert result.outputs[0].shape == ("batch", "length", "width")
    assert result.axes["width"] == {}
    assert "axis width: no relation to the inputs was measured" in result.notes


@pytest.mark.parametrize(
    ("keys", "dims", "unknown"),
    [
        ({"dynamic_axes": {"image": {0: "n"}}}, {0: "n"}, []),
        ({"dynamic_axes": {"x": {0: "n"}}}, {0: "n"}, []),  # the parameter of `forward`
        ({"dynamic_shapes": {"x": {0: "n"}}}, {0: "n"}, []),
        ({"dynamic_shapes": {"image": {0: "n"}}}, {0: "n"}, []),
        ({"dynamic_axes": {"img": {0: "n"}}}, {}, ["dynamic_axes of the script has the key img"]),
        ({"dynamic_shapes": {"i": {0: "n"}}}, {}, ["dynamic_shapes of the script has the key i,"]),
        ({"dynamic_axes": {"image": [0], "scores": {0: "n"}}}, {0: ""}, []),
    ],
)
def test_each_key_of_dynamic_axes_is_used_or_said(
    keys: dict[str, Any], dims: dict[int, str], unknown: list[str]
) -> None:
    class Image(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    model = Image()
    content = describe_call(list_parameters(model), (torch.rand(2, 3),), {})
    names = {"input_names": ["image"], "output_names": ["scores"]}
    add_declarations(content, model, {**names, **keys})
    (tensor,) = content["tensors"]
    assert {dim: each["name"] for dim, each in tensor.get("dynamic", {}).items()} == dims
    assert len(content["notes"]) == len(unknown)
    assert all(map(str.startswith, content["notes"], unknown))


def test_a_number_of_outputs_that_follows_a_size_is_a_note(tmp_path: Path) -> None:
    x = {"at": "args[0]", "name": "x", "dtype": "float32", "shape": (2, 3)}
    x["dynamic"] = {0: {"name": "n"}}
    result = run(tmp_path, "Rows", '{ name = "x", shape = [2, 3] }', kind="export", tensors=[x])
    assert [output.shape for output in result.outputs] == [(3,), (3,)]
    assert result.notes == ("axis n: another size gave an error or other outputs",)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("Exported", "the model returns 3 outputs, and 1 in an export, where `torch.onnx.is_in_"),
        ("Scored", "the model returns other values in an export, where `torch.onnx.is_in_"),
        ("Faster", ""),
        ("Noisy", ""),
    ],
)
def test_other_outputs_in_an_export_are_a_problem(tmp_path: Path, model: str, problem: str) -> None:
    result = run(tmp_path, model, '{ name = "x", shape = [3] }', kind="export")
    assert result.problem.startswith(problem)
    assert bool(result.outputs) is not bool(problem)


def test_a_model_that_fails_is_a_problem(tmp_path: Path) -> None:
    result = run(tmp_path, "Broken", '{ name = "x", shape = [3] }')
    assert "needs a GPU" in result.problem


@pytest.mark.parametrize(
    ("compute", "rule"),
    [
        (lambda n, m: 7, 7),
        (lambda n, m: n, "n"),
        (lambda n, m: n + 2, {"sum": ["n", 2]}),
        (lambda n, m: n - 2, {"difference": ["n", 2]}),
        (lambda n, m: 3 * n, {"product": ["n", 3]}),
        (lambda n, m: n // 4, {"of": "n", "stride": 4}),
        (lambda n, m: (n - 1) // 2 + 1, {"of": "n", "stride": 2, "kernel": 1}),
        (lambda n, m: (n + 4 - 3) // 2 + 1, {"of": "n", "stride": 2, "kernel": 1, "padding": 1}),
        (lambda n, m: n + m, {"sum": ["n", "m"]}),
        (lambda n, m: n * m * 2, {"product": ["n", "m", 2]}),
        (lambda n, m: n * n, {}),
    ],
)
def test_sizes_have_the_simplest_rule(compute: Callable[[int, int], int], rule: object) -> None:
    pairs = [
        (11, 6),
        (12, 6),
        (13, 6),
        (14, 6),
        (16, 6),
        (19, 6),
        (8, 6),
        (11, 7),
        (11, 9),
        (12, 8),
    ]
    samples = [({"n": n, "m": m}, compute(n, m)) for n, m in pairs]
    assert fit_size(samples) == rule


def observe(model: nn.Module, root: Path, **fields: object) -> dict[str, object]:
    """Return the fields of the observation of a call with one input."""
    paths = store_call(model, (torch.linspace(-2, 2, 6).reshape(2, 3),), {}, None, root)
    return {"kind": "export", **paths, **fields}


def compare(root: Path, observation: dict[str, object]) -> ProbeResult:
    return run(root, "Net", '{ name = "x", shape = [2, 3] }', **observation)


def change_head(model: nn.Module) -> None:
    other = build(8)
    model.head.load_state_dict(other.head.state_dict())


def average(model: nn.Module) -> None:
    other = build(8).state_dict()
    mean = {key: (each + other[key]) / 2 for key, each in model.state_dict().items()}
    model.load_state_dict(mean)


def patch(model: nn.Module) -> None:
    type(model).forward = lambda self, x: self.head(x) + 1


def add_hook(model: nn.Module) -> None:
    model.register_forward_hook(lambda module, args, returned: returned.relu())


@pytest.mark.parametrize(
    ("change", "is_loaded", "difference"),
    [
        (lambda model: None, True, ""),
        (lambda model: model.train(), True, ""),
        (change_head, True, "other weights than the script's"),
        (change_head, False, "other weights than the script's"),
        (average, True, "other weights than the script's"),
        (patch, True, "other outputs than the script's"),
        (add_hook, True, "other outputs than the script's"),
    ],
)
def test_another_model_is_a_difference(
    tmp_path: Path, change: Callable[[nn.Module], object], is_loaded: bool, difference: str
) -> None:
    model = build()
    torch.save({"model": wrap(model.state_dict()), "epoch": 3}, tmp_path / "w.ckpt")
    change(model)
    files = [str(tmp_path / "w.ckpt")]
    observation = observe(model, tmp_path, is_loaded=is_loaded, files=files)
    result = compare(tmp_path, observation)
    assert result.problem == ""
    assert result.difference.startswith(difference) if difference else not result.difference
    if not difference:
        assert result.weights == files[0]
        assert result.weights_names == StateNames(key="model", strip="module.")


@pytest.mark.parametrize(("model", "is_unstable"), [("Threads", True), ("Same", False)])
def test_values_that_change_with_the_threads_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, is_unstable: bool
) -> None:
    # A worker's setup in an earlier test of this process replaces it by one without effect.
    monkeypatch.setattr(torch, "set_num_threads", torch._C.set_num_threads)
    observation = observe(nn.Hardtanh(), tmp_path)
    result = run(tmp_path, model, '{ name = "x", shape = [2, 3] }', **observation)
    assert result.difference.startswith("other outputs than the script's")
    assert ("record it with trained weights" in result.difference) is is_unstable


def test_a_model_is_compared_with_the_threads_of_the_script_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums in another order can differ by more than the limit; the same order shows the model."""
    monkeypatch.setattr(torch, "set_num_threads", torch._C.set_num_threads)
    torch.set_num_threads(3)
    try:
        observation = observe(build(name="Threads"), tmp_path)
    finally:
        torch.set_num_threads(1)
    result = run(tmp_path, "Threads", '{ name = "x", shape = [2, 3] }', **observation)
    assert not result.difference
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("gap", "difference"), [(0.0, ""), (1e-6, ""), (0.1, "other outputs than the script's")]
)
@pytest.mark.parametrize("flipped", [2, 40])
def test_only_selections_of_equal_values_may_differ(
    tmp_path: Path, gap: float, difference: str, flipped: int
) -> None:
    model = build(name="Mapped")
    with torch.no_grad():  # the last two classes have the largest values
        model.conv.weight[2:] = model.conv.weight[3] * 0
        model.conv.bias[2], model.conv.bias[3] = 9.0 + gap, 9.0
    image = torch.rand(1, 3, 64, 64)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    paths = store_call(model, (image,), {}, None, tmp_path)
    sample = torch.load(paths["sample"])
    sample["outputs"][0].flatten()[:flipped] += 1
    torch.save(sample, paths["sample"])
    observed = {"kind": "export", **paths, "files": [str(tmp_path / "w.pt")]}
    inputs = '{ name = "image", shape = [1, 3, 64, 64] }'
    result = run(tmp_path, "Mapped", inputs, **observed)
    assert result.difference[: len(difference) or None] == difference
    counted = f"{flipped} elements of selections differ from the script's run"
    assert (counted in result.notes) is (not difference)
    if difference:
        count = f"output 0: {flipped} of 4096 elements differ, first at [0, 0, 0]"
        assert f"{count} (script 3, entry 2)" in result.difference


def test_files_that_are_no_state_are_named(tmp_path: Path) -> None:
    (tmp_path / "policy.zip").write_bytes(b"an archive")
    files = [str(tmp_path / "policy.zip")]
    result = compare(tmp_path, observe(build(), tmp_path, is_loaded=True, files=files))
    assert "policy.zip: read or written by the script, but no state_dict" in result.difference


def test_weights_of_no_file_are_initial_values_if_none_were_loaded(tmp_path: Path) -> None:
    result = compare(tmp_path, observe(build(), tmp_path))
    assert (result.difference, result.weights) == ("", "")
    assert "the weights are initial values" in result.notes[0]


def build(seed: int = 7, name: str = "Net") -> nn.Module:
    """Return a model with other weights than the seed 0 gives."""
    content: dict[str, Any] = {}
    exec(MODELS, content)
    torch.manual_seed(seed)
    model: nn.Module = content[name]()
    return model


def wrap(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"module.{key}": value for key, value in state.items()}


def test_a_compiled_module_has_the_names_of_its_schema(tmp_path: Path) -> None:
    traced = torch.jit.trace(build().eval(), torch.rand(2, 3))
    traced.save(str(tmp_path / "net.pt"))
    assert list_parameters(torch.jit.load(str(tmp_path / "net.pt"))) == ["x"]
    assert list_parameters(traced) == ["x"]
