"""The environment of workers on a host, and its differences from the client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from exporter.cluster import host_run
from exporter.cluster.archives import ClientFacts, list_project, read_targets
from exporter.cluster.host_run import (
    find_differences,
    find_tool_differences,
    make_host_variables,
    split_python_path,
)
from exporter.processes.worker_variables import list_shared_variables


def make_context(**values: Any) -> ClientFacts:
    fields: dict[str, Any] = {
        "run": "run",
        "root": "/client/project",
        "build": "build",
        "name": "project",
        "targets": {},
        "tools": {},
        "search_path": "no folders",
        "variables": {},
        "patterns": (),
        "python_path": (),
        **values,
    }
    return ClientFacts(**fields)


def test_no_secret_travels_unless_it_is_listed() -> None:
    client = {
        "AWS_SECRET_ACCESS_KEY": "s",
        "HF_TOKEN": "t",
        "TORCH_API_KEY": "k",
        "HOME": "/home/me",
        "PATH": "/bin",
        "TORCH_COMPILE_DISABLE": "all",
        "TORCH_HOME": "/home/me/torch",
        "MY_MODE": "fast",
    }
    assert list_shared_variables(client) == {"TORCH_COMPILE_DISABLE": "all"}
    assert list_shared_variables(client, ["HF_TOKEN", "MY_*"]) == {
        "TORCH_COMPILE_DISABLE": "all",
        "HF_TOKEN": "t",
        "MY_MODE": "fast",
    }


def test_workers_have_the_variables_of_the_client_and_the_folders_of_the_host() -> None:
    context = make_context(
        variables={"TORCH_COMPILE_DISABLE": "all"},
        patterns=("MY_*",),
        python_path=("src", "/opt/lib"),
    )
    host = {"PATH": "/usr/bin", "ORT_LOG": "1", "MY_MODE": "slow", "SECRET": "s"}
    host["PYTHONPATH"] = "/host/lib:/client/project/src"
    variables = make_host_variables(context, Path("/host/copy"), host)
    assert variables["PYTHONPATH"] == "/host/copy/src:/opt/lib:/host/lib"
    assert variables["PATH"] == "/usr/bin"
    assert variables["TORCH_COMPILE_DISABLE"] == "all"
    # The client lacks these, so a host with them would give other results.
    assert not {"ORT_LOG", "MY_MODE", "SECRET"} & variables.keys()


def test_folders_of_the_project_are_relative(tmp_path: Path) -> None:
    path = f"{tmp_path}/src:/opt/lib::{tmp_path}"
    assert split_python_path(tmp_path, path) == ("src", "/opt/lib", ".")
    assert split_python_path(tmp_path, "") == ()


def test_other_packages_are_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"tool.torch": "2.13 abc", "tool.python": "3.11.7"}
    monkeypatch.setattr(host_run, "read_tool_parts", lambda: parts)
    monkeypatch.setattr(host_run, "have_tools_changed", lambda: False)
    assert find_tool_differences(make_context(tools=parts)) == ()
    others = {**parts, "tool.torch": "2.12 def", "tool.onnx": "1.23 0"}
    assert find_tool_differences(make_context(tools=others)) == (
        "torch: 2.13 abc instead of 2.12 def",
        "onnx: missing instead of 1.23 0",
    )
    monkeypatch.setattr(host_run, "have_tools_changed", lambda: True)
    (message,) = find_tool_differences(make_context(tools=parts))
    assert message.endswith("restart the Dask worker")


def test_another_search_path_is_a_difference(tmp_path: Path) -> None:
    state = host_run.read_search_path(tmp_path, "")
    assert not list(find_differences(make_context(search_path=state), tmp_path, {}))
    (message,) = find_differences(make_context(search_path="src"), tmp_path, {})
    assert message == f"search path of Python: {state} instead of src"


def test_a_link_of_the_environment_to_the_project_of_the_client_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable installation: the copy of the project is searched before the client's folder."""
    context = make_context(search_path="src:/opt/lib")
    host = {"PATH": "/usr/bin"}
    variables = make_host_variables(context, Path("/host/copy"), host)
    assert variables["PYTHONPATH"] == "/host/copy/src"

    client = tmp_path / "client"
    for name in ("client/src", "client/lib", "host/copy/src", "host/copy/.git", "opt/more"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr("exporter.cache.states.list_package_folders", lambda: ())

    def find(*folders: str) -> list[str]:
        path = os.pathsep.join(str(tmp_path / each) for each in folders)
        context = make_context(search_path=f"src:{tmp_path}/opt", root=str(client))
        return list(find_differences(context, tmp_path / "host/copy", {"PYTHONPATH": path}))

    assert find("host/copy/src", "client/src", "opt") == []
    assert len(find("host/copy/src", "client/lib", "opt")) == 1
    assert len(find("client/src", "opt")) == 1  # the copy is not searched first
    assert len(find("host/copy/src", "opt", "opt/more", "client")) == 1


def test_a_missing_target_of_a_link_is_a_difference(tmp_path: Path) -> None:
    root, target = tmp_path / "project", tmp_path / "data.bin"
    root.mkdir()
    target.write_text("1")
    (root / "data.bin").symlink_to(target)
    context = make_context(
        targets=read_targets(root, list_project(root, ())),
        search_path=host_run.read_search_path(root, ""),
    )
    assert not list(find_differences(context, root, {}))
    target.write_text("2")
    (message,) = find_differences(context, root, {})
    assert message.startswith(f"data.bin -> {target}: the file is missing or differs")
