"""The toolchains of the session `toolchains` follow the lower bounds of pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from benchmarks import toolchains
from exporter.virtual_environments import EnvironmentDefinition, InstalledEnvironment

ROOT = Path(__file__).parents[2]


def test_the_lowest_toolchain_is_the_lower_bounds() -> None:
    bounds = toolchains.read_lower_bounds(ROOT / "pyproject.toml")
    assert set(bounds) == set(toolchains.PACKAGES)
    requirements = toolchains.make_requirements("lowest", bounds)
    assert all("==" in each for each in requirements)
    assert toolchains.make_requirements("pinned", bounds) == ()
    newest = toolchains.make_requirements("newest", bounds)
    assert f"onnx>={bounds['onnx']}" in newest
    assert toolchains.make_requirements("transformers", bounds) == ("transformers",)


def test_a_missing_bound_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text('[project.optional-dependencies]\nexport = ["onnx>=1.21", "onnxruntime"]\n')
    with pytest.raises(ValueError, match="onnxscript, onnxruntime without a lower bound"):
        toolchains.read_lower_bounds(path)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ({"lowest": True, "pinned": True, "newest": True}, 0),
        ({"lowest": True, "pinned": True, "newest": False}, 0),
        ({"lowest": False, "pinned": True, "newest": True}, 1),
        ({"lowest": True, "pinned": False, "newest": True}, 1),
    ],
)
def test_only_the_toolchain_of_pre_releases_may_fail(
    monkeypatch: pytest.MonkeyPatch, results: dict[str, bool], code: int
) -> None:
    monkeypatch.setattr(toolchains, "run_tests", lambda name, *_: results[name])
    assert toolchains.main([]) == code


def test_the_release_that_breaks_the_flow_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other packages stay, so the release is the only change."""
    versions = {"torch": "2.13.0", "onnx": "1.23.2"}

    def install(
        definition: EnvironmentDefinition, *_: object, **__: object
    ) -> InstalledEnvironment:
        assert definition.adds_to_current
        assert os.environ["PIP_PRE"] == "0"
        packages = versions | dict.fromkeys(definition.requirements, "99.0")
        return InstalledEnvironment(folder=tmp_path, packages=packages)

    def run(command: list[str], **_: object) -> CompletedProcess[str]:
        assert {*toolchains.FLOW} < {*command}
        return CompletedProcess(command, code)

    monkeypatch.setenv("PIP_PRE", "0")
    monkeypatch.setattr(toolchains, "install_environment", install)
    monkeypatch.setattr(toolchains.subprocess, "run", run)
    for code, end in ((1, "failed"), (0, "passed")):
        assert toolchains.main(["--toolchain", "transformers"]) == code
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "transformers: torch 2.13.0, onnx 1.23.2, transformers 99.0"
        assert lines[1].startswith(f"transformers: {end} in ")
