"""The connection to a cluster, and the messages if there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import EngineSettings
from exporter.pipeline.cluster import cluster_hosts
from exporter.pipeline.cluster.cluster_hosts import connect, locate_engine, require_dask
from tests.faults.dask_cluster import find_port

LINES = {"kind": 7, "scheduler": 8, "cluster": 9}


def connect_error(root: Path, **values: str) -> ExporterError:
    settings = EngineSettings(kind="dask", lines=LINES, **values)
    with pytest.raises(ExporterError) as error:
        connect(settings, root, root / "build", 1)
    return error.value


def test_a_setting_has_its_line_and_an_option_its_name() -> None:
    settings = EngineSettings(kind="dask", lines=LINES)
    assert locate_engine(settings, "kind") == "pyproject.toml:7: tool.exporter.engine.kind"
    assert locate_engine(EngineSettings(), "scheduler") == "--scheduler"


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    require_dask(EngineSettings(kind="dask"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ExporterError, match="run `pip install distributed`") as error:
        require_dask(EngineSettings(kind="dask", lines=LINES))
    assert str(error.value).startswith("pyproject.toml:7: tool.exporter.engine.kind: the package")
    assert error.value.exit_code is ExitCode.ENVIRONMENT


def test_an_address_without_a_scheduler_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_hosts, "_CONNECT_LIMIT", 0.5)
    address = f"tcp://127.0.0.1:{find_port()}"
    error = connect_error(tmp_path, scheduler=address)
    message = f"pyproject.toml:8: tool.exporter.engine.scheduler: {address}: no scheduler accepts"
    assert str(error).startswith(message)
    assert "start one with `dask scheduler`" in str(error)
    assert error.exit_code is ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "the project has no file cluster.py; create it with a function make"),
        ("def made(): ...", "the file has no function make; did you mean 'made'?"),
        ("import no_such_package", "fails with ModuleNotFoundError: No module named 'no_such"),
        ("def make(: ...", "fails with SyntaxError"),
        ("def make(): raise ValueError('no quota')", "fails with ValueError: no quota; correct"),
        ("def make(): return 3", "the function returned int, expected a cluster of Dask"),
    ],
)
def test_a_wrong_cluster_function_is_reported(
    tmp_path: Path, code: str | None, message: str, request: pytest.FixtureRequest
) -> None:
    name = f"cluster_{request.node.callspec.indices['code']}.py"
    if code is not None:
        (tmp_path / name).write_text(code)
    error = connect_error(tmp_path, cluster=f"{name}:make")
    label = f"pyproject.toml:9: tool.exporter.engine.cluster: {name}:make: "
    assert str(error).startswith(label + message.replace("cluster.py", name))
    assert error.exit_code is ExitCode.MANIFEST
