"""An export with other packages must use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.environments.installation import InstalledEnvironment
from exporter.pipeline.nested_export import _require_versions
from tests.unit.factory import make_run


def require(used: dict[str, str], installed: dict[str, str]) -> None:
    environment = InstalledEnvironment(folder=Path(), packages=installed)
    _require_versions(make_run(tools=used), environment)


def test_the_export_must_use_the_installed_versions() -> None:
    with pytest.raises(ExporterError, match=r"used onnx 1\.21\.0 instead of 1\.22\.0") as caught:
        require({"onnx": "1.21.0", "torch": "2.13.0"}, {"onnx": "1.22.0", "torch": "2.13.0"})
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_packages_that_are_no_tools_have_no_known_version() -> None:
    require({"onnx": "1.22.0"}, {"onnx": "1.22.0", "timm": "1.0.0"})
