"""A loop has the tokens of `generate`; a package with the few calls stands for transformers."""

from __future__ import annotations

import json
import re
import runpy
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from exporter.checks.protocol import CheckedFile
from exporter.checks.rollout import check_rollout
from exporter.commands.publish.published_folder import list_missing_in_genai
from exporter.commands.recording.entry import format_generator, format_interface
from exporter.commands.recording.sources import Source
from exporter.jobs import JobFolder, Reference
from exporter.manifest import ModelSpec, load_project
from exporter.manifest.resolved.keys import Generate, Search
from exporter.records.record import Status
from exporter.report.pages.templates import render
from exporter.worker.model import generation
from exporter.worker.model.generation import measure_interface, select_part
from exporter.worker.process.failure import Failure
from exporter.worker.reference.rollout import compute_reference, make_loops
from tests.traps.prove import export
from tests.unit.manifest.projects import make_project
from tests.worker import tiny_transformers
from tests.worker.contracts import make_contract
from tests.worker.tiny_transformers import Hybrid, PreTrainedModel

SPEC = make_contract("Affine", exporter="transformers", generate=Generate())
RED = r"^rollout: prompt 2 x 5, step \d has other logits than `generate`, .*; correct `feeds`$"


@pytest.fixture(autouse=True, params=["cache", "past_key_values"])
def cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the cache in a release of the package."""
    for name in ("tiny", "tiny.exporters.exporter_onnx", "tiny.exporters.utils"):
        monkeypatch.setitem(sys.modules, name, tiny_transformers)
    monkeypatch.setattr(tiny_transformers, "CACHE", request.param)
    monkeypatch.setattr(generation, "_PACKAGE", "tiny")
    monkeypatch.setattr(generation, "version", lambda _: "5.24.0")
    return str(request.param)


def test_a_model_that_generates_needs_the_key(tmp_path: Path) -> None:
    wrapper = torch.nn.Sequential(PreTrainedModel())
    spec = load_decoder(tmp_path)
    with pytest.raises(Failure, match="rollout: PreTrainedModel generates, and nothing compares"):
        compute_reference(wrapper, spec, {}, JobFolder(tmp_path), tmp_path)


def load_decoder(folder: Path, source: PreTrainedModel | None = None) -> ModelSpec:
    """Return the spec that `exporter add` writes for the model."""
    measured = measure_interface(source or PreTrainedModel(), SPEC)
    files = {
        "manifests/nets.py": "def net(): ...\n",
        "manifests/net.toml": format_generator("net", Source(text="nets.py:net"), measured, [18]),
        "manifests/net.interface.toml": format_interface("net", measured),
    }
    return load_project(make_project(folder, files)).models[0]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, ""),
        ({"num_beams": 1, "repetition_penalty": 1.0, "suppress_tokens": []}, ""),
        ({"temperature": 0.5, "do_sample": False}, ""),
        ({"do_sample": True}, "do_sample = True"),
        ({"num_beams": 4, "min_length": 3}, "num_beams = 4, min_length = 3"),
        ({"suppress_tokens": [3, 5]}, "suppress_tokens = [3, 5]"),
    ],
)
def test_settings_of_generate_that_no_loop_has_are_named(
    tmp_path: Path, settings: dict[str, object], text: str
) -> None:
    spec, model = load_decoder(tmp_path), PreTrainedModel()
    vars(model.generation_config).update(settings)
    assert spec.generate is not None
    part = generation.select_part(model, spec, spec.generate)
    texts = list(generation.list_unproved_settings(part))
    end = "the proved loop takes the largest logit of each step"
    if "suppress_tokens" in settings:
        end += "; declare suppress_tokens in `generate.search` of the entry"
    assert texts == ([f"the tokens of `generate` with {text}: {end}"] if text else [])
    declared = {"search": {"suppress_tokens": (3, 5)}}
    if text.startswith("suppress"):
        part = generation.select_part(model, spec, Generate.model_validate(declared))
        assert not list(generation.list_unproved_settings(part))


def test_the_interface_of_a_decoder_is_measured(tmp_path: Path) -> None:
    spec = load_decoder(tmp_path)
    shapes = {item.name: item.shape for item in (*spec.inputs, *spec.outputs)}
    assert shapes["input_ids"] == shapes["position_ids"] == ("batch", "length")
    assert shapes["attention_mask"] == ("batch", "total")
    assert shapes["past_key_values.1.value"] == ("batch", 2, "past", 8)
    assert shapes["present.1.key"] == ("batch", 2, "total", 8)
    assert shapes["logits"] == ("batch", "length", 64)
    assert (spec.find_axis("past").min, spec.find_axis("total").max) == (0, 64)


def test_a_model_with_sounds_names_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_transformers, "is_multimodal", lambda _: True)
    message = (
        "`generate`: PreTrainedModel has sounds, or pictures without a token in the prompt, and is "
        "not divided into encoder, embedding and language model; write a module and an entry for "
        "each"
    )
    with pytest.raises(Failure) as caught:
        measure_interface(PreTrainedModel(), SPEC)
    assert caught.value.message == message


def test_a_model_with_other_states_is_named(monkeypatch: pytest.MonkeyPatch, cache: str) -> None:
    def keep(layer: tiny_transformers.Layer, keys: torch.Tensor, values: torch.Tensor) -> None:
        vars(layer).update(keys=keys, values=values, indexer_keys=keys[:, 0, :1])

    monkeypatch.setattr(tiny_transformers.Layer, "__init__", keep)
    message = rf"`generate`: PreTrainedModel has input\.{cache}\.layers\.0\.indexer_keys, .*"
    with pytest.raises(Failure, match=f"{message}; known are the keys, values, "):
        measure_interface(PreTrainedModel(), SPEC)


def test_a_state_beside_the_layers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of two tokens would fail with the state of one, as in MiniMax."""
    keep = tiny_transformers.Cache.__init__

    def keep_more(cache: tiny_transformers.Cache, layers: list[Any]) -> None:
        keep(cache, layers)
        cache.linear_cache = [layers[0].keys[:, 0, -1]]

    monkeypatch.setattr(tiny_transformers.Cache, "__init__", keep_more)
    message = r"PreTrainedModel has input\..*\.linear_cache\.0; known are the keys, values, conv_"
    with pytest.raises(Failure, match=message):
        measure_interface(PreTrainedModel(), SPEC)


def test_a_newer_release_with_another_name_of_the_cache_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiny_transformers, "CACHE", "states")
    monkeypatch.setattr(generation, "version", lambda _: "5.25.0")
    with pytest.raises(Failure, match=r"has input\.states\.layers\.0\.keys, ") as caught:
        measure_interface(PreTrainedModel(), SPEC)
    advice = "; tiny 5.25.0 is not tested: install 'transformers==5.24.*'"
    assert caught.value.message.endswith(f", and an entry for it with `rollout`{advice}")


@pytest.mark.parametrize("release", ["5.24.0", "5.25.0"])
def test_a_red_record_names_a_release_that_is_not_tested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str
) -> None:
    monkeypatch.setattr(generation, "version", lambda _: release)
    spec = load_decoder(tmp_path / "root")
    source = "from tests.worker.tiny_transformers import PreTrainedModel as net\n"
    (tmp_path / "root/manifests/nets.py").write_text(source)
    assert spec.rollout is not None
    loop = spec.rollout.model_copy(update={"feeds": TOKENS})
    spec = spec.model_copy(update={"rollout": loop})
    (record,) = export(spec, tmp_path / "net", root=tmp_path / "root")
    assert record.message.endswith("; correct `feeds`")
    advice = f"tiny {release} is not tested: install 'transformers==5.24.*'"
    assert record.advice == (() if release == "5.24.0" else (advice,))


TWO_ENDS = SimpleNamespace(bos_token_id=1, eos_token_id=[2, 7], pad_token_id=5)


@pytest.mark.parametrize(
    ("table", "is_pair", "message"),
    [
        ({}, False, ""),
        ({"begin": 1, "end": [2, 7], "padding": 5}, False, ""),
        ({"end": [2, 7, 9]}, False, ""),
        ({"end": [2]}, False, "end = [2, 7], the entry has [2]; correct the entry, or"),
        ({"begin": 3}, False, "begin = 1, the entry has 3"),
        ({"padding": 2}, False, "padding = 5, the entry has 2"),
        ({}, True, "begin = 8, the entry has 0"),  # the first token of each text
    ],
)
def test_the_special_tokens_of_an_entry_are_those_of_generate(
    table: dict[str, object], message: str, tmp_path: Path, *, is_pair: bool
) -> None:
    spec, model = load_decoder(tmp_path), PreTrainedModel()
    model.config.is_encoder_decoder = is_pair
    model.generation_config = SimpleNamespace(**vars(TWO_ENDS), decoder_start_token_id=8)
    expected = pytest.raises(Failure, match=re.escape(message)) if message else nullcontext()
    with expected:
        select_part(model, spec, Generate.model_validate(table))


def test_the_entry_gets_the_special_tokens_of_generate(tmp_path: Path) -> None:
    model = PreTrainedModel()
    model.generation_config = TWO_ENDS
    text = format_generator("net", Source(text="nets.py:net"), measure_interface(model, SPEC), [18])
    assert "generate = { steps = 32, begin = 1, end = [2, 7], padding = 5 }" in text


def feed(number: int, kind: str, other: str) -> tuple[str, str]:
    return f"present.{number}.{kind}", f"past_key_values.{number}.{other}"


TOKENS = {"logits": "input_ids"}
CACHES = dict(feed(number, kind, kind) for number in (0, 1) for kind in ("key", "value"))
SWAPPED = dict(feed(n, *kinds) for n in (0, 1) for kinds in (("key", "value"), ("value", "key")))


@pytest.mark.parametrize(
    ("feeds", "limit", "message"),
    [
        (TOKENS | CACHES, 64, ""),
        (TOKENS | CACHES, 8, ""),
        (TOKENS, 64, RED),
        (CACHES, 64, RED),
        (TOKENS | SWAPPED, 64, RED),
    ],
    ids=["sound", "few positions", "without a cache", "without tokens", "keys as values"],
)
def test_a_decoder_begins_with_each_prompt(
    feeds: dict[str, str], limit: int, message: str, tmp_path: Path
) -> None:
    spec = load_decoder(tmp_path)
    assert spec.rollout is not None
    total = spec.find_axis("total").model_copy(update={"max": limit})
    axes = tuple(total if axis.name == "total" else axis for axis in spec.axes)
    loop = spec.rollout.model_copy(update={"feeds": feeds})
    spec = spec.model_copy(update={"rollout": loop, "axes": axes})
    torch.manual_seed(0)
    model = select_part(PreTrainedModel(), spec, Generate())
    with torch.no_grad(), pytest.raises(Failure, match=message) if message else nullcontext():
        samples = compute_reference(model, spec, {}, JobFolder(tmp_path), tmp_path)
        starts = [sample for sample in samples if sample.begins]
        forms = [(each.axes["batch"], each.axes["length"], each.axes["past"]) for each in starts]
        # A prompt of 9 tokens is longer than 8 positions, and one of 5 leaves 4 steps.
        assert forms == [(2, 5, 0), (1, 1, 0), *([(3, 9, 0)] if limit == 64 else [])]
        assert len(samples) == (96 if limit == 64 else 4 + 8)


@pytest.mark.parametrize("is_fed", [True, False])
def test_the_loop_of_a_measurement_has_the_tokens_of_generate(
    tmp_path: Path, *, is_fed: bool
) -> None:
    spec = load_decoder(tmp_path)
    assert spec.rollout is not None
    loop = spec.rollout.model_copy(update={"steps": 4})
    spec = spec.model_copy(update={"rollout": loop})
    torch.manual_seed(0)
    model = select_part(PreTrainedModel(), spec, Generate())
    selected: list[int] = []

    class File:
        def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            if not is_fed and selected:
                inputs["input_ids"] = np.zeros_like(inputs["input_ids"])
            with torch.no_grad():
                outputs = model(*(torch.tensor(inputs[item.name]) for item in spec.inputs))
            selected.append(int(outputs["logits"][0, -1].argmax()))
            return [outputs[item.name].numpy() for item in spec.outputs]

    with torch.no_grad():
        samples = compute_reference(model, spec, {}, JobFolder(tmp_path), tmp_path)
        reference = Reference(samples=(), rollout=samples, noise=(), output_spread=())
        context = CheckedFile(folder=JobFolder(tmp_path), opset=18, spec=spec, reference=reference)
        loops = make_loops(model, context, File())
        assert loops is not None
        run_file, run_pytorch, count = loops
        run_file()
        run_pytorch()
        prompt = next(each for each in model.list_loops(spec) if "1 x 1," in each.name)
        expected = [int(each) for each in model.generate_tokens(prompt.request, 4)[1]]
    assert (len(selected), count) == (4, 4)
    assert (selected == expected) is is_fed
    plain = replace(context, spec=spec.model_copy(update={"generate": None}))
    assert make_loops(model, plain, File()) is None


SETTINGS: dict[str, dict[str, object]] = {
    "none": {},
    "penalty": {"repetition_penalty": 1.5},
    "n-grams": {"no_repeat_ngram_size": 2},
    "no token twice": {"no_repeat_ngram_size": 1},
    "suppressed": {"suppress_tokens": [3, 5, 9, 220], "begin_suppress_tokens": [4, 10]},
    "all": {"repetition_penalty": 0.7, "no_repeat_ngram_size": 3, "suppress_tokens": [9]},
}


def load_searcher(folder: Path, settings: dict[str, object]) -> tuple[ModelSpec, PreTrainedModel]:
    """Return the entry that `exporter add` writes for a model with these settings, and the model.

    Its own tokens have the largest logits, so that all settings have an effect.
    """
    torch.manual_seed(0)
    model = PreTrainedModel()
    vars(model.generation_config).update(settings)
    measured = measure_interface(model, SPEC)
    files = {
        "manifests/nets.py": "def net(): ...\n",
        "manifests/net.toml": format_generator("net", Source(text="nets.py:net"), measured, [18]),
        "manifests/net.interface.toml": format_interface("net", measured),
    }
    spec = load_project(make_project(folder, files)).models[0]
    assert spec.rollout is not None
    rollout = spec.rollout.model_copy(update={"steps": 6})
    return spec.model_copy(update={"rollout": rollout}), model


@pytest.mark.parametrize("name", SETTINGS)
def test_the_file_has_the_tokens_of_generate_with_its_settings(tmp_path: Path, name: str) -> None:
    settings = SETTINGS[name]
    spec, source = load_searcher(tmp_path, settings)
    assert spec.generate is not None
    model = select_part(source, spec, spec.generate)
    assert not list(generation.list_unproved_settings(model))

    class File:
        output_names = tuple(item.name for item in spec.outputs)
        best = 0

        def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            with torch.no_grad():
                outputs = model(*(torch.tensor(inputs[item.name]) for item in spec.inputs))
            values = [outputs[item.name].numpy() for item in spec.outputs]
            values[0][..., self.best] += 99 * bool(self.best)
            return values

    with torch.no_grad():
        samples = compute_reference(model, spec, {}, JobFolder(tmp_path), tmp_path)
    reference = Reference(samples=(), rollout=samples, noise=(), output_spread=())
    checked = CheckedFile(folder=JobFolder(tmp_path), opset=18, spec=spec, reference=reference)
    assert check_rollout(checked, File(), "cpu").status is Status.PASS
    wrong = File()
    wrong.best = 63
    result = check_rollout(checked, wrong, "cpu")
    assert "step 1 of 18: the file selects token 63 in place of" in result.message


def test_a_setting_with_another_meaning_than_in_the_loop_is_red(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec, source = load_searcher(tmp_path, SETTINGS["penalty"])
    assert spec.generate is not None
    model = select_part(source, spec, spec.generate)

    def choose(
        _: PreTrainedModel, logits: torch.Tensor, *__: object, **___: object
    ) -> torch.Tensor:
        return logits.argmax(-1, keepdim=True)

    monkeypatch.setattr(PreTrainedModel, "choose_tokens", choose)
    message = r"row \d: `generate` selects token \d+, a loop with `generate.search` of the entry"
    with torch.no_grad(), pytest.raises(Failure, match=message):
        compute_reference(model, spec, {}, JobFolder(tmp_path), tmp_path)


def run_published_loop(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    spec: ModelSpec,
    model: generation.GeneratorPart,
) -> dict[str, Any]:
    """Return the functions of `generate.py`, which runs PyTorch's model."""

    class Session:
        def __init__(self, path: Path) -> None:
            assert path == folder / "model.onnx"

        def get_inputs(self) -> list[SimpleNamespace]:
            kind = "tensor(float)"
            return [SimpleNamespace(name=i.name, type=kind, shape=i.shape) for i in spec.inputs]

        def get_outputs(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name=item.name) for item in spec.outputs]

        def run(self, _: None, values: dict[str, np.ndarray]) -> list[np.ndarray]:
            with torch.no_grad():
                outputs = model(*(torch.tensor(values[item.name]) for item in spec.inputs))
            return [outputs[item.name].numpy() for item in spec.outputs]

    (folder / "generate.py").write_text(render("generate.py", folder, spec=spec))
    (folder / "contract.json").write_text(spec.to_json())
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))
    return runpy.run_path(str(folder / "generate.py"))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_published_loop_has_the_tokens_of_generate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    spec, source = load_searcher(tmp_path, SETTINGS[name])
    assert spec.generate is not None
    model = select_part(source, spec, spec.generate)

    namespace = run_published_loop(monkeypatch, tmp_path, spec, model)
    (tmp_path / "genai_config.json").write_text(render("genai_config.json", tmp_path, spec=spec))
    config = json.loads((tmp_path / "genai_config.json").read_text())
    assert (config["model"]["pad_token_id"], config["model"]["context_length"]) == (0, 64)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    ids = torch.tensor([[9, 9, 3, 4, 5], [6, 7, 8, 9, 10]])
    with torch.no_grad():
        expected = source.generate(ids, max_new_tokens=9, attention_mask=mask)
    tokens = expected.sequences[:, 5:].numpy()
    assert np.array_equal(namespace["generate"](ids.numpy(), 9, mask.numpy()), tokens)
    greedy = np.stack([each.argmax(-1).numpy() for each in expected.logits], 1)
    assert np.array_equal(tokens, greedy) is (name == "none"), "no setting has an effect"


def load_hybrid(folder: Path, kind: str = "") -> tuple[ModelSpec, generation.GeneratorPart]:
    """Return the entry that `exporter add` writes for a model with states, and its part."""
    torch.manual_seed(0)
    source = Hybrid()
    spec = load_decoder(folder, source)
    source.kind = kind
    assert spec.rollout is not None
    rollout = spec.rollout.model_copy(update={"steps": 6})
    spec = spec.model_copy(update={"rollout": rollout})
    return spec, select_part(source, spec, Generate())


def test_the_interface_of_a_model_with_states_takes_one_token(tmp_path: Path) -> None:
    spec, _ = load_hybrid(tmp_path)
    shapes = {item.name: item.shape for item in (*spec.inputs, *spec.outputs)}
    assert shapes["input_ids"] == shapes["position_ids"] == ("batch", 1)
    assert shapes["logits"] == ("batch", 1, 64)
    assert shapes["past_key_values.1.key"] == ("batch", 2, "past", 8)
    assert shapes["present.1.value"] == ("batch", 2, "total", 8)
    for layer in (0, 2):
        for name in ("past_key_values", "present"):
            assert shapes[f"{name}.{layer}.conv_state"] == ("batch", 16, 3)
            assert shapes[f"{name}.{layer}.recurrent_state"] == ("batch", 16, 4)
    assert len(shapes) == 15
    (rule,) = (axis.rule for axis in spec.axes if axis.name == "total")
    assert rule is not None
    assert rule.operands == ("past", 1)


def test_a_model_with_states_outside_of_its_cache_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source, forward = PreTrainedModel(), PreTrainedModel.forward
    source.register_buffer("memory", torch.zeros(()))

    def run(model: PreTrainedModel, *args: Any, **kwargs: Any) -> dict[str, Any]:
        model.memory += 1
        returned = forward(model, *args, **kwargs)
        return {**returned, "logits": returned["logits"] + model.memory}

    source.eval()
    monkeypatch.setattr(PreTrainedModel, "forward", run)
    message = "`generate`: PreTrainedModel keeps states outside of its cache: two equal calls have "
    with pytest.raises(Failure, match=message):
        measure_interface(source, SPEC)


def test_positions_that_a_model_ignores_are_no_input(tmp_path: Path) -> None:
    source = Hybrid()
    with torch.no_grad():
        source.positions.weight.zero_()
    spec = load_decoder(tmp_path, source)
    assert "position_ids" not in {item.name for item in spec.inputs}
    part = select_part(source, spec, Generate())
    with torch.no_grad():
        compute_reference(part, spec, {}, JobFolder(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("kind", "pairs", "is_sound"),
    [
        ("", {}, True),
        ("stale", {}, False),
        ("shifted", {}, False),
        ("start", {}, False),
        ("", {"0.conv": "2.conv", "2.conv": "0.conv"}, False),
        ("", {"0.recurrent": "2.recurrent", "2.recurrent": "0.recurrent"}, False),
        ("", {"0.conv": "", "2.recurrent": "2.recurrent"}, False),
    ],
)
def test_a_loop_reads_a_prompt_token_by_token(
    kind: str, pairs: dict[str, str], tmp_path: Path, *, is_sound: bool
) -> None:
    spec, model = load_hybrid(tmp_path, kind)
    assert spec.rollout is not None
    feeds = dict(spec.rollout.feeds)
    for source, target in pairs.items():
        del feeds[f"present.{source}_state"]
        feeds |= {f"present.{source}_state": f"past_key_values.{target}_state"} if target else {}
    rollout = spec.rollout.model_copy(update={"feeds": feeds})
    spec = spec.model_copy(update={"rollout": rollout})
    red = r"^rollout: prompt 2 x 5, step [5-9] has other logits than `generate`, .* lacks a state"
    with torch.no_grad(), nullcontext() if is_sound else pytest.raises(Failure, match=red):
        samples = compute_reference(model, spec, {}, JobFolder(tmp_path), tmp_path)
        assert [each.axes["past"] for each in samples if each.begins] == [0, 0, 0]
        assert len(samples) == (4 + 6) + 6 + (8 + 6)
        assert [each.index for each in samples if each.is_prompt] == [*range(4), *range(16, 24)]


@pytest.mark.parametrize(
    ("mistake", "problem"),
    [
        ("", ""),
        ("stale", "prompt 2 x 5, step 1 of 30: output 'present.2.conv_state'"),
        ("exchanged", "prompt 2 x 5, step 1 of 30: output 'present.0.conv_state'"),
        ("shifted", "prompt 2 x 5, step 2 of 30: output 'logits'"),
        ("one row", "prompt 2 x 5, step 1 of 30: output 'logits': shape"),
    ],
)
def test_a_file_with_states_repeats_the_loop(tmp_path: Path, mistake: str, problem: str) -> None:
    spec, model = load_hybrid(tmp_path)
    names = [item.name for item in spec.outputs]

    class File:
        output_names = tuple(names)

        def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            given = {name: torch.tensor(each) for name, each in inputs.items()}
            if mistake == "shifted":
                name = "past_key_values.0.conv_state"
                given[name] = given[name].flip(-1)
            if mistake == "one row":
                given = {name: each[:1] for name, each in given.items()}
            with torch.no_grad():
                outputs = dict(model(*(given[item.name] for item in spec.inputs)))
            if mistake == "stale":
                outputs["present.2.conv_state"] = given["past_key_values.2.conv_state"]
            if mistake == "exchanged":
                first, last = "present.0.conv_state", "present.2.conv_state"
                outputs |= {first: outputs[last], last: outputs[first]}
            return [outputs[name].numpy() for name in names]

    with torch.no_grad():
        samples = compute_reference(model, spec, {}, JobFolder(tmp_path), tmp_path)
    reference = Reference(samples=(), rollout=samples, noise=(), output_spread=())
    checked = CheckedFile(folder=JobFolder(tmp_path), opset=18, spec=spec, reference=reference)
    result = check_rollout(checked, File(), "cpu")
    assert result.status is (Status.FAIL if problem else Status.PASS), result.message
    assert result.message.startswith(problem), result.message
    spec = spec.model_copy(update={"tokens": 0.9})
    result = check_rollout(replace(checked, spec=spec), File(), "cpu")
    assert problem or result.metrics["tokens"] == "36 of 36", "a token of a prompt is counted"


@pytest.mark.parametrize("name", ["none", "all"])
def test_the_published_loop_reads_a_prompt_token_by_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    spec, model = load_hybrid(tmp_path)
    assert spec.generate is not None
    search = Search.model_validate(SETTINGS[name])
    generate = spec.generate.model_copy(update={"search": search})
    spec = spec.model_copy(update={"generate": generate})
    assert list_missing_in_genai(spec)[0] == "proved loop for a file that takes one token"
    namespace = run_published_loop(monkeypatch, tmp_path, spec, model)
    (source,) = model.generator
    vars(source.generation_config).update(SETTINGS[name])
    ids = torch.tensor([[3, 4, 5, 6, 7], [6, 7, 8, 9, 10]])
    with torch.no_grad():
        expected = source.generate(ids, max_new_tokens=9, attention_mask=torch.ones_like(ids))
    assert np.array_equal(namespace["generate"](ids.numpy(), 9), expected.sequences[:, 5:].numpy())
    with pytest.raises(ValueError, match=r"^padding: this file has states of all tokens; "):
        namespace["generate"](ids.numpy(), 9, [[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
