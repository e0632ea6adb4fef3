"""Encoder and decoder are a chain, whose loop has the tokens of `generate`."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from exporter.checks.protocol import CheckedFile
from exporter.checks.rollout import check_rollout
from exporter.commands.publish.child import proof
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import Manifest
from exporter.manifest.resolved.keys import Generate
from exporter.records.record import Status
from exporter.report.pages.templates import render
from exporter.runtimes.chain import LinkFile
from exporter.worker.diagnosis.links import Comparison
from exporter.worker.model import generation
from exporter.worker.model.generation import select_part
from exporter.worker.reference.rollout import compute_reference
from tests.worker import tiny_transformers
from tests.worker.contracts import make_contract
from tests.worker.generator_entries import load_entries
from tests.worker.tiny_transformers import PairModel

SPEC = make_contract("Affine", exporter="transformers", generate=Generate())
CACHES = ("key", "value")


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tiny module stand for transformers."""
    names = ("cache_utils", "modeling_outputs", "exporters.exporter_onnx", "exporters.utils")
    for name in ("tiny", *(f"tiny.{each}" for each in names)):
        monkeypatch.setitem(sys.modules, name, tiny_transformers)
    monkeypatch.setattr(generation, "_PACKAGE", "tiny")
    monkeypatch.setattr(generation, "version", lambda _: "5.24.0")


def build(kind: str = "") -> PairModel:
    """Return the model; with `other`, one with other weights."""
    torch.manual_seed(1 if kind == "other" else 0)
    model = PairModel().eval()
    model.kind = kind
    return model


def load(folder: Path) -> Manifest:
    """Return the entries that `exporter add` writes for the model."""
    return load_entries(folder, build(), SPEC)


def test_the_entries_are_a_chain_with_a_loop(tmp_path: Path) -> None:
    encoder, decoder, whole = load(tmp_path).models
    assert [each.id for each in (encoder, decoder, whole)] == ["net-encoder", "net-decoder", "net"]
    assert whole.inputs[0].shape == encoder.inputs[0].shape == ("batch", "source")
    assert {item.name for item in whole.inputs} == {
        "input_ids", "attention_mask", "decoder_input_ids",
        *(f"past_key_values.{n}.decoder.{kind}" for n in (0, 1) for kind in CACHES),
    }  # fmt: skip
    link = whole.chain[1]
    assert link.inputs["input_ids"] == "decoder_input_ids"
    assert link.inputs["encoder_attention_mask"] == "attention_mask"
    assert link.inputs["past_key_values.1.encoder.key"] == "net-encoder.present.1.encoder.key"
    assert whole.rollout is not None
    assert whole.rollout.feeds["logits"] == "decoder_input_ids"


class Session:
    """Runs the parts of a model in place of files; a link can be that of another model."""

    def __init__(self, manifest: Manifest, wrong: str, kind: str) -> None:
        self.whole = manifest.find_model("net")
        self.links = tuple(
            LinkFile(id=link.id, file="", inputs=link.inputs, outputs=link.outputs)
            for link in self.whole.chain
        )
        self.specs = {spec.id: spec for spec in manifest.models}
        self.parts = {}
        for link in self.links:
            spec = self.specs[link.id]
            assert spec.generate is not None
            source = build(kind if link.id == wrong else "")
            self.parts[link.id] = select_part(source, spec, spec.generate)
        self.output_names = tuple(item.name for item in self.whole.outputs)

    def run_link(self, index: int, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        link = self.links[index]
        tensors = [
            torch.tensor(values[link.inputs[item.name]]) for item in self.specs[link.id].inputs
        ]
        with torch.no_grad():
            returned = self.parts[link.id](*tensors)
        return {link.outputs[name]: each.numpy() for name, each in returned.items()}

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        values = dict(inputs)
        for index in range(len(self.links)):
            values |= self.run_link(index, values)
        return [values[name] for name in self.output_names]


class LoadedFile:
    """Runs a part in place of the file of its link."""

    session: Session
    last: ClassVar[dict[str, LoadedFile]] = {}

    def __init__(self, path: Path) -> None:
        self.id, self.runs = path.stem, 0
        self.spec = self.session.specs[self.id]
        self.last[self.id] = self

    def get_inputs(self) -> list[SimpleNamespace]:
        kind = "tensor(float)"
        return [SimpleNamespace(name=i.name, type=kind, shape=i.shape) for i in self.spec.inputs]

    def get_outputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=item.name) for item in self.spec.outputs]

    def run(self, _: None, values: dict[str, np.ndarray]) -> list[np.ndarray]:
        self.runs += 1
        with torch.no_grad():
            tensors = (torch.tensor(values[item.name]) for item in self.spec.inputs)
            outputs = self.session.parts[self.id](*tensors)
        return [outputs[item.name].numpy() for item in self.spec.outputs]


@pytest.mark.parametrize("is_chain", [True, False])
def test_the_published_loop_runs_the_encoder_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_chain: bool
) -> None:
    session = Session(load(tmp_path), "", "")
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=LoadedFile))
    monkeypatch.setattr(LoadedFile, "session", session, raising=False)
    folder = tmp_path / "dist/net/18"
    folder.mkdir(parents=True)
    spec = session.whole
    links = [{"file": f"{link.id}.onnx"} for link in spec.chain]
    if is_chain:
        (folder / "exporter.json").write_text(json.dumps({"links": links}))
    (folder / "generate.py").write_text(render("generate.py", folder, spec=spec))
    (folder / "contract.json").write_text(spec.to_json())
    program = runpy.run_path(str(folder / "generate.py"))
    if not is_chain:  # two folders, as release 1.0 published them
        assert program["DECODER"] == folder / "model.onnx"
        assert program["ENCODER"] == tmp_path / "dist/net-encoder/18/model.onnx"
        return
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    ids = torch.tensor([[3, 4, 5, 9, 9], [6, 7, 8, 9, 10]])
    with torch.no_grad():
        expected = build().generate(ids, max_new_tokens=9, attention_mask=mask)
    actual = program["generate"](ids.numpy(), 9, mask.numpy())
    assert np.array_equal(actual, expected.sequences[:, 1:].numpy())
    assert [LoadedFile.last[f"net-{each}"].runs for each in ("encoder", "decoder")] == [1, 9]


@pytest.mark.parametrize(
    ("wrong", "kind", "is_red"),
    [
        ("", "", [False, False, False]),
        ("net-encoder", "other", [True, True, True]),
        ("net-decoder", "other", [True, True, True]),
        ("net-decoder", "deaf", [True, True, True]),
        ("net-encoder", "short", [False, False, True]),  # only the last prompt is longer
    ],
)
def test_a_part_of_another_model_is_red_and_named(
    wrong: str, kind: str, is_red: list[bool], tmp_path: Path
) -> None:
    manifest = load(tmp_path)
    spec = manifest.find_model("net")
    assert spec.generate is not None
    assert spec.rollout is not None
    spec = spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"steps": 3})})
    model = select_part(build(), spec, spec.generate)
    folder = JobFolder(tmp_path / "net")
    with torch.no_grad():
        samples = compute_reference(model, spec, {}, folder, tmp_path)
    starts = [sample for sample in samples if sample.begins]
    assert [(s.axes["batch"], s.axes["source"], s.axes["length"]) for s in starts] == [
        (2, 5, 1),
        (1, 1, 1),
        (3, 9, 9),
    ]
    reference = Reference(samples=(), rollout=samples, noise=(), output_spread=())
    checked = CheckedFile(folder=folder, opset=18, spec=spec, reference=reference)
    session = Session(manifest, wrong, kind)
    result = check_rollout(checked, session, "cpu")
    assert (result.status is Status.PASS) is not any(is_red), result.message
    links = tuple(each for each in manifest.models if each.id != "net")
    for each in links:
        count = len(each.outputs)
        declared = Sample(index=0, name="declared", kind="declared", axes={}, scales=(1.0,) * count)
        of_link = Reference(
            samples=(declared,), noise=(1e-6,) * count, output_spread=(1.0,) * count
        )
        path = JobFolder(tmp_path / each.id).reference
        path.parent.mkdir()
        path.write_text(of_link.to_json())
    job = SimpleNamespace(links=links, build=str(tmp_path))
    comparison = Comparison(job, checked, SimpleNamespace(name="cpu"), tmp_path)
    texts = [comparison.find_other_part(session, each, model) for each in starts]
    named = [f"the link '{wrong}' is right on what it gets, and another part" in t for t in texts]
    assert named == is_red, texts


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("", "", ""),
        ('settings["begin"])', 'settings["begin"] + 1)', "row 1: token"),
        ('ids = scores.argmax(-1)[:, None]', "ids = scores.argmin(-1)[:, None]", "row 1: token"),
    ],
)  # fmt: skip
def test_a_published_loop_with_other_tokens_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str, after: str, problem: str
) -> None:
    manifest = load(tmp_path)
    session = Session(manifest, "", "")
    spec = session.whole
    assert spec.generate is not None
    assert spec.rollout is not None
    spec = spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"steps": 6})})
    model = select_part(build(), spec, spec.generate)
    with torch.no_grad():
        samples = compute_reference(model, spec, {}, JobFolder(tmp_path), tmp_path)
    reference = Reference(samples=(), rollout=samples, noise=(), output_spread=())
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=LoadedFile))
    monkeypatch.setattr(LoadedFile, "session", session, raising=False)
    monkeypatch.setattr(
        proof, "open_samples", lambda *_: nullcontext((JobFolder(tmp_path), reference))
    )
    links = [{"file": f"{link.id}.onnx"} for link in spec.chain]
    (tmp_path / "exporter.json").write_text(json.dumps({"links": links}))
    (tmp_path / "contract.json").write_text(spec.to_json())
    program = render("generate.py", tmp_path, spec=spec)
    assert before in program
    (tmp_path / "generate.py").write_text(program.replace(before, after) if before else program)
    publication = SimpleNamespace(opset=18)
    problems = [*proof.find_generator_problems(tmp_path, publication, spec)]
    assert bool(problems) is bool(problem), problems
    assert problem in "".join(problems)
