"""Encoder, embedding and decoder of a model with pictures have the tokens of `generate`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from exporter.checks.protocol import CheckedFile
from exporter.checks.rollout import check_rollout
from exporter.commands.recording.entry import format_generator
from exporter.commands.recording.sources import Source
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import Manifest
from exporter.manifest.resolved.keys import Generate
from exporter.records.record import Status
from exporter.runtimes.chain import LinkFile
from exporter.worker.diagnosis.links import Comparison
from exporter.worker.model import generation, pictures
from exporter.worker.model.generation import measure_interface, select_part
from exporter.worker.process.failure import Failure
from exporter.worker.reference.rollout import compute_reference
from tests.worker import tiny_transformers
from tests.worker.contracts import make_contract
from tests.worker.generator_entries import load_entries
from tests.worker.tiny_transformers import (
    KindsModel,
    PictureModel,
    SizesModel,
    TalkativeModel,
)

SPEC = make_contract("Affine", exporter="transformers", generate=Generate())


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tiny module stand for transformers."""
    for name in ("tiny", "tiny.exporters.exporter_onnx", "tiny.exporters.utils"):
        monkeypatch.setitem(sys.modules, name, tiny_transformers)
    monkeypatch.setattr(generation, "_PACKAGE", "tiny")
    monkeypatch.setattr(generation, "version", lambda _: "5.24.0")


def load(folder: Path, model: type[PictureModel] = PictureModel) -> Manifest:
    """Return the entries that `exporter add` writes for the model."""
    torch.manual_seed(0)
    return load_entries(folder, model(), SPEC)


def test_the_entries_are_a_chain_with_a_loop(tmp_path: Path) -> None:
    manifest = load(tmp_path)
    assert [spec.id for spec in manifest.models] == [
        "net-vision", "net-embedding", "net-decoder", "net",
    ]  # fmt: skip
    vision, embedding, decoder, whole = manifest.models
    assert vision.inputs[0].shape == ("pictures", 3, 4, 4)
    assert vision.complete_sizes({"pictures": 3})["features"] == 6
    assert embedding.outputs[0].shape == decoder.inputs[0].shape == ("batch", "length", 16)
    assert [each.rollout is None for each in manifest.models] == [True, True, True, False]
    assert [link.id for link in whole.chain] == ["net-vision", "net-embedding", "net-decoder"]
    assert {item.name for item in whole.inputs} >= {"pixel_values", "input_ids", "position_ids"}


def swap(values: dict[str, torch.Tensor]) -> None:
    values["pixel_values"] = values["pixel_values"].flip(0)


def ignore_second(values: dict[str, torch.Tensor]) -> None:
    first = values["pixel_values"][:1]
    values["pixel_values"] = first.expand_as(values["pixel_values"])


def forget(values: dict[str, torch.Tensor]) -> None:
    """Read pictures as words where no state is there."""
    if values["past_key_values.0.key"].shape[2]:
        values["pixel_values"] = torch.zeros_like(values["pixel_values"])


def ignore_all(values: dict[str, torch.Tensor]) -> None:
    values["pixel_values"] = torch.zeros_like(values["pixel_values"])


def ignore_kinds(values: dict[str, torch.Tensor]) -> None:
    values["token_type_ids"] = torch.zeros_like(values["token_type_ids"])


def swap_features(values: dict[str, torch.Tensor]) -> None:
    values["image_features"] = values["image_features"].flip(0)


def read_padding(values: dict[str, torch.Tensor]) -> None:
    values["attention_mask"] = torch.ones_like(values["attention_mask"])


@pytest.mark.parametrize(
    ("kind", "change", "problem"),
    [
        (PictureModel, None, ""),
        (PictureModel, forget, ""),  # only the prompt has pictures
        (PictureModel, swap, "prompt 2 x 7, step 1"),
        (PictureModel, ignore_second, "prompt 2 x 7, step 1"),
        (PictureModel, ignore_all, "prompt 2 x 7, step 1"),
        (PictureModel, read_padding, "prompt 2 x 7, step 1"),
        (KindsModel, None, ""),
        (KindsModel, ignore_kinds, "prompt 2 x 7, step 1"),
        (TalkativeModel, None, ""),
        (TalkativeModel, swap, "prompt 2 x 7, step 1"),
        (SizesModel, None, ""),  # the chain has no encoder
        (SizesModel, swap_features, "prompt 2 x 7, step 1"),
    ],
)
def test_a_file_has_the_tokens_of_generate_with_its_pictures(
    kind: type[PictureModel],
    change: Callable[[dict[str, torch.Tensor]], None] | None,
    problem: str,
    tmp_path: Path,
) -> None:
    spec = load(tmp_path, kind).find_model("net")
    assert spec.rollout is not None
    spec = spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"steps": 3})})
    assert spec.generate is not None
    torch.manual_seed(0)
    model = select_part(kind(), spec, spec.generate)

    class File:
        output_names = tuple(item.name for item in spec.outputs)

        def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            values = {name: torch.tensor(each) for name, each in inputs.items()}
            if change:
                change(values)
            with torch.no_grad():
                outputs = model(*(values[item.name] for item in spec.inputs))
            return [outputs[item.name].numpy() for item in spec.outputs]

    with torch.no_grad():
        samples = compute_reference(model, spec, {}, JobFolder(tmp_path), tmp_path)
    starts = [each.axes for each in samples if each.begins]
    counts = [each.get("pictures") or each["features"] // 2 for each in starts]
    assert [*zip((each["batch"] for each in starts), counts, strict=True)] == [
        (2, 2), (1, 1), (1, 2), (3, 3),
    ]  # fmt: skip
    reference = Reference(samples=(), rollout=samples, noise=(), output_spread=())
    checked = CheckedFile(folder=JobFolder(tmp_path), opset=18, spec=spec, reference=reference)
    result = check_rollout(checked, File(), "cpu")
    assert (result.status is Status.PASS) is not problem
    assert result.message.startswith(problem)


@torch.no_grad()
def test_the_number_of_pictures_is_dynamic_in_a_capture(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = PictureModel().eval()
    vision, embedding = pictures.Vision(model), pictures.Embedding(model)
    dim = torch.export.Dim.AUTO
    drawn = pictures.draw_pictures(model, 3)
    program = torch.export.export(vision, (), drawn, dynamic_shapes={"pixel_values": {0: dim}})
    others = pictures.draw_pictures(model, 5)
    features = program.module()(**others)["image_features"]
    assert torch.equal(features, pictures.compute_features(model, others))
    ids = torch.tensor([[3, 63, 63, 4], [63, 63, 5, 6]])
    program = torch.export.export(
        embedding, (ids, features[:4]), dynamic_shapes=({0: dim, 1: dim}, {0: dim})
    )
    run = program.module()
    longer = torch.tensor([[63, 7, 63, 63, 3, 63]])
    for count in (4, 3, 2):
        vectors = run(longer, features[:count])["inputs_embeds"]
        expected = model.tokens(longer)
        places = torch.tensor([0, 2, 3, 5])[:count]
        expected[0, places] = features[:count]
        assert torch.equal(vectors, expected)


@pytest.mark.parametrize("count", [0, 1, 2])
@torch.no_grad()
def test_tokens_without_a_feature_keep_their_vector(count: int) -> None:
    torch.manual_seed(0)
    model = PictureModel()
    ids, features = torch.tensor([[3, 63, 63]]), torch.randn(count, 16)
    vectors = pictures.Embedding(model)(ids, features)["inputs_embeds"]
    expected = model.tokens(ids)
    expected[0, 1 : 1 + count] = features
    assert torch.equal(vectors, expected)


def test_an_encoder_with_other_features_than_generate_has_no_entry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    vision = load(tmp_path).find_model("net-vision")
    usual = PictureModel.get_image_features

    def scale(model: PictureModel, pixel_values: torch.Tensor) -> object:
        returned = usual(model, pixel_values)
        returned.pooler_output = [2 * each for each in returned.pooler_output]
        return returned

    monkeypatch.setattr(PictureModel, "get_image_features", scale)
    message = "`generate` has other features of pictures than the encoder and its projector"
    measured = measure_interface(PictureModel(), SPEC)
    assert measured["no_encoder"] == message
    assert [*measured["parts"]] == ["embedding", "decoder", "whole"]
    assert vision.generate is not None
    with pytest.raises(Failure, match=message):
        select_part(PictureModel(), vision, vision.generate)


def test_a_projector_with_another_name_is_named() -> None:
    model = PictureModel()
    model.adapter = model.multi_modal_projector
    del model._modules["multi_modal_projector"]
    model.__dict__["multi_modal_projector"] = model.adapter
    measured = measure_interface(model, SPEC)
    assert "vision" not in measured["parts"]
    message = "no module between encoder and tokens is named multi_modal_projector, connector"
    assert measured["no_encoder"].startswith(message)


def test_the_line_that_torch_does_not_capture_is_named() -> None:
    measured = measure_interface(SizesModel(), SPEC)
    assert [*measured["parts"]] == ["embedding", "decoder", "whole"]
    assert re.match(r"tiny_transformers\.py:\d+: Guard", measured["no_encoder"])
    text = format_generator("net", Source(text="nets.py:net"), measured, [18])
    assert f"# No entry for the encoder of pictures: {measured['no_encoder']}\n" in text
    assert 'chain = ["net-embedding", "net-decoder"]' in text


def test_a_model_with_other_logits_than_its_parts_is_red(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = load(tmp_path).find_model("net")
    usual = PictureModel.forward

    def forward(model: PictureModel, **call: object) -> object:
        returned = usual(model, **call)
        if call.get("pixel_values") is not None:  # as if pictures were used again in the layers
            returned["logits"] = returned["logits"].flip(-1)
        return returned

    monkeypatch.setattr(PictureModel, "forward", forward)
    assert spec.generate is not None
    message = "the language model of PictureModel gets more than the vectors of tokens and pictures"
    with pytest.raises(Failure, match=message):
        select_part(PictureModel(), spec, spec.generate)


def test_an_encoder_with_another_call_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compute(_: PictureModel, pixel_values: torch.Tensor) -> object:
        raise ValueError("no sizes")

    monkeypatch.setattr(PictureModel, "get_image_features", compute)
    message = r"features of two of them were not computed: test_pictures\.py:\d+: ValueError: no s"
    with pytest.raises(Failure, match=message):
        measure_interface(PictureModel(), SPEC)


def test_a_part_that_fails_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(*_: object, **__: object) -> object:
        raise AttributeError("no ndim")

    monkeypatch.setattr(KindsModel, "create_masks_for_generate", staticmethod(create))
    usual = KindsModel.forward

    def forward(model: KindsModel, token_type_ids: object = None, **call: object) -> object:
        return usual(model, **call)

    monkeypatch.setattr(KindsModel, "forward", forward)
    monkeypatch.setattr(pictures, "has_kinds", lambda _: True)
    message = r"a part of KindsModel was not computed: test_pictures\.py:\d+: AttributeError: no"
    with pytest.raises(Failure, match=message):
        measure_interface(KindsModel(), SPEC)


def test_a_model_with_pictures_and_states_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "_has_states", lambda _: True)
    with pytest.raises(Failure, match="reads pictures and has other states than keys and values"):
        measure_interface(PictureModel(), SPEC)


def exchange(rows: torch.Tensor) -> torch.Tensor:
    return rows.flip(0)


def repeat_first(rows: torch.Tensor) -> torch.Tensor:
    return rows[:1].expand_as(rows)


def ignore_second_features(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows[:2], rows[:2], rows[4:]])[: len(rows)]


def exchange_three(rows: torch.Tensor) -> torch.Tensor:
    """Be right for the pictures of an entry alone, and wrong for as many as a longer prompt has."""
    return rows.flip(0) if len(rows) == 3 else rows


class Session:
    """Runs the parts of a model in place of files; one of them can be wrong."""

    def __init__(
        self, manifest: Manifest, wrong: str, change: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        self.links = tuple(
            LinkFile(id=link.id, file="", inputs=link.inputs, outputs=link.outputs)
            for link in manifest.find_model("net").chain
        )
        self.specs = {spec.id: spec for spec in manifest.models}
        self.wrong, self.change = wrong, change

    def run_link(self, index: int, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        link = self.links[index]
        spec = self.specs[link.id]
        assert spec.generate is not None
        torch.manual_seed(0)
        part = select_part(PictureModel(), spec, spec.generate)
        tensors = {name: torch.tensor(values[source]) for name, source in link.inputs.items()}
        if link.id == self.wrong:
            name = spec.inputs[-1].name
            tensors[name] = self.change(tensors[name])
        with torch.no_grad():
            returned = part(*(tensors[item.name] for item in spec.inputs))
        return {link.outputs[name]: each.numpy() for name, each in returned.items()}


@pytest.mark.parametrize(
    ("wrong", "change", "expected"),
    [
        ("", exchange, [False, False, False, False]),
        # A single picture, or none, cannot be exchanged with another one.
        ("net-vision", exchange, [True, False, True, True]),
        ("net-vision", repeat_first, [True, False, True, True]),
        ("net-vision", exchange_three, [False, False, False, True]),
        ("net-embedding", exchange, [True, False, True, True]),
        ("net-embedding", ignore_second_features, [True, False, True, True]),
    ],
)
def test_the_link_that_is_another_part_is_named(
    wrong: str,
    change: Callable[[torch.Tensor], torch.Tensor],
    expected: list[bool],
    tmp_path: Path,
) -> None:
    manifest = load(tmp_path)
    spec = manifest.find_model("net")
    assert spec.generate is not None
    assert spec.rollout is not None
    spec = spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"steps": 2})})
    torch.manual_seed(0)
    model = select_part(PictureModel(), spec, spec.generate)
    folder = JobFolder(tmp_path / "net")
    with torch.no_grad():
        samples = compute_reference(model, spec, {}, folder, tmp_path)
    reference = Reference(samples=(), rollout=samples, noise=(), output_spread=())
    checked = CheckedFile(folder=folder, opset=18, spec=spec, reference=reference)
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
    starts = [sample for sample in samples if sample.begins]
    session = Session(manifest, wrong, change)
    texts = [comparison.find_other_part(session, each, model) for each in starts]
    named = [f"the link '{wrong}' is right on what it gets, and another part" in t for t in texts]
    assert named == expected, texts
