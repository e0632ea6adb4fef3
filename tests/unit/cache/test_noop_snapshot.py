"""A note that nothing was touched holds for files as they were, and for nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.cache.fingerprint import hash_source, read_package_state
from exporter.cache.noop_snapshot import (
    ExportSummary,
    NoopInputs,
    load_snapshot,
    read_filesystem_clock,
    save_snapshot,
)

SAID = ExportSummary(lines=(("2 cells: 2 pass", None), ("red", "red")), code=1)
LATER = 10**18  # long after whatever a test has made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("manifests/a.toml", "manifests/net.py", "build/net/18.onnx", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    return tmp_path


def basis(project: Path) -> NoopInputs:
    return NoopInputs(
        day="2026-11-21",
        files={"": ["pyproject.toml"], "build/net": ["18.onnx"], str(project): ["pyproject.toml"]},
        absent=["build/.work"],
        trees=["manifests", "templates"],
        listings={"manifests/*.py": hash_source(project / "manifests/*.py")},
        packages={"pydantic": read_package_state("pydantic")},
    )


def noted(project: Path, read: NoopInputs | None = None, since: int | None = None) -> None:
    build = project / "build"
    began = read_filesystem_clock(build) + LATER if since is None else since
    save_snapshot(project, build, read or basis(project), SAID, began)


def said(project: Path, day: str = "2026-11-21") -> ExportSummary | None:
    return load_snapshot(project, project / "build", day)


def test_the_same_is_said_again_where_nothing_was_touched(project: Path) -> None:
    assert said(project) is None
    noted(project)
    assert said(project) == SAID
    assert said(project) == SAID


def same_size(project: Path) -> None:
    (project / "build/net/18.onnx").write_text("two")


def same_content(project: Path) -> None:
    text = (project / "build/net/18.onnx").read_text()
    (project / "build/net/18.onnx").unlink()
    (project / "build/net/18.onnx").write_text(text)


def removed(project: Path) -> None:
    (project / "pyproject.toml").unlink()


def linked(project: Path) -> None:
    (project / "build/net/18.onnx").rename(project / "elsewhere")
    (project / "build/net/18.onnx").symlink_to(project / "elsewhere")


def edited(project: Path) -> None:
    (project / "manifests/a.toml").write_text("two")


def manifest_more(project: Path) -> None:
    (project / "manifests/inner").mkdir()
    (project / "manifests/inner/b.toml").write_text("")


def manifest_less(project: Path) -> None:
    (project / "manifests/a.toml").unlink()


def manifest_renamed(project: Path) -> None:
    (project / "manifests/a.toml").rename(project / "manifests/b.toml")


def template(project: Path) -> None:
    (project / "templates").mkdir()
    (project / "templates/overview.md.j2").write_text("")


def killed_run(project: Path) -> None:
    (project / "build/.work").mkdir()


def other_tools(project: Path) -> None:
    path = project / "build/untouched.json"
    note = json.loads(path.read_text())
    note["tools"]["tool.torch"] = "1.0 0"
    path.write_text(json.dumps(note))


def other_package(project: Path) -> None:
    path = project / "build/untouched.json"
    note = json.loads(path.read_text())
    note["inputs"]["packages"]["pydantic"] = "1.0 0"
    path.write_text(json.dumps(note))


def damaged(project: Path) -> None:
    path = project / "build/untouched.json"
    path.write_text(path.read_text()[:-20])


def other_form(project: Path) -> None:
    (project / "build/untouched.json").write_text("[]")


@pytest.mark.parametrize(
    "touch",
    [
        same_size,
        same_content,
        removed,
        linked,
        edited,
        manifest_more,
        manifest_less,
        manifest_renamed,
        template,
        killed_run,
        other_tools,
        other_package,
        damaged,
        other_form,
    ],
    ids=lambda touch: touch.__name__,
)
def test_whatever_is_touched_the_export_looks_closely(
    project: Path, touch: Callable[[Path], None]
) -> None:
    noted(project)
    assert said(project) == SAID
    touch(project)
    assert said(project) is None


def test_another_day_has_to_look_since_expectations_end(project: Path) -> None:
    noted(project)
    assert said(project, "2026-11-22") is None


def test_a_link_counts_with_what_it_leads_to(project: Path) -> None:
    linked(project)
    noted(project)
    assert said(project) == SAID
    (project / "elsewhere").write_text("two")
    assert said(project) is None


def test_a_module_that_python_caches_is_not_touched_by_that(project: Path) -> None:
    noted(project)
    (project / "manifests/__pycache__").mkdir()
    (project / "manifests/__pycache__/net.pyc").write_text("")
    assert said(project) == SAID


def test_what_changed_while_the_export_was_at_work_is_not_noted(project: Path) -> None:
    began = read_filesystem_clock(project / "build")
    time.sleep(0.02)
    edited(project)
    noted(project, since=began)
    assert not (project / "build/untouched.json").exists()


def test_what_changed_just_before_is_not_noted(project: Path) -> None:
    noted(project, since=read_filesystem_clock(project / "build"))
    assert not (project / "build/untouched.json").exists()


def test_where_the_clock_of_the_files_is_not_known_nothing_is_noted(project: Path) -> None:
    assert read_filesystem_clock(project / "none") == 0
    noted(project, since=0)
    assert not (project / "build/untouched.json").exists()


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
def test_what_does_not_hold_already_is_not_noted(project: Path, change: dict[str, object]) -> None:
    noted(project, replace(basis(project), **change))  # type: ignore[arg-type]  # each fits its field
    assert not (project / "build/untouched.json").exists()
