"""`[tool.exporter.engine]`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import EngineSettings, load_project
from tests.unit.manifest.projects import ENTRY, make_project


def load(root: Path, keys: str) -> EngineSettings:
    net = f"format = 1\n[models.net]\n{ENTRY}"
    settings = f"[tool.exporter.engine]\n{keys}\n"
    files = {"manifests/net.toml": net, "pyproject.toml": settings}
    return load_project(make_project(root, files)).project.engine


def test_the_keys_have_their_lines(tmp_path: Path) -> None:
    engine = load(tmp_path, 'kind = "dask"\nscheduler = "tls://10.0.0.1:8786"')
    assert (engine.kind, engine.scheduler) == ("dask", "tls://10.0.0.1:8786")
    assert engine.lines == {"kind": 2, "scheduler": 3}
    local = load(tmp_path / "local", "workers = 3")
    assert (local.kind, local.workers, local.cluster) == ("local", 3, "")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('kind = "daks"', "engine.kind: expected 'local' or 'dask', got "),
        (
            'scheduler = "10.0.0.1"',
            "engine.scheduler: expected the address of a scheduler",
        ),
        ('scheduler = "tcp://me@host:1"', "engine.scheduler: expected the address of a scheduler"),
        (
            'cluster = "make"',
            "engine.cluster: expected a function of the project, such",
        ),
        ('cluster = "../c.py:make"', "engine.cluster: expected a function of the project"),
        ("workers = 0", "tool.exporter.engine.workers: "),
        ('sheduler = "tcp://h:1"', "scheduler"),
        ('scheduler = "tcp://h:1"\ncluster = "c.py:m"', "engine.cluster: `scheduler` selects"),
        ('workers = 2\nscheduler = "tcp://h:1"', "engine.workers: only a cluster on this machine"),
    ],
)
def test_wrong_values_are_reported_with_their_line(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(ExporterError) as error:
        load(tmp_path, keys)
    assert message in str(error.value)
    assert str(error.value).startswith("pyproject.toml:")
