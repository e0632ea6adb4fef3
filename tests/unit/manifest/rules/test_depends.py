"""The globs of `depends` are checked and resolved."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import load_project

ENTRY = """
format = 1
[models.net]
source = "torch.nn:ReLU"
inputs = [{{ name = "x", shape = [3] }}]
outputs = [{{ name = "y", shape = [3] }}]
opsets = 18
depends = {depends}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("manifests/data/a.txt", "config/b.json", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def write(root: Path, depends: str) -> None:
    (root / "manifests/net.toml").write_text(ENTRY.format(depends=depends))


def test_globs_are_resolved(root: Path) -> None:
    write(root, '["data/**", "../config/*.json"]')
    (spec,) = load_project(root).models
    assert spec.depends == ("data/**/*", "../config/*.json")


@pytest.mark.parametrize(
    ("depends", "message"),
    [
        ('["dat/**"]', 'no file matches "manifests/dat/**/*"; correct the glob'),
        ('["../../x"]', '"../../x" is outside the project; use files inside it'),
        ('["/x"]', "expected a path relative to the manifest"),
        ('{ files = ["data/**"] }', "expected a list, got a table"),
    ],
)
def test_each_problem_is_reported(root: Path, depends: str, message: str) -> None:
    write(root, depends)
    with pytest.raises(ExporterError) as caught:
        load_project(root)
    assert message in str(caught.value), str(caught.value)
    assert "manifests/net.toml:8" in str(caught.value)
