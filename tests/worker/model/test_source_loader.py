"""From the text of `source` to a model."""

from __future__ import annotations

import hashlib
import pickle
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exporter.core.import_object import load_attribute
from exporter.manifest import ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.model.model_kinds import ScriptedFunction
from exporter.worker.model.source_loader import (
    find_weights_of_calls,
    load_model,
    load_model_twice,
    require_hash,
)
from exporter.worker.process.failure import Failure
from exporter.worker.process.setup import apply_state
from tests.traps.prove import export
from tests.unit.factory import make_record
from tests.worker.contracts import ROOT, make_contract


def test_an_object_of_a_module_is_built_under_the_seed(tmp_path: Path) -> None:
    weights = []
    for index, name in enumerate(("one", "other")):
        code = "from torch import nn\nnet = nn.Linear(4, 3)\n"
        (tmp_path / f"{name}_object.py").write_text(code)
        torch.manual_seed(index)  # the state of the generator before the import
        spec = make_contract("", manifest="m.toml", source=f"{name}_object.py:net", seed=7)
        model = load_model(spec, tmp_path)
        assert isinstance(model, torch.nn.Linear)
        weights.append(model.weight)
    assert torch.equal(*weights)


@pytest.mark.parametrize("source", ["Affine", "build_affine", "SHARED_AFFINE"])
def test_a_class_a_function_and_an_object_give_a_module(source: str) -> None:
    model = load_model(make_contract(source), ROOT)
    assert isinstance(model, torch.nn.Module)
    assert model(torch.zeros(2, 4)).shape == (2, 3)


def test_the_module_form_needs_no_file() -> None:
    model = load_model(
        make_contract("", source="torch.nn:Linear", init={"in_features": 4, "out_features": 2}),
        ROOT,
    )
    assert isinstance(model, torch.nn.Linear)


def test_a_package_in_src_needs_no_installation(tmp_path: Path) -> None:
    (tmp_path / "src/packaged_nets").mkdir(parents=True)
    (tmp_path / "src/packaged_nets/nets.py").write_text(
        "from torch import nn\nnet = nn.Linear(4, 3)"
    )
    spec = make_contract("", manifest="m.toml", source="packaged_nets.nets:net")
    assert isinstance(load_model(spec, tmp_path), torch.nn.Linear)
    for source, near in (
        ("packagd_nets.nets:net", "No module named 'packagd_nets'; did you mean 'packaged_nets'?"),
        ("packaged_nets.net:net", "'packaged_nets.net'; did you mean 'packaged_nets.nets'?"),
    ):
        with pytest.raises(Failure, match=re.escape(near)):
            load_model(spec.model_copy(update={"source": source}), tmp_path)


def test_init_arguments_reach_the_class() -> None:
    model = load_model(make_contract("Affine", init={"width": 6}), ROOT)
    assert isinstance(model, torch.nn.Module)
    assert model(torch.zeros(1, 6)).shape == (1, 3)


def test_the_seed_decides_the_weights() -> None:
    first, same, other = (
        load_model(make_contract("Affine", seed=seed), ROOT).state_dict()["linear.weight"]
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("mode", "training"), [("eval", False), ("train", True), ("keep", True)])
def test_the_mode_is_set(mode: str, training: bool) -> None:
    model = load_model(make_contract("Affine", mode=mode), ROOT)
    assert isinstance(model, torch.nn.Module)
    assert model.training is training


@pytest.mark.parametrize("capture", [None, "script"])
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16", "float64"])
def test_the_precision_is_that_of_every_weight(precision: str, capture: str | None) -> None:
    model = load_model(make_contract("Affine", precision=precision, capture=capture), ROOT)
    assert isinstance(model, torch.nn.Module)
    assert {weight.dtype for weight in model.parameters()} == {getattr(torch, precision)}


def test_a_precision_casts_floats_only() -> None:
    model = load_model(make_contract("BufferDtypes", precision="float16"), ROOT)
    assert isinstance(model, torch.nn.Module)
    kinds = {name: buffer.dtype for name, buffer in model.named_buffers()}
    assert kinds == {"index": torch.int64, "phase": torch.complex64, "scale": torch.float16}


def test_capture_script_compiles() -> None:
    assert isinstance(
        load_model(make_contract("Affine", capture="script"), ROOT), torch.jit.ScriptModule
    )


def test_a_compiled_function_is_a_model() -> None:
    assert isinstance(load_model(make_contract("scripted_loop"), ROOT), ScriptedFunction)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "nets.py:build_text"}, "gave a str, expected a torch.nn.Module"),
        ({"source": "nets.py:text"}, "is a str, expected a class, a function or a module"),
        ({"source": "nets.py:raise_error"}, "RuntimeError: no weights here"),
        ({"source": "nets.py:Missing"}, "has no attribute 'Missing'"),
        ({"source": "torch.nope:Net"}, "No module named 'torch.nope'"),
        ({"source": "manifest:Net"}, "No module named 'manifest'; did you mean 'manifests'?"),
        (
            {"source": "nets.py:Affine", "init": {"wdth": 1}},
            "unexpected keyword argument 'wdth'; change `init`",
        ),
        (
            {"source": "nets.py:SHARED_AFFINE", "init": {"width": 1}},
            "accepts no init arguments; remove `init`",
        ),
    ],
)
def test_a_source_without_a_model_fails_at_source(changes: dict[str, object], message: str) -> None:
    with pytest.raises(Failure) as caught:
        load_model(make_contract("", **changes), ROOT)
    assert caught.value.stage is Stage.SOURCE
    assert message in caught.value.message


def test_a_file_is_loaded_from_its_folder_even_if_its_name_is_taken(tmp_path: object) -> None:
    # `json` is a package of Python: the file next to the manifest has priority.
    folder = ROOT.__class__(str(tmp_path))
    (folder / "json").mkdir()
    (folder / "json" / "decoder.py").write_text("value = 'ours'\n")
    assert load_attribute("json/decoder.py:value", folder) == "ours"


def test_a_file_runs_once_for_several_attributes(tmp_path: Path) -> None:
    (tmp_path / "two-nets.py").write_text("one, two = object(), object()\npair = [one, two]\n")
    one = load_attribute("two-nets.py:one", tmp_path)
    assert load_attribute("two-nets.py:pair", tmp_path)[0] is one
    (tmp_path / "two-nets.py").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "two-nets.py").write_text("one = 1\n")
    assert load_attribute("two-nets.py:one", tmp_path / "other") == 1


CODE = """
from pathlib import Path

from torch import nn


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        Path(__file__).with_name("built").touch()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)


def function(x):
    return x
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "weighted_code.py").write_text(CODE)
    return tmp_path


def state() -> dict[str, torch.Tensor]:
    return {"linear.weight": torch.full((3, 4), 0.25), "linear.bias": torch.arange(3.0)}


def build_spec(weights: str, **changes: object) -> ModelSpec:
    values: dict[str, object] = {"manifest": "m.toml", "source": "weighted_code.py:Linear"}
    return make_contract("", **(values | {"weights": weights} | changes))


def load_state(root: Path, spec: ModelSpec) -> dict[str, torch.Tensor]:
    model = load_model(spec, root)
    assert isinstance(model, torch.nn.Module)
    return dict(model.state_dict())


def save(path: Path, content: object) -> None:
    if path.suffix == ".safetensors":
        assert isinstance(content, dict)
        save_file(content, path)
    else:
        torch.save(content, path, _use_new_zipfile_serialization=path.suffix != ".bin")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.pth", "w.bin"])
def test_every_file_format_is_loaded(root: Path, name: str) -> None:
    save(root / name, state())
    actual = load_state(root, build_spec(name))
    assert all(torch.equal(actual[key], value) for key, value in state().items())


def test_weights_are_in_the_artifact_and_among_the_sources(root: Path) -> None:
    save(root / "w.safetensors", state())
    digest = hashlib.sha256((root / "w.safetensors").read_bytes()).hexdigest()
    spec = build_spec("w.safetensors", weights_sha256=digest)
    records = export(spec, root / "build" / "net", root=root)
    assert [record.status for record in records] == [Status.PASS, Status.PASS], records[0].message
    sources = {source.file: source.state for source in records[0].sources}
    assert sources["w.safetensors"] == digest


def test_another_hash_fails_before_any_code_runs(root: Path) -> None:
    save(root / "w.pt", state())
    with pytest.raises(Failure, match=r"w\.pt: the sha256 is .*, expected 0000") as caught:
        load_model(build_spec("w.pt", weights_sha256="0" * 64), root)
    assert caught.value.stage is Stage.SOURCE
    assert not (root / "built").exists()


def test_the_hash_of_a_saved_model_is_compared(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"program")
    digest = hashlib.sha256(b"program").hexdigest()
    for suffix, expected in (("", digest), (" changed", "0" * 64)):
        spec = build_spec("").model_copy(
            update={"source": "net.pt2", "weights_sha256": expected, "weights": ""}
        )
        if not suffix:
            require_hash(spec, tmp_path)
            continue
        with pytest.raises(Failure, match=r"net\.pt2: the sha256 is .*, expected 0000"):
            require_hash(spec, tmp_path)


@pytest.mark.parametrize(
    ("content", "names", "message"),
    [
        ({"model": state(), "epoch": 3}, {"key": "model"}, ""),
        ({"a": {f"m.{key}": v for key, v in state().items()} | {"n": torch.ones(1)}, "b": state()},
         {"key": "a", "strip": "m."}, ""),
        ({"weight": state()["linear.weight"], "bias": state()["linear.bias"]},
         {"prefix": "linear."}, ""),
        ({"model": state()}, {"key": "modle"}, "no key 'modle'; did you mean 'model'"),
        (state(), {"strip": "m."}, "no name that begins with 'm.'; correct `strip`"),
        ({"a": {f"m.{key}": v for key, v in state().items()}}, {"key": "a"},
         'set `weights = { file = "w.pt", key = "a", strip = "m." }`'),
    ],
)  # fmt: skip
def test_a_part_of_a_checkpoint_is_loaded_by_other_names(
    root: Path, content: object, names: dict[str, str], message: str
) -> None:
    save(root / "w.pt", content)
    spec = build_spec("w.pt", weights_names=names)
    if message:
        with pytest.raises(Failure, match=re.escape(message)):
            load_model(spec, root)
    else:
        actual = load_state(root, spec)
        assert all(torch.equal(actual[key], value) for key, value in state().items())


class Evil:
    """An object with a pickle that creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("kind", ["archive", "plain"])
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_pickle_that_would_run_something_is_refused(root: Path, kind: str, protocol: int) -> None:
    evil = {**state(), "evil": Evil(root / "ran")}
    if kind == "archive":
        torch.save(evil, root / "w.pt", pickle_protocol=protocol)
    else:
        (root / "w.pt").write_bytes(pickle.dumps({"evil": evil["evil"]}, protocol=protocol))
    with pytest.raises(Failure, match=r"w\.pt is refused: it would run \S*open") as caught:
        load_model(build_spec("w.pt"), root)
    assert caught.value.stage is Stage.SOURCE
    assert not (root / "ran").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.pt", {"linear.weight": torch.zeros(3, 4)}, 'Missing key.* "linear.bias"'),
        (
            "w.safetensors",
            {**state(), "liner.bias": torch.zeros(3)},
            'does not fit weighted_code.py:Linear: Unexpected key.* "liner.bias"',
        ),
        ("w.pt", {**state(), "linear.bias": torch.zeros(4)}, "size mismatch for linear.bias"),
        (
            "w.pt",
            {"epoch": 3, "model": state()},
            r'more than tensors: epoch, model; set `weights = { file = "w.pt", key = "model" }`',
        ),
        (
            "w.pt",
            {f"module.{key}": value for key, value in state().items()},
            r'set `weights = { file = "w.pt", strip = "module." }`',
        ),
        (
            "w.pt",
            {"conv.weight": torch.zeros(4, 3, 1, 1), "conv.bias": torch.zeros(4)},
            r"`weights`: w\.pt is of another model than \S+: it has conv\.weight, conv\.bias",
        ),
        ("w.pt", [torch.zeros(3)], "contains a list, expected tensors by name"),
        ("w.pt", {}, "contains no tensors"),
        ("w.pt", {1: torch.zeros(3)}, "contains a dict, expected tensors by name"),
    ],
)
def test_content_that_does_not_fit_is_reported(
    root: Path, name: str, content: object, message: str
) -> None:
    save(root / name, content)
    with pytest.raises(Failure, match=message) as caught:
        load_model(build_spec(name), root)
    assert caught.value.stage is Stage.SOURCE


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("content", [b"", b"PK no archive", b"\x00" * 64])
def test_a_damaged_file_is_reported(root: Path, name: str, content: bytes) -> None:
    (root / name).write_bytes(content)
    with pytest.raises(Failure, match=r"cannot be read: |contains ") as caught:
        load_model(build_spec(name), root)
    assert str(root) not in caught.value.message


def test_a_script_is_not_a_file_of_weights(root: Path) -> None:
    torch.jit.script(torch.nn.Linear(4, 3)).save(str(root / "w.pt"))
    with pytest.raises(Failure, match="is a TorchScript module, not a file of weights"):
        load_model(build_spec("w.pt"), root)


def test_a_function_has_no_weights(root: Path) -> None:
    (root / "w_functions.py").write_text(
        "import torch\n\n\n@torch.jit.script\ndef net(x: torch.Tensor):\n    return x\n"
    )
    save(root / "w.pt", state())
    with pytest.raises(
        Failure, match="is a ScriptFunction, which has no weights; remove `weights`"
    ):
        load_model(build_spec("w.pt", source="w_functions.py:net"), root)


_SEEDED = "    torch.manual_seed(5)\n    net = nn.Linear(4, 3)\n    return net"
_NET = "def Model(*args, **kwargs):\n    net = nn.Linear(4, 3)\n    trained = torch.arange(12.0)\n"
_TRAINED = "trained = torch.arange(12.0).reshape(3, 4)\n"
_END = "\n    net.bias.data = torch.arange(3.0)\n    return net"
#: The text after `initial values` by the source of a model: all weights, some, or none.
SOURCES = {
    "class_of_torch": ("Model = nn.Linear", " of seed 0"),
    "object": ("Model = nn.Linear(4, 3)", " of seed 0"),
    "function": ("def Model(*args, **kwargs):\n    return nn.Linear(4, 3)", " of seed 0"),
    "seeded": (f"def Model(*args, **kwargs):\n{_SEEDED}", " of seed 0"),
    "seeded_before_and_after": (
        f"def Model(*args, **kwargs):\n{_SEEDED.replace('return', 'torch.manual_seed(0); return')}",
        " of seed 0",
    ),
    "seeded_generator": (
        (
            f"{_NET}    nn.init.normal_(net.weight, generator=torch.Generator().manual_seed(3))\n"
            "    nn.init.zeros_(net.bias)\n    return net"
        ),
        " of seed 0",
    ),
    "numbers_of_numpy": (
        (
            f"{_NET}    draw = np.random.default_rng(3).normal(size=(3, 4))\n"
            "    net.weight.data = torch.from_numpy(draw).float()\n"
            "    nn.init.zeros_(net.bias)\n    return net"
        ),
        " of seed 0",
    ),
    "norm_that_is_not_loaded": (
        "def Model(*args, **kwargs):\n    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))",
        " of seed 0",
    ),
    "another_prefix": (
        (
            f"{_NET}    state = {{'module.weight': trained}}\n"
            "    net.load_state_dict(state, strict=False)\n    return net"
        ),
        " of seed 0",
    ),
    "renamed_layer": (
        (
            "def Model(*args, **kwargs):\n"
            "    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))\n"
            f"    {_TRAINED}    state = {{'0.weight': trained, '0.bias': torch.arange(3.0)}}\n"
            "    net.load_state_dict(state, strict=False)\n    return net"
        ),
        ": 1.weight and 1 more",
    ),
    "one_vector": (f"{_NET}    net.weight.data = trained.reshape(3, 4)\n    return net", ": bias"),
    "loaded_by_the_source": (
        (
            f"{_NET}    state = {{'weight': trained.reshape(3, 4), 'bias': torch.ones(3)}}\n"
            "    net.load_state_dict(state)\n    return net"
        ),
        "",
    ),
    "copy": (
        f"{_NET}    with torch.no_grad():\n        net.weight.copy_(trained.reshape(3, 4)){_END}",
        "",
    ),
    "data": (f"{_NET}    net.weight.data = trained.reshape(3, 4){_END}", ""),
    "new_parameters": (f"{_NET}    net.weight = nn.Parameter(trained.reshape(3, 4)){_END}", ""),
    "vector": (
        (
            f"{_NET}    nn.utils.vector_to_parameters(torch.arange(15.0), net.parameters())\n"
            "    return net"
        ),
        "",
    ),
    "numpy": (
        f"{_NET}    net.weight.data.numpy()[:] = np.arange(12.0).reshape(3, 4){_END}",
        "",
    ),
    "loaded_object": (
        (
            f"Model = nn.Linear(4, 3)\n{_TRAINED}Model.weight.data = trained\n"
            "Model.bias.data = torch.arange(3.0)"
        ),
        "",
    ),
    "no_random_number": (
        (
            "def Model(*args, **kwargs):\n"
            "    net = nn.Linear(4, 3, device='meta').to_empty(device='cpu')\n"
            "    net.weight.data.fill_(1.0)\n    net.bias.data.fill_(1.0)\n    return net"
        ),
        "",
    ),
    "no_weights": (
        (
            "class Model(nn.Module):\n    def __init__(self, *args, **kwargs):\n"
            "        super().__init__()\n        self.noise = torch.rand(3)"
        ),
        "",
    ),
}


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process fork, as a worker does; the processes of pytest-xdist have more threads."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", SOURCES)
def test_weights_are_initial_if_they_have_the_values_they_were_drawn_with(
    tmp_path: Path, name: str
) -> None:
    code, initial = SOURCES[name]
    header = "import numpy as np\nimport torch\nfrom torch import nn\n\n"
    (tmp_path / f"{name}_weights.py").write_text(f"{header}{code}\n")
    init = {} if "object" in name else {"in_features": 4, "out_features": 3}
    spec = make_contract("", manifest="m.toml", source=f"{name}_weights.py:Model", init=init)
    originals = torch.manual_seed, torch.Generator
    loaded = load_model_twice(spec, tmp_path)
    assert (loaded.initial, loaded.change) == (initial, "")
    assert (torch.manual_seed, torch.Generator) == originals


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("nn.Linear(4, 3)", ()),
        ("Scaled()", ("gamma",)),
        (
            "nn.Sequential(nn.Embedding.from_pretrained(torch.zeros(4, 3)), nn.Linear(3, 2))",
            ("0.weight",),
        ),
        (
            "nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))",
            ("1.weight", "1.bias", "1.running_mean", "1.running_var"),
        ),
        ("trained(nn.BatchNorm1d(3))", ()),
    ],
)
def test_initial_values_that_hide_a_part_are_named(
    tmp_path: Path, code: str, names: tuple[str, ...]
) -> None:
    name = f"hidden_{hashlib.sha256(code.encode()).hexdigest()[:8]}"
    (tmp_path / f"{name}.py").write_text(
        "import torch\nfrom torch import nn\n\n\n"
        "class Scaled(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.linear = nn.Linear(4, 3)\n"
        "        self.gamma = nn.Parameter(torch.zeros(()))\n\n\n"
        "def trained(net):\n    net.weight.data = torch.arange(3.0)\n    return net\n\n\n"
        f"def build():\n    return {code}\n"
    )
    spec = make_contract("", manifest="m.toml", source=f"{name}.py:build")
    assert load_model_twice(spec, tmp_path).constants == names


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("code", "before", "expected"),
    [
        ("nn.Linear(4, 3)", "", " of seed 0"),
        ("nn.Linear(4, 3)", "self.old = trained(nn.Linear(4, 4))", ": net.weight and 1 more"),
        ("trained(nn.Linear(4, 3))", "", ""),
        ("nn.LayerNorm(4)", "", ""),
        ("nn.Identity()", "self.old = trained(nn.Linear(4, 4))", ""),
    ],
)
def test_weights_that_the_first_call_draws_are_initial(
    tmp_path: Path, code: str, before: str, expected: str
) -> None:
    name = f"created_{hashlib.sha256((code + before).encode()).hexdigest()[:8]}"
    (tmp_path / f"{name}.py").write_text(
        "import torch\nfrom torch import nn\n\n\n"
        "def trained(net):\n    for each in net.parameters():\n"
        "        each.data = torch.arange(float(each.numel())).reshape(each.shape)\n"
        "    return net\n\n\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.net = None\n        {before}\n\n"
        "    def forward(self, x):\n        if self.net is None:\n"
        f"            self.net = {code}\n        return self.net(x)\n"
    )
    spec = make_contract("", manifest="m.toml", source=f"{name}.py:Model")
    loaded = load_model_twice(spec, tmp_path)

    def call(model: torch.nn.Module) -> None:
        model(torch.ones(2, 4))

    assert (loaded.initial, find_weights_of_calls(loaded, spec, tmp_path, call)) == ("", "")
    call(loaded.model)
    assert find_weights_of_calls(loaded, spec, tmp_path, call) == expected


def test_a_file_of_weights_makes_no_initial_weights(root: Path) -> None:
    torch.save(state(), root / "weights.pth")
    assert not load_model_twice(build_spec("weights.pth"), root).initial
    assert load_model_twice(build_spec(""), root).initial


@pytest.fixture(autouse=True)
def fused_path() -> Iterator[None]:
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def read_state() -> tuple[bool, bool]:
    return torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()


def test_the_default_has_neither_gradients_nor_the_fused_path() -> None:
    with apply_state(make_contract("Affine")):
        assert read_state() == (False, False)
    assert read_state() == (True, True)


def test_the_plain_state_has_gradients_and_keeps_the_fused_path() -> None:
    spec = make_contract("Affine", export_state="plain")
    with torch.no_grad(), apply_state(spec):
        assert read_state() == (True, True)
    torch.backends.mha.set_fastpath_enabled(False)
    with apply_state(spec):
        assert read_state() == (True, False)


def test_an_error_restores_the_state() -> None:
    with pytest.raises(ValueError, match="wrong"), apply_state(make_contract("Affine")):
        raise ValueError("wrong")
    assert read_state() == (True, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"epoch 3\n", r"w\.pt cannot be read: it begins with b'epoch 3\\n', so `torch.save` did"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid",
            "pointer of Git LFS; run `git lfs pull`",
        ),
        (b"", r"w\.pt cannot be read: it begins with b''"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_described(
    root: Path, content: bytes, message: str
) -> None:
    (root / "w.pt").write_bytes(content)
    with pytest.raises(Failure, match=message) as caught:
        load_model(build_spec("w.pt"), root)
    record = make_record("net/17/cpu", "error", stage=Stage.SOURCE, message=str(caught.value))
    assert record.failure_code == "E-weights"


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_another_protocol_of_a_sound_checkpoint_is_described(root: Path) -> None:
    torch.save(state(), root / "w.pt", pickle_protocol=4)
    with pytest.raises(Failure, match=r"w\.pt has another protocol than `torch.save` writes"):
        load_model(build_spec("w.pt"), root)
