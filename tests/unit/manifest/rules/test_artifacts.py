"""An entry may name finished files, one for each opset, in place of an export."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import ModelSpec
from exporter.planning.plan import choose_route
from tests.unit.manifest.projects import ENTRY, load, make_project
from tests.unit.manifest.projects import load_model as load_entry

ONE = ENTRY.replace('"9..21"', "17")
TWO = ENTRY.replace('"9..21"', "[17, 18]")


def load_model(root: Path, keys: str, entry: str = ONE) -> ModelSpec:
    files = {f"manifests/files/net-{opset}.onnx": "" for opset in (17, 18)}
    return load_entry(make_project(root, files), keys, entry)


def test_one_opset_needs_no_placeholder(tmp_path: Path) -> None:
    spec = load_model(tmp_path, 'artifact = "files/net-17.onnx"')
    assert spec.find_artifact(17) == "manifests/files/net-17.onnx"
    assert spec.data_files == ("manifests/files/net-17.onnx",)
    route = choose_route(spec, 17)
    assert (route.exporter, route.capture, route.is_export) == ("file", "none", False)
    assert route.reason == "the manifest names the file manifests/files/net-17.onnx"


def test_each_opset_depends_on_its_own_file(tmp_path: Path) -> None:
    spec = load_model(tmp_path, 'artifact = "files/net-{opset}.onnx"', TWO)
    assert spec.list_data_files((18,)) == ("manifests/files/net-18.onnx",)
    assert len(spec.data_files) == 2


def test_keys_of_the_parent_that_control_an_export_are_ignored(tmp_path: Path) -> None:
    parent = f'[models.base]\n{ONE}exporter = "torchscript"\noptions.do_constant_folding = false\n'
    child = '[models.net]\nextends = "base"\nartifact = "files/net-17.onnx"\n'
    make_project(tmp_path, {"manifests/files/net-17.onnx": ""})
    spec = load(tmp_path, parent + child).find_model("net")
    assert choose_route(spec, 17).exporter == "file"


@pytest.mark.parametrize(
    ("keys", "entry", "messages"),
    [
        (
            'artifact = "files/net-19.onnx"',
            ONE,
            [
                (
                    "manifests/net.toml:7: models.net.artifact: the file "
                    "\"manifests/files/net-19.onnx\" does not exist; did you mean 'net-18.onnx'?"
                )
            ],
        ),
        (
            'artifact = "files/net-17.onnx"',
            TWO,
            [
                (
                    "each of the opsets 17..18 needs a file of its own; write {opset} in the path: "
                    '"files/net-17-{opset}.onnx"'
                )
            ],
        ),
        (
            'artifact = "manifests/files/net-17.onnx"',
            ONE,
            [
                (
                    '"manifests/files/net-17.onnx" does; write "files/net-17.onnx", which begins '
                    "at the folder of the manifest"
                )
            ],
        ),
        (
            'artifact = "files/net-17.onnx"\ntolerance = 1e-12',
            ONE,
            ["models.net.tolerance: expected a table, got 1e-12; write { atol = 1e-12 }"],
        ),
        ('artifact = "models/vision.py"', ONE, ["expected a file with the suffix .onnx, got"]),
        ('artifact = "../../net.onnx"', ONE, ["is outside the project"]),
        ("artifact = 3", ONE, ["models.net.artifact"]),
        (
            (
                'artifact = "files/net-17.onnx"\nexporter = "dynamo"\ncapture = "strict"\n'
                "options = { optimize = true, external_data = false }\n"
                'overrides = [{ opset = 17, exporter = "torchscript" }]'
            ),
            ONE,
            [
                "models.net.exporter: does not apply to an `artifact`, which is not exported",
                "models.net.capture: does not apply",
                "models.net.options.optimize: does not apply",
                "models.net.overrides[0].exporter: does not apply",
            ],
        ),
        (
            'overrides = [{ opset = 17, artifact = "files/net-17.onnx" }]',
            ONE,
            ["models.net.overrides[0].artifact"],
        ),
    ],
)
def test_bad_artifacts_have_a_message(
    tmp_path: Path, keys: str, entry: str, messages: list[str]
) -> None:
    with pytest.raises(ExporterError) as raised:
        load_model(tmp_path, keys, entry)
    text = str(raised.value)
    assert [message for message in messages if message not in text] == [], text
    assert len(raised.value.problems) == len(messages)


def test_options_that_describe_the_file_apply(tmp_path: Path) -> None:
    keys = 'artifact = "files/net-17.onnx"\noptions.custom_opsets = { "com.microsoft" = 1 }'
    assert load_model(tmp_path, keys).options == {"custom_opsets": {"com.microsoft": 1}}


SOURCE = ONE.replace("models/vision.py:AlexNet", "files/net-17.onnx")


def test_a_file_as_the_source_is_the_file_to_prove(tmp_path: Path) -> None:
    spec = load_model(tmp_path, "", SOURCE)
    assert spec.is_onnx_file
    assert spec.find_artifact(17) == "manifests/files/net-17.onnx"
    assert spec.data_files == ("manifests/files/net-17.onnx",)
    spec = load_model(tmp_path, 'artifact = "files/net-18.onnx"', SOURCE)
    assert spec.data_files == ("manifests/files/net-17.onnx", "manifests/files/net-18.onnx")
    assert choose_route(spec, 17).exporter == "file"


@pytest.mark.parametrize(
    ("keys", "entry", "message"),
    [
        ('exporter = "dynamo"', SOURCE, "does not apply to an ONNX file, which is not exported"),
        ("init = { a = 1 }", SOURCE, "an ONNX file takes no init arguments"),
        ('precision = "float16"', SOURCE, "an ONNX file has the precision of its capture"),
        ('mode = "train"', SOURCE, "an ONNX file has the mode of its capture"),
        ('weights = "files/w.pt"', SOURCE, "an ONNX file contains its own weights"),
        ('export_device = "cuda"', SOURCE, "an ONNX file runs on the CPU"),
        ("", SOURCE.replace("17\n", "[17, 18]\n"), "and `source` is one; keep one opset, or name"),
        ("", SOURCE.replace("17.onnx", "16.onnx"), "does not exist"),
        ("", SOURCE.replace('17.onnx"', '17.onnx:net"'), "a saved model has no attributes"),
    ],
)
def test_keys_of_a_model_do_not_apply_to_a_file(
    keys: str, entry: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExporterError) as caught:
        load_model(tmp_path, keys, entry)
    assert message in str(caught.value)
