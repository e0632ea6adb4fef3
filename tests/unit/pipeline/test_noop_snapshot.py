"""A snapshot is valid only while all inputs are unchanged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.cache import installed_files, states
from exporter.cache.states import (
    hash_source,
    read_distribution,
    read_package_state,
    read_tool_parts,
    read_variable_state,
    read_variables,
)
from exporter.core.errors import ExportSummary
from exporter.pipeline.noop_snapshot import (
    Moment,
    NoopInputs,
    _observe,
    load_snapshot,
    read_filesystem_clock,
    read_next_tick,
    save_snapshot,
)
from tests.distributions import write_distribution

SUMMARY = ExportSummary(
    lines=(("2 cells: 2 pass", None), ("red", "red")), code=1, next_step="`exporter gate`"
)
LATER = 10**18  # later than all files of a test


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Each export is a process of its own, and other tests read other packages.
    monkeypatch.setattr(installed_files, "_STAMPS", {})
    for cached in (read_distribution, read_tool_parts, states._list_other_owners):
        cached.cache_clear()
    for name in (
        "manifests/a.toml",
        "manifests/net.py",
        "build/net/18.onnx",
        "build/s0/in.pb",
        "pyproject.toml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    write_distribution(tmp_path / "packages", "acme-of-test", RECORD="acme.py,,")
    (tmp_path / "packages/acme.py").write_text("one")
    return tmp_path


def make_inputs(project: Path) -> NoopInputs:
    return NoopInputs(
        files={
            "": ["pyproject.toml"],
            str(project): ["pyproject.toml"],
        },
        outputs={"build/net": ["18.onnx"], "build/s0": [".", "in.pb"]},
        absent=["build/.work"],
        trees=["manifests", "templates"],
        listings={"manifests/*.py": hash_source(project / "manifests/*.py")},
        packages={"pydantic": read_package_state("pydantic")},
        overlays={
            str(project / "packages"): {
                "pytest": read_package_state("pytest"),
                "acme-of-test": read_package_state("acme-of-test", str(project / "packages")),
            }
        },
        variables={"MY_FLAG": read_variable_state("MY_FLAG")},
        patterns={"MY_LIST_*": read_variables(["MY_LIST_*"])},
    )


def save(
    project: Path,
    read: NoopInputs | None = None,
    since: Moment | None = None,
    checked: Moment | None = None,
) -> None:
    now = read_filesystem_clock(project)
    later = replace(now, changed=now.changed + LATER)
    since = since or later
    build = project / "build"
    save_snapshot(
        project,
        build,
        read or make_inputs(project),
        SUMMARY,
        since,
        checked or max_of(since, later),
    )


def max_of(first: Moment, other: Moment) -> Moment:
    return max(first, other, key=lambda moment: moment.changed)


def test_the_summary_is_loaded_if_nothing_changed(project: Path) -> None:
    assert load_snapshot(project) is None
    save(project)
    assert load_snapshot(project) == SUMMARY
    assert load_snapshot(project) == SUMMARY


def linked(project: Path) -> None:
    (project / "build/net/18.onnx").rename(project / "elsewhere")
    (project / "build/net/18.onnx").symlink_to(project / "elsewhere")


@pytest.mark.parametrize("name", ["MY_FLAG", "MY_LIST_A", "TORCH_COMPILE_DISABLE"])
def test_a_changed_variable_makes_the_snapshot_invalid(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    save(project)
    assert load_snapshot(project) == SUMMARY
    monkeypatch.setenv("OTHER", "1")
    assert load_snapshot(project) == SUMMARY
    monkeypatch.setenv(name, "1")
    assert load_snapshot(project) is None


def other_package_of_toolchain(project: Path) -> None:
    write_distribution(project / "packages", "pytest")
    read_distribution.cache_clear()  # each export is a process of its own


def edit_package_of_toolchain(project: Path) -> None:
    (project / "packages/acme.py").write_text("two")
    read_distribution.cache_clear()


def change_snapshot(project: Path, *path: str) -> None:
    file = project / "build/untouched.json"
    snapshot = part = json.loads(file.read_text())
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = "1.0 0"
    file.write_text(json.dumps(snapshot))


def other_state(project: Path, *path: str) -> None:
    """Change the state of a package and the stamps of all packages."""
    change_snapshot(project, *path)
    change_snapshot(project, "installed", "digest")


def create(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)


def rename(project: Path) -> None:
    (project / "manifests/a.toml").rename(project / "manifests/b.toml")


CHANGES: dict[str, Callable[[Path], object]] = {
    "same size": lambda project: (project / "build/net/18.onnx").write_text("two"),
    "same content": lambda project: create(project / "build/net/18.onnx", "one"),
    "removed": lambda project: (project / "pyproject.toml").unlink(),
    "linked": linked,
    "edited": lambda project: (project / "manifests/a.toml").write_text("two"),
    "one manifest more": lambda project: create(project / "manifests/inner/b.toml"),
    "one manifest less": lambda project: (project / "manifests/a.toml").unlink(),
    "manifest renamed": rename,
    "one sample file more": lambda project: create(project / "build/s0/out.pb"),
    "sample": lambda project: (project / "build/s0/in.pb").write_text("two"),
    "template": lambda project: create(project / "templates/overview.md.j2"),
    "killed run": lambda project: (project / "build/.work").mkdir(),
    "other tools": lambda project: other_state(project, "tools", "tool.torch"),
    "other package": lambda project: other_state(project, "inputs", "packages", "pydantic"),
    "edited package": edit_package_of_toolchain,
    "other platform": lambda project: change_snapshot(project, "tools", "tool.platform"),
    "other package of a toolchain": other_package_of_toolchain,
    "damaged": lambda project: os.truncate(project / "build/untouched.json", 200),
    "other form": lambda project: create(project / "build/untouched.json", "[]"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_makes_the_snapshot_invalid(project: Path, change: str) -> None:
    save(project)
    assert load_snapshot(project) == SUMMARY
    CHANGES[change](project)
    assert load_snapshot(project) is None


def test_packages_without_a_change_are_compared_by_their_stamps(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(project)
    monkeypatch.setattr(states, "distributions", lambda **_: pytest.fail("read again"))
    monkeypatch.setattr("exporter.pipeline.noop_snapshot.read_tool_parts", None)
    read_distribution.cache_clear()
    assert load_snapshot(project) == SUMMARY


def test_a_reinstalled_package_is_compared_once(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(project)
    os.utime(project / "packages/acme.py")
    reads: list[str] = []
    described = installed_files.describe_installed_files
    monkeypatch.setattr(
        "exporter.pipeline.noop_snapshot.describe_installed_files",
        lambda folders, _: reads.append("stamps") or described(folders, LATER * 10),
    )
    read_distribution.cache_clear()
    monkeypatch.setattr(installed_files, "_STAMPS", {})
    for cached in (read_tool_parts, states._list_other_owners):
        cached.cache_clear()
    assert load_snapshot(project) == SUMMARY
    assert load_snapshot(project) == SUMMARY
    assert reads == ["stamps"]


def test_the_target_of_a_symlink_is_compared(project: Path) -> None:
    linked(project)
    save(project)
    assert load_snapshot(project) == SUMMARY
    (project / "elsewhere").write_text("two")
    assert load_snapshot(project) is None


def test_bytecode_of_python_is_ignored(project: Path) -> None:
    save(project)
    (project / "manifests/__pycache__").mkdir()
    (project / "manifests/__pycache__/net.pyc").write_text("")
    assert load_snapshot(project) == SUMMARY


def was_saved(project: Path) -> bool:
    return (project / "build/untouched.json").exists()


def edit_in_place(path: Path) -> None:
    """Edit a file so that its size and its modification time stay."""
    before = path.stat()
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("file", ["manifests/a.toml", "manifests/net.py", "pyproject.toml"])
def test_an_input_that_changed_during_the_export_prevents_the_snapshot(
    project: Path, file: str
) -> None:
    began = read_next_tick(project)
    edit_in_place(project / file)
    save(project, since=began)
    assert not was_saved(project)
    save(project, since=read_next_tick(project))
    assert was_saved(project)


@pytest.mark.parametrize("file", ["build/net/18.onnx", "build/s0/in.pb"])
def test_an_output_is_written_during_the_export_but_unchanged_since_its_comparison(
    project: Path, file: str
) -> None:
    began = read_next_tick(project)
    (project / file).write_text("two")
    save(project, since=began, checked=began)
    assert not was_saved(project)
    checked = read_next_tick(project)
    edit_in_place(project / file)
    save(project, since=began, checked=checked)
    assert not was_saved(project)
    save(project, since=began, checked=read_next_tick(project))
    assert load_snapshot(project) == SUMMARY
    edit_in_place(project / file)
    assert load_snapshot(project) is None


def test_a_change_at_the_same_tick_prevents_the_snapshot(project: Path) -> None:
    newest = (project / "pyproject.toml").stat().st_ctime_ns
    newest = max(newest, (project / "manifests/net.py").stat().st_ctime_ns)
    now = read_next_tick(project)
    save(project, since=replace(now, changed=newest))
    assert not was_saved(project)
    save(project, since=replace(now, changed=newest + 1))
    assert was_saved(project)


def test_a_file_with_another_clock_must_be_much_older(project: Path) -> None:
    now = read_next_tick(project)
    save(project, since=replace(now, device=now.device + 1))
    assert not was_saved(project)
    later = replace(now, device=now.device + 1, changed=now.changed + 2_100_000_000)
    save(project, since=later, checked=later)
    assert was_saved(project)


def test_a_clock_that_was_set_back_or_does_not_exist_prevents_the_snapshot(project: Path) -> None:
    now = read_next_tick(project)
    save(project, since=now, checked=replace(now, steady=now.steady + 100_000_000))
    save(project, since=replace(now, changed=0), checked=now)
    assert not was_saved(project)
    save(project, since=now, checked=replace(now, steady=now.steady + 10_000_000))
    assert was_saved(project)


def test_the_clock_needs_no_build_folder_and_leaves_no_file(project: Path) -> None:
    before = sorted(project.rglob("*"))
    assert read_filesystem_clock(project / "none").device == project.stat().st_dev
    assert read_filesystem_clock(project).changed < read_next_tick(project).changed
    assert sorted(project.rglob("*")) == before


def test_a_folder_with_other_files_that_are_as_old_is_a_change(project: Path) -> None:
    shutil.copytree(project / "manifests", project / "others")
    (project / "others/a.toml").write_text("two")
    start = _observe(project, replace(make_inputs(project), outputs={}))
    assert start.is_unchanged(project)
    (project / "manifests").rename(project / "former")
    (project / "others").rename(project / "manifests")
    assert not start.is_unchanged(project)


@pytest.mark.parametrize(
    "change",
    [
        {"listings": {"manifests/*.py": "0"}},
        {"packages": {"pydantic": "1.0 0"}},
        {"absent": ["pyproject.toml"]},
        {"files": {"": ["gone"]}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_inputs_that_differ_already_prevent_the_snapshot(
    project: Path, change: dict[str, object]
) -> None:
    save(project, replace(make_inputs(project), **change))  # type: ignore[arg-type]  # each fits its field
    assert not (project / "build/untouched.json").exists()
