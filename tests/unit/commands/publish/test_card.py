"""The card has the measured figures and the devices of the proof, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.commands.publish.descriptions import write_descriptions
from exporter.commands.publish.published_folder import Publication, PublishedLink, list_hints
from exporter.core.device_name import DeviceName
from exporter.manifest import Device, Input, ModelSpec, Output, Preprocess
from exporter.manifest.resolved.keys import Generate, Rollout
from exporter.records.record import Latency, LoadTime, Measurements, PeakMemory
from tests.unit.factory import make_record, make_spec

CPU = Device(name=DeviceName("cpu"), runtime="onnxruntime")
WEB = Device(name=DeviceName("web"), runtime="web")
SPEC = make_spec(
    "net",
    inputs=(Input(name="x", shape=("batch", 3), at="args[0]"),),
    outputs=(Output(name="y", shape=("batch", 3)),),
    license="MIT",
)
MEASURED = Measurements(
    latency=Latency(median=0.0125, p95=0.02, ratio=0.5, turns=9),
    load=LoadTime(seconds=0.25, ratio=3.0),
    memory=PeakMemory(bytes=12_000_000, ratio=2.0),
)


def write_card(
    folder: Path,
    devices: tuple[Device, ...],
    spec: ModelSpec = SPEC,
    links: tuple[PublishedLink, ...] = (),
    **fields: Any,
) -> str:
    publication = Publication(
        model="net",
        opset=18,
        is_green=True,
        sha256="0" * 64,
        tools={"onnxruntime-web": "1.30.0"},
        data_sets=(),
        allowed=(),
        records=tuple(make_record(f"net/18/{device.name}", **fields) for device in devices),
        sources={},
        links=links,
    )
    write_descriptions(publication, spec, devices, folder / "templates", folder)
    return (folder / "README.md").read_text()


def test_measured_figures_are_on_the_card(tmp_path: Path) -> None:
    card = write_card(tmp_path, (CPU,), measurements=MEASURED)
    speed = "12.5 ms, 0.5 times that of PyTorch; loads in 250 ms on cpu (one thread, the machine"
    assert f"| speed | {speed}" in card
    assert "| memory | 12.0 MB for a session and its first run on cpu |" in card
    assert "| in a browser | not proved" in card
    assert "Its license is MIT." in card


def test_a_device_of_the_web_is_on_the_card(tmp_path: Path) -> None:
    card = write_card(tmp_path, (CPU, WEB))
    assert "| in a browser | proved with ONNX Runtime Web 1.30.0 |" in card
    assert "| speed | not measured |" in card


def test_a_file_as_the_reference_is_named(tmp_path: Path) -> None:
    card = write_card(tmp_path, (CPU,), SPEC.model_copy(update={"source": "files/net.onnx"}))
    assert "has the outputs of `net.onnx`" in card
    assert "at most off `net.onnx`" in card


def test_a_chain_that_generates_has_a_loop_and_no_program_of_one_file(tmp_path: Path) -> None:
    spec = SPEC.model_copy(
        update={
            "generate": Generate(part="whole", steps=4),
            "rollout": Rollout(steps=4, feeds={"y": "x"}),
        }
    )
    links = tuple(
        PublishedLink(id=f"net-{part}", file=f"link-{part}.onnx", inputs={}, outputs={})
        for part in ("vision", "decoder")
    )
    card = write_card(tmp_path, (CPU,), spec, links)
    assert "generate.py" not in card
    assert "genai_config.json" not in card
    assert "The logits and the token of each step are those of the model's own `generate`." in card
    assert "| net-vision | `link-vision.onnx` |" in card


def test_missing_keys_are_hinted_once() -> None:
    others = [SPEC, SPEC, make_spec("other", license="MIT", owner="team", inputs=())]
    hints = [*list_hints(others)]
    assert [hint.partition(";")[0] for hint in hints] == ["no owner: net", "no preprocess: net.x"]
    prepared = Input(
        name="x", shape=("n",), at="args[0]", preprocess=Preprocess(function="prepare.py:load")
    )
    assert not [*list_hints([make_spec("a", license="MIT", owner="team", inputs=(prepared,))])]
