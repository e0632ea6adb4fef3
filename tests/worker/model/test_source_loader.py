"""From the text of `source` to a model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from exporter.core.import_object import load_attribute
from exporter.records.record import Stage
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
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
    assert isinstance(load_model(make_contract("scripted_loop"), ROOT), torch.jit.ScriptFunction)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "nets.py:build_text"}, "gave a str, expected a torch.nn.Module"),
        ({"source": "nets.py:text"}, "is a str, expected a class, a function or a module"),
        ({"source": "nets.py:raise_error"}, "RuntimeError: no weights here"),
        ({"source": "nets.py:Missing"}, "has no attribute 'Missing'"),
        ({"source": "torch.nope:Net"}, "No module named 'torch.nope'"),
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
