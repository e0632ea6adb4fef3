"""An export selects its engine, and stops at the first red model if it must."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from exporter.cache.states import read_source_state
from exporter.cli import entry_point
from exporter.core.errors import ExitCode, ExporterError, StoppedByFailure
from exporter.export_options import ExportOptions, select_engine
from exporter.manifest import Project, load_project
from exporter.pipeline.build_folder import BuildFolder, StoredRecords
from exporter.planning import Selection
from exporter.planning.plan import Shard, make_plan
from exporter.records.record import Source, Status
from tests.integration.project import format_entry, run_git
from tests.unit.factory import make_manifest, make_record, make_spec

MANIFEST = make_manifest(make_spec("a", opsets=(17, 18)))
PLAN = make_plan(MANIFEST)


def test_another_build_folder_uses_the_environments_of_the_project(tmp_path: Path) -> None:
    project = ExportOptions(build=tmp_path / "other").adapt(MANIFEST).project
    assert project.build == str(tmp_path / "other")
    assert project.environments_folder == MANIFEST.project.environments_folder
    assert ExportOptions().adapt(MANIFEST) is MANIFEST


def test_the_command_exits_as_for_red_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise StoppedByFailure("red/18/cpu")

    monkeypatch.setattr(entry_point, "exporter", command)
    assert entry_point.run([]) == ExitCode.RED
    assert "stopped at red/18/cpu; finished results are kept" in capsys.readouterr().err


def make_project(**values: object) -> Project:
    return make_manifest(make_spec("net")).project.model_copy(update=values)


def test_an_option_takes_precedence() -> None:
    assert select_engine(make_project(), ExportOptions()).engine == "local"
    project = make_project(engine="c.py:make", lines={"store": 3, "engine": 4})
    assert select_engine(project, ExportOptions()) == project
    chosen = select_engine(project, ExportOptions(engine="tcp://h:1"))
    assert (chosen.engine, chosen.lines) == ("tcp://h:1", {"store": 3})


def test_a_shard_cannot_run_on_a_cluster() -> None:
    options = ExportOptions(engine="dask", shard=Shard(index=1, count=2))
    with pytest.raises(ExporterError, match="--shard 1/2: a cluster divides the cells itself"):
        select_engine(make_project(), options)
    assert select_engine(make_project(), ExportOptions(shard=Shard(index=1, count=2)))


ENTRIES = {id: format_entry(id, f"{id}.py:Net", opsets=18) for id in ("a", "b")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with the project in a folder; `b` is red."""
    root = tmp_path / "repository" / "part"
    (root / "manifests").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.exporter]\n")
    (root / ".gitignore").write_text("build\n")
    (root / "manifests/nets.toml").write_text("format = 1\n" + "".join(ENTRIES.values()))
    for id in ("a", "b"):
        (root / f"manifests/{id}.py").write_text("class Net: ...\n")
    (root.parent / "shared.py").write_text("size = 1\n")
    run_git(root.parent, "init", "-q", "-b", "main")
    run_git(root.parent, "add", ".")
    run_git(root.parent, "commit", "-qm", "one")
    write_records(root)
    return root


def write_records(root: Path) -> None:
    manifest = load_project(root)
    stored = StoredRecords(BuildFolder.from_project(manifest.project))
    for planned in make_plan(manifest).cells:
        id = planned.cell.model
        files = (
            f"manifests/{id}.py",
            "manifests/*.py?a,torch" if id == "a" else f"manifests/{id}.bin",
        )
        record = make_record(
            planned.cell,
            Status.FAIL if id == "b" else Status.PASS,
            sources=[Source(file=file, state=read_source_state(root / file)) for file in files],
            packages={"../shared.py": "file 0"} if id == "b" else {},
        )
        is_own = stored.build.owns(planned.cell)
        (stored.get_model(id).write if is_own else stored.write_to_part)(record)


def select(root: Path, **options: object) -> list[str]:
    selection = Selection(**options)  # type: ignore[arg-type]
    assert not selection.is_everything
    plan = ExportOptions(selection=selection).make_plan(load_project(root), os.environ)
    return [planned.cell.model for planned in plan.selected]


def test_red_cells(project: Path) -> None:
    assert select(project, last_failed=True) == ["b"]
    with pytest.raises(ExporterError, match="no selected cell is red in its last result"):
        select(project, last_failed=True, patterns=("a",))


def test_a_cell_with_an_expected_failure_is_not_red(project: Path) -> None:
    manifest = project / "manifests/nets.toml"
    expected = "expect = [{ stage = 'parity', reason = 'known' }]\n"
    manifest.write_text(manifest.read_text() + expected)
    with pytest.raises(ExporterError, match="no selected cell is red"):
        select(project, last_failed=True)


@pytest.mark.parametrize(
    ("file", "text", "models"),
    [
        ("manifests/a.py", "class Net: x = 1\n", ["a"]),
        ("manifests/b.bin", "weights\n", ["b"]),  # did not exist, and is not tracked
        ("manifests/torch.py", "", ["a"]),  # an import of `a` searched for it
        ("manifests/other.py", "", []),
        ("../shared.py", "size = 2\n", ["b"]),
        ("notes.md", "text\n", []),
        ("manifests/nets.toml", f"format = 1\n# text\n{ENTRIES['a']}", []),
        ("manifests/nets.toml", "format = 1\n" + ENTRIES["a"].replace("4]", "5]"), ["a"]),
        (
            "manifests/nets.toml",
            "format = 1\n" + ENTRIES["a"].replace("= 18", "= [18, 19]"),
            ["a"],
        ),
    ],
    ids=[
        "source",
        "new data",
        "module",
        "other module",
        "outside",
        "other",
        "comment",
        "entry",
        "opset",
    ],
)
@pytest.mark.parametrize("is_committed", [False, True])
def test_changed_cells(
    project: Path, file: str, text: str, models: list[str], is_committed: bool
) -> None:
    (project / file).write_text(text)
    run_git(project, "checkout", "-qb", "topic")
    if is_committed:
        run_git(project, "add", ":/")
        run_git(project, "commit", "-qm", "two")
    if models:
        assert select(project, changed="main") == models
    else:
        with pytest.raises(ExporterError, match=r"no selected cell has a change since main \("):
            select(project, changed="main")


def test_a_cell_without_a_record_and_one_with_another_device_are_changes(project: Path) -> None:
    stored = StoredRecords(BuildFolder.from_project(load_project(project).project))
    next(iter(stored.build.model_folder("a").path.rglob("*.json"))).unlink()
    assert select(project, changed="HEAD") == ["a"]
    device = '[tool.exporter.devices.cpu]\nruntime = "onnxruntime"\nproviders = ["X"]\n'
    (project / "pyproject.toml").write_text(f"[tool.exporter]\n{device}")
    assert select(project, changed="HEAD") == ["a", "b"]


def test_a_toolchain_is_compared_with_the_revision(project: Path) -> None:
    settings = (
        '[tool.exporter]\ndefaults.devices = ["cpu@old"]\n'
        '[tool.exporter.toolchains.old]\nrequirements = ["onnxscript==0.6.{}"]\n'
    )
    (project / "pyproject.toml").write_text(settings.format(2))
    run_git(project, "commit", "-qam", "two")
    write_records(project)
    with pytest.raises(ExporterError, match="no selected cell has a change since HEAD"):
        select(project, changed="HEAD")
    (project / "pyproject.toml").write_text(settings.format(3))
    assert select(project, changed="HEAD") == ["a", "b"]


@pytest.mark.parametrize("revision", ["no-such-branch", "--output=x"])
def test_an_unknown_revision_is_an_error(project: Path, revision: str) -> None:
    with pytest.raises(ExporterError, match="--changed: "):
        select(project, changed=revision)
