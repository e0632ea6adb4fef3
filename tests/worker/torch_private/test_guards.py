"""Private functions are used only with tested versions, and can be switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.jobs import JobFolder
from exporter.manifest import ModelSpec
from exporter.worker.export.write_onnx import write_artifact
from exporter.worker.torch_private import guards
from tests.worker.contracts import make_contract
from tests.worker.graphs import convert

MODELS = (
    make_contract("Affine", "x [batch, 4] -> y []"),
    make_contract("ConvBatchNorm", "x [batch, 3, 8, 8] -> y [batch, 4, 6, 6]"),
)


def test_switch_selects_groups() -> None:
    assert guards.read_switch(None) == set(guards.GROUPS)
    assert guards.read_switch("none") == set()
    assert guards.read_switch("weights, registry") == {"weights", "registry"}


def test_unknown_group_is_an_error() -> None:
    with pytest.raises(ImportError, match="EXPORTER_TORCH_PRIVATE: no group is named 'wieghts'"):
        guards.read_switch("wieghts")


def test_all_groups_are_on_with_the_installed_versions() -> None:
    assert all(guards.is_enabled(group) for group in guards.GROUPS)


@pytest.mark.parametrize("group", guards.GROUPS)
def test_group_is_off_if_a_package_has_another_version(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in guards.GROUPS[group]:
        with monkeypatch.context() as patch:
            patch.setitem(guards._TESTED, package, ((0, 0),))
            assert not guards.is_enabled(group)


def write_files(spec: ModelSpec, folder: Path) -> list[bytes]:
    job = JobFolder(folder)
    job.path.mkdir()
    traced = convert(spec, 17, folder, dynamo=False)
    converted = convert(spec, 20, folder, dynamo=True)
    return [
        write_artifact(graph, spec, opset, job, {}).read_bytes()
        for opset, graph in ((17, traced), (20, converted))
    ]


@pytest.mark.parametrize("spec", MODELS, ids=lambda spec: spec.source)
def test_files_are_equal_without_private_functions(
    spec: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = write_files(spec, tmp_path / "private")
    monkeypatch.setattr(guards, "_ENABLED", frozenset())
    assert write_files(spec, tmp_path / "public") == expected
