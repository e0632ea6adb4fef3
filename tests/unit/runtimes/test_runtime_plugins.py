"""A plugin of another distribution adds a runtime."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import parser

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.import_object import find_plugins
from exporter.manifest import Device, load_project
from exporter.runtimes import LoadFailure, RuntimeUnavailable, open_session
from tests.runtime_plugin import NAME, install_runtime_plugin
from tests.unit.checks.contexts import DOUBLE
from tests.unit.manifest.projects import ENTRY, make_project

DEVICE = Device(name="fast", runtime=NAME)
MANIFEST = f'format = 1\n[models.net]\n{ENTRY}devices = ["fast"]\n'
SETTINGS = """
[tool.exporter.devices.fast]
runtime = "{runtime}"
{keys}
"""


@pytest.fixture(autouse=True)
def no_cached_plugins() -> Iterator[None]:
    find_plugins.cache_clear()
    yield
    find_plugins.cache_clear()
    sys.modules.pop("ncnn_plugin", None)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = install_runtime_plugin(tmp_path / "site")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def save(folder: Path) -> Path:
    onnx.save(parser.parse_model(DOUBLE), folder / "18.onnx")
    return folder / "18.onnx"


@pytest.mark.usefixtures("plugin")
def test_a_plugin_reports_a_file_that_it_cannot_load(tmp_path: Path) -> None:
    (tmp_path / "18.onnx").write_bytes(b"no model")
    with pytest.raises(LoadFailure, match="ncnn: "):
        open_session(tmp_path / "18.onnx", DEVICE)


def test_a_missing_plugin_makes_the_runtime_unavailable(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="runtime 'ncnn': no installed plugin provides"):
        open_session(save(tmp_path), DEVICE)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:open_session", r"ncnn \(ncnn-plugin\): cannot import no_such_module"),
        ("ncnn_plugin:missing", "cannot import ncnn_plugin:missing: AttributeError"),
        ("ncnn_plugin:VERSION", "ncnn_plugin:VERSION is not a function"),
    ],
)
def test_a_broken_plugin_makes_the_runtime_unavailable(
    value: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(install_runtime_plugin(tmp_path / "site", value=value)))
    with pytest.raises(RuntimeUnavailable, match=message):
        open_session(save(tmp_path), DEVICE)


def load_settings(root: Path, runtime: str, keys: str = "") -> Device:
    text = SETTINGS.format(runtime=runtime, keys=keys)
    make_project(root, {"pyproject.toml": text, "manifests/net.toml": MANIFEST})
    return load_project(root).project.find_device("fast")


@pytest.mark.usefixtures("plugin")
def test_the_manifest_accepts_the_runtime_of_an_installed_plugin(tmp_path: Path) -> None:
    device = load_settings(tmp_path, NAME, 'device = "npu"\nstrict = true')
    assert (device.runtime, device.device, device.strict) == (NAME, "npu", True)


@pytest.mark.usefixtures("plugin")
def test_a_plugin_has_no_module_key(tmp_path: Path) -> None:
    with pytest.raises(ExporterError, match="is only valid for backend, not for ncnn"):
        load_settings(tmp_path, NAME, 'module = "json"')


@pytest.mark.parametrize(
    ("runtime", "hint"),
    [
        ("onnxruntim", "did you mean 'onnxruntime'?"),
        ("ncnn", "install the plugin that provides it"),
    ],
)
def test_an_unknown_runtime_is_an_error_with_a_fix(runtime: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(ExporterError) as caught:
        load_settings(tmp_path, runtime)
    assert caught.value.exit_code is ExitCode.MANIFEST
    message = str(caught.value)
    assert f'got "{runtime}"' in message
    assert 'expected the name of a runtime: "onnxruntime", "openvino", "reference"' in message
    assert hint in message
