"""Versions of packages: ranges of torch and releases of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import explain_cell, load_layers
from exporter.manifest.syntax.versions import (
    check_version_range,
    find_lowest_release,
    find_pinned_release,
    is_in_range,
)
from tests.unit.manifest.projects import ENTRY, load_model, make_project

ENVIRONMENTS = """
[tool.exporter.environments.old]
requirements = ["numpy<2", "onnxruntime==1.17.3"]

[tool.exporter.devices.ort117]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
environment = "old"
"""


def test_the_lowest_release_counts() -> None:
    assert find_lowest_release(()) is None
    assert find_lowest_release(("onnxruntime>=1.17", "onnxruntime >= 1.9.2")) == (1, 9)


@pytest.mark.parametrize(
    ("requirement", "release"),
    [
        ("onnxruntime==1.17.3", (1, 17)),
        ("onnxruntime == 1.17.*", (1, 17)),
        ("onnxruntime~=1.17.1", (1, 17)),
        ("onnxruntime-gpu==1.20.0", (1, 20)),
        ("onnxruntime~=1.17", None),  # allows 1.18
        ("onnxruntime>=1.17", None),
        ("onnxruntime-extensions==0.15", None),
        ("onnxruntime", None),
        ("numpy==1.17", None),
    ],
)
def test_only_a_fixed_version_pins_a_release(
    requirement: str, release: tuple[int, int] | None
) -> None:
    assert find_pinned_release(("pip==1", requirement)) == release


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("openvino>=2024.1", 'expected a release of ONNX Runtime such as "onnxruntime>=1.17"'),
        ("onnxruntime==1.17", "expected a release of ONNX Runtime such as"),
        ("onnxruntime>=1", "expected a release of ONNX Runtime such as"),
        ("onnxruntime>=0.0", "expected a release of ONNX Runtime from 0.1 on"),
    ],
)
def test_other_consumers_have_a_message(tmp_path: Path, value: str, message: str) -> None:
    with pytest.raises(ExporterError) as raised:
        load_model(tmp_path, f'consumers = ["{value}"]')
    assert f"manifests/net.toml:7: models.net.consumers[0]: {message}" in str(raised.value)


@pytest.mark.parametrize(
    ("consumers", "devices"),
    [
        ('["onnxruntime>=1.17"]', ("cpu", "ort117")),
        ('["onnxruntime>=1.16"]', ("cpu",)),
        ("[]", ("cpu",)),
    ],
)
def test_the_device_of_the_promised_release_runs_the_file(
    tmp_path: Path, consumers: str, devices: tuple[str, ...]
) -> None:
    text = f"format = 1\n[models.net]\n{ENTRY}consumers = {consumers}\n"
    files = {"pyproject.toml": ENVIRONMENTS, "manifests/net.toml": text}
    root = make_project(tmp_path, files)
    loaded = load_layers(root)
    spec = loaded.manifest.find_model("net")
    assert spec.devices == devices
    rows = explain_cell(loaded.layers["net"], spec, 18, "cpu")
    shown = {row.origin: row.value for row in rows if row.key == "devices"}
    assert '["cpu"]' in shown.values()
    assert shown.get("computed: consumers", "[]") == ('["ort117"]' if len(devices) > 1 else "[]")


@pytest.mark.parametrize(
    ("versions", "version", "expected"),
    [
        ("", "2.13.0", True),
        ("", "", True),
        ("<2.14", "2.13.0+cpu", True),
        ("<2.14", "2.14.1", False),
        ("<2.14", "2.9.0", True),
        (">=2.14", "2.14.0a0+git1234", True),
        (">=2.12,<2.14", "2.13.1 0123456789ab", True),
        (">=2.12,<2.14", "2.11.0", False),
        (">2.13", "2.13.1", False),
        ("<=2.13", "2.13.1", True),
        ("==2.13", "2.13.1", True),
        ("==2.13.0", "2.13", True),
        ("!=2.13.0", "2.13.0", False),
        ("<2.14", "", False),
        ("<2.14", "missing", False),
    ],
)
def test_a_version_is_in_a_range(versions: str, version: str, expected: bool) -> None:
    assert is_in_range(version, versions) is expected


def test_a_range_is_stored_without_spaces() -> None:
    assert check_version_range(" >= 2.12 , <2.14") == ">=2.12,<2.14"


@pytest.mark.parametrize("versions", ["2.14", "", "~=2.14", "<2.14,", "<two", "<2.14 >2", "==2.*"])
def test_another_text_is_no_range(versions: str) -> None:
    with pytest.raises(ValueError, match="comparisons of versions such as"):
        check_version_range(versions)
