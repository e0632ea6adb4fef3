"""The toolchains of the session `toolchains` follow the lower bounds of pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import toolchains

ROOT = Path(__file__).parents[2]


def test_the_lowest_toolchain_is_the_lower_bounds() -> None:
    bounds = toolchains.read_lower_bounds(ROOT / "pyproject.toml")
    assert set(bounds) == set(toolchains.PACKAGES)
    requirements = toolchains.make_requirements("lowest", bounds)
    assert all("==" in each for each in requirements)
    assert toolchains.make_requirements("pinned", bounds) == ()
    newest = toolchains.make_requirements("newest", bounds)
    assert f"onnx>={bounds['onnx']}" in newest


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
def test_only_the_newest_toolchain_may_fail(
    monkeypatch: pytest.MonkeyPatch, results: dict[str, bool], code: int
) -> None:
    monkeypatch.setattr(toolchains, "run_tests", lambda name, *_: results[name])
    assert toolchains.main([]) == code
