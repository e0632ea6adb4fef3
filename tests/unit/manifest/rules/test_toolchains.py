"""Tables of toolchains, the devices that use them, and their problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.commands.toolchains import select_suffix
from exporter.core.errors import ExporterError
from exporter.manifest import Manifest, load_project
from exporter.planning import Selection
from exporter.planning.plan import make_plan
from tests.unit.manifest.projects import make_project

ENTRY = """format = 1
[models.net]
source = "net.py:Net"
opsets = 18
devices = ["cpu", "cpu@old"]
inputs = [{ name = "x", shape = [2] }]
outputs = [{ name = "y", shape = [2] }]
"""
TOOLCHAIN = """
[tool.exporter.toolchains.old]
requirements = ["onnxscript==0.6.2"]
"""


def load(root: Path, entry: str = ENTRY, settings: str = TOOLCHAIN) -> Manifest:
    files = {"manifests/net.py": "Net = None\n", "manifests/net.toml": entry}
    return load_project(make_project(root, files | {"pyproject.toml": settings}))


def list_cells(manifest: Manifest, selection: Selection) -> list[str]:
    return [str(planned.cell) for planned in make_plan(manifest, selection).selected]


def test_a_device_has_the_settings_of_its_base_and_a_toolchain(tmp_path: Path) -> None:
    project = load(tmp_path).project
    device = project.find_device("cpu@old")
    assert (device.name, device.runtime) == ("cpu@old", "onnxruntime")
    assert device.job_environment is not None
    assert device.job_environment.requirements == ("onnxscript==0.6.2",)
    assert device.job_environment.adds_to_current
    assert project.find_device("cpu").job_environment is None


def test_a_moved_table_is_the_same_device(tmp_path: Path) -> None:
    device = load(tmp_path).project.find_device("cpu@old")
    moved = load(tmp_path, settings=f"\n\n{TOOLCHAIN}").project.find_device("cpu@old")
    changed = load(tmp_path, settings=TOOLCHAIN.replace("6.2", "6.1")).project
    assert device == moved
    assert device.identity != changed.find_device("cpu@old").identity


def test_patterns_select_suffixs(tmp_path: Path) -> None:
    manifest = load(tmp_path)
    assert list_cells(manifest, Selection(patterns=("*/*/*@old",))) == ["net/18/cpu@old"]
    assert list_cells(manifest, Selection(patterns=("net/18/cpu",))) == ["net/18/cpu"]
    assert list_cells(manifest, Selection(devices=("cpu@old",))) == ["net/18/cpu@old"]
    assert len(list_cells(manifest, Selection())) == 2


def test_the_manifest_of_one_toolchain_has_its_cells_only(tmp_path: Path) -> None:
    manifest = load(tmp_path)
    old, current = select_suffix(manifest, "old"), select_suffix(manifest, "current")
    assert list_cells(old, Selection()) == ["net/18/cpu@old"]
    assert list_cells(current, Selection()) == ["net/18/cpu"]
    assert (old.project.active_suffix, current.project.active_suffix) == ("old", "")


@pytest.mark.parametrize(
    ("item", "skipped"),
    [
        ('device = "*@current", reason = "r"', ["net/18/cpu"]),
        ('device = "*@old", reason = "r"', ["net/18/cpu@old"]),
        ('device = "cpu", reason = "r"', ["net/18/cpu", "net/18/cpu@old"]),
    ],
)
def test_a_condition_may_name_a_toolchain(item: str, skipped: list[str], tmp_path: Path) -> None:
    plan = make_plan(load(tmp_path, f"{ENTRY}skip = [{{ {item} }}]\n"))
    assert [str(planned.cell) for planned in plan.cells if planned.skip] == skipped


def find_problems(root: Path, entry: str, settings: str) -> list[str]:
    with pytest.raises(ExporterError) as caught:
        load(root, entry, settings)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("settings", "line", "message"),
    [
        (TOOLCHAIN.replace(".old]", '."Old one"]'), 2, "expected a name of a-z, 0-9"),
        (TOOLCHAIN.replace(".old]", '."a@b"]'), 2, "expected a name of a-z, 0-9"),
        (TOOLCHAIN.replace(".old]", ".current]"), 2, "is the name of the project's own packages"),
        (TOOLCHAIN.replace("==", "="), 3, "expected a requirement such as"),
        (TOOLCHAIN.replace('"onnxscript==0.6.2"', ""), 3, "expected at least one item"),
        (TOOLCHAIN + 'pyton = "3"\n', 4, "unknown key"),
        (f'[tool.exporter]\ndefaults.devices = ["cpu@ald"]\n{TOOLCHAIN}', 2, "did you mean 'old'?"),
    ],
)
def test_problems_of_settings_have_a_line(
    settings: str, line: int, message: str, tmp_path: Path
) -> None:
    problems = find_problems(tmp_path, ENTRY, settings)
    assert any(f"pyproject.toml:{line}: " in each and message in each for each in problems), (
        problems
    )


@pytest.mark.parametrize(
    ("entry", "line", "message"),
    [
        (
            ENTRY.replace("cpu@old", "cpu@odl"),
            5,
            '"cpu@odl": no toolchain has the name "odl"; did you mean \'old\'?',
        ),
        (
            ENTRY.replace("cpu@old", "cpu@torch3"),
            5,
            "add [tool.exporter.toolchains.torch3] with `requirements`",
        ),
        (ENTRY.replace("cpu@old", "openvono@old"), 5, 'no device has the name "openvono"; did'),
        (
            ENTRY + 'expect = [{ device = "*@odl", stage = "load", reason = "r" }]\n',
            8,
            "\"*@odl\" matches no device of cpu and cpu@old; did you mean '*@old'?",
        ),
        (ENTRY + 'skip = [{ toolchain = "old", reason = "r" }]\n', 8, 'use `device = "*@NAME"`'),
    ],
)
def test_problems_of_entries_have_a_line(
    entry: str, line: int, message: str, tmp_path: Path
) -> None:
    problems = find_problems(tmp_path, entry, TOOLCHAIN)
    assert any(f"net.toml:{line}: " in each and message in each for each in problems), problems


def test_an_invalid_table_is_one_problem(tmp_path: Path) -> None:
    assert len(find_problems(tmp_path, ENTRY, TOOLCHAIN.replace("==", "="))) == 1
