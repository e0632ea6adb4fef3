"""Limits of control groups, as the kernel, Docker and Kubernetes show them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from exporter.core import system
from exporter.core.control_group import GroupLimit, find_core_limit, find_memory_limit

V1 = (
    "33 31 0:30 {root} {folder}/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {root} {folder}/memory rw,relatime - cgroup cgroup rw,memory\n"
)
V2 = "41 31 0:38 {root} {folder} rw,relatime - cgroup2 cgroup2 rw\n"


def process(
    tmp_path: Path, groups: str, mounts: str, files: Mapping[str, str], root: str = "/"
) -> Path:
    """Write `/proc/self` and the files of the groups; return the folder of the process."""
    folder = tmp_path / "cgroup"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    (proc / "mountinfo").write_text(mounts.format(root=root, folder=folder))
    return proc


def test_version_2_in_a_container(tmp_path: Path) -> None:
    files = {"cpu.max": "150000 100000\n", "memory.max": "4294967296\n"}
    proc = process(tmp_path, "0::/\n", V2, files)
    assert find_core_limit(proc) == GroupLimit(1.5, f"{tmp_path}/cgroup/cpu.max")
    assert find_memory_limit(proc) == GroupLimit(4 << 30, f"{tmp_path}/cgroup/memory.max")


def test_the_smallest_limit_of_all_groups_above_counts(tmp_path: Path) -> None:
    files = {
        "pods/cpu.max": "200000 100000\n",
        "pods/one/cpu.max": "max 100000\n",
        "pods/memory.max": "1000\n",
        "pods/one/memory.max": "2000\n",
    }
    proc = process(tmp_path, "0::/pods/one\n", V2, files)
    assert find_core_limit(proc) == GroupLimit(2.0, f"{tmp_path}/cgroup/pods/cpu.max")
    assert find_memory_limit(proc) == GroupLimit(1000, f"{tmp_path}/cgroup/pods/memory.max")


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    files = {
        "cpu/docker/1f/cpu.cfs_quota_us": "300000\n",
        "cpu/docker/1f/cpu.cfs_period_us": "100000\n",
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "memory/docker/1f/memory.limit_in_bytes": "545259520\n",
    }
    groups = "4:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n0::/docker/1f\n"
    proc = process(tmp_path, groups, V1, files)
    assert find_core_limit(proc) == GroupLimit(
        3.0, f"{tmp_path}/cgroup/cpu/docker/1f/cpu.cfs_quota_us"
    )
    limit = find_memory_limit(proc)
    assert limit is not None
    assert limit.value == 545259520


@pytest.mark.parametrize("path", ["/docker/1f", "/other", "/../../elsewhere"])
def test_a_container_that_sees_only_its_own_group_has_it_as_the_mount(
    tmp_path: Path, path: str
) -> None:
    files = {"memory/memory.limit_in_bytes": "545259520\n"}
    proc = process(tmp_path, f"4:memory:{path}\n", V1, files, root="/docker/1f")
    limit = find_memory_limit(proc)
    assert limit is not None
    assert limit.value == 545259520


@pytest.mark.parametrize(
    ("groups", "mounts", "files"),
    [
        ("0::/\n", V2, {"cpu.max": "max 100000\n", "memory.max": "max\n"}),
        ("0::/\n", V2, {}),
        ("", "", {}),
        ("no group", "no mount - at all", {}),
        ("0::/\n", V2, {"cpu.max": "", "memory.max": "much\n"}),
        ("3:cpu:/\n", V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}),
    ],
    ids=["max", "root group", "no groups", "unknown form", "unknown values", "version 1"],
)
def test_no_limit(tmp_path: Path, groups: str, mounts: str, files: dict[str, str]) -> None:
    proc = process(tmp_path, groups, mounts, files)
    assert find_core_limit(proc) is None
    assert find_memory_limit(proc) is None


def test_without_proc_there_is_no_limit(tmp_path: Path) -> None:
    assert find_core_limit(tmp_path) is None


def test_the_machine_has_the_smaller_of_limit_and_hardware(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "IS_LINUX", True)
    monkeypatch.setattr(system, "find_core_limit", lambda: GroupLimit(0.5, "cpu.max"))
    monkeypatch.setattr(system, "find_memory_limit", lambda: GroupLimit(1000.0, "memory.max"))
    assert system.count_cores() == 1
    assert system.measure_memory() == 1000
    assert [limit.file for limit in system.list_limits()] == ["cpu.max", "memory.max"]
    huge = GroupLimit(2.0**63, "memory.limit_in_bytes")  # version 1 without a limit
    monkeypatch.setattr(system, "find_core_limit", lambda: None)
    monkeypatch.setattr(system, "find_memory_limit", lambda: huge)
    assert system.measure_memory() > 1000
    assert system.list_limits() == []
