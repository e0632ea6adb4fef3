from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.pages.markdown import MARK
from exporter.report.reports_folder import find_stale_pages, write_files, write_reports
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

FILES = {
    "COMPATIBILITY.md": MARK + "table\n",
    "index.html": "page\n",
    "models/alexnet.md": MARK + "page\n",
}


def test_every_page_is_written(tmp_path: Path) -> None:
    write_files(tmp_path / "reports", FILES)
    for name, text in FILES.items():
        assert (tmp_path / "reports" / name).read_text() == text
    write_files(tmp_path / "reports", FILES)
    assert len(list((tmp_path / "reports").rglob("*"))) == 5, (
        "the pages, their folder and the attributes"
    )


@pytest.mark.parametrize(
    ("name", "conflicts"),
    [
        ("COMPATIBILITY.md", False),
        ("models/alexnet.md", False),
        ("badge.svg", False),
        ("baseline.json", True),
        ("OPERATORS.md", True),
    ],
)
def test_merges_of_pages_have_no_conflicts(tmp_path: Path, name: str, conflicts: bool) -> None:
    def git(*arguments: str) -> int:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path))
        return subprocess.run(
            ["git", *settings, *arguments], check=False, capture_output=True
        ).returncode

    def commit(text: str) -> None:
        path = tmp_path / "reports" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        assert git("add", ".") == git("commit", "-qm", text) == 0

    write_files(tmp_path / "reports", FILES)
    git("init", "-qb", "main")
    commit("one\n")
    git("checkout", "-qb", "branch")
    commit("two\n")
    git("checkout", "-q", "main")
    commit("three\n")
    assert (git("merge", "-q", "branch") != 0) is conflicts


def test_attributes_of_the_project_are_kept(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    lines = (tmp_path / ".gitattributes").read_text().splitlines()[1:]
    assert all(line.endswith(" merge=union linguist-generated") for line in lines)
    assert not any("baseline" in line for line in lines)
    (tmp_path / ".gitattributes").write_text("*.svg binary\n")
    write_files(tmp_path, FILES)
    assert (tmp_path / ".gitattributes").read_text() == "*.svg binary\n"


def test_only_pages_of_removed_models_are_deleted(tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES, "models/gone.md": MARK + "old\n"})
    unrelated = {
        "models/README.md": "written by a person\n",
        "models/notes.md": "# notes\n\n" + MARK,
        "models/gone.txt": MARK,
        "baseline.json": "{}",
        "other/gone.md": MARK,
    }
    for name, text in unrelated.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "models" / "folder.md").mkdir()
    (tmp_path / "models" / "link.md").symlink_to(tmp_path / "models" / "gone.txt")
    write_files(tmp_path, FILES)
    assert not (tmp_path / "models" / "gone.md").exists()
    for name, text in unrelated.items():
        assert (tmp_path / name).read_text() == text
    assert (tmp_path / "models" / "folder.md").is_dir()
    assert (tmp_path / "models" / "link.md").is_symlink()


@pytest.fixture
def project(tmp_path: Path) -> tuple[Manifest, RunRecord, Path]:
    """Create the reports folder of a project, as version 1.0 wrote it."""
    manifest = make_manifest(make_spec("net", opsets=(18,)))
    settings = manifest.project.model_copy(update={"root": str(tmp_path)})
    manifest = manifest.model_copy(update={"project": settings})
    reports = tmp_path / "reports"
    write_files(reports, FILES)
    (reports / "badges").mkdir()
    badge = '{\n  "schemaVersion": 1,\n  "label": "net"\n}\n'
    for name, text in {
        "index.html": "<!-- Written by `exporter report` -->",
        "junit.xml": '<testsuites name="exporter">',
        "results.csv": "model,opset,device,status,stage,check\n",
        "badge.json": badge,
        "badges/net.json": badge,
        "badges/net.svg": "<!-- Written by `exporter report` from the results -->\n",
    }.items():
        (reports / name).write_text(text)
    return manifest, make_run(make_record("net/18/cpu")), reports


def test_a_file_of_version_1_0_is_written_or_removed_with_a_warning(
    project: tuple[Manifest, RunRecord, Path],
) -> None:
    manifest, run, reports = project
    written, removed = write_reports(manifest, run)
    assert written.startswith("warning: reports: index.html, junit.xml: written because they")
    assert "`exporter report --site FOLDER`" in written
    assert removed.startswith("warning: reports: removed 4 files that no report writes any more")
    names = {path.name for path in reports.iterdir()}
    assert names == {
        ".gitattributes",
        "COMPATIBILITY.md",
        "badge.svg",
        "index.html",
        "junit.xml",
        "models",
    }
    assert 'tests="1"' in (reports / "junit.xml").read_text()
    assert write_reports(manifest, run) == []
    assert find_stale_pages(manifest, run) == ()
    (reports / "junit.xml").write_text('<testsuites name="exporter" tests="7">')
    assert find_stale_pages(manifest, run) == ("junit.xml",)
    (reports / "junit.xml").unlink()
    (reports / "index.html").unlink()
    assert write_reports(manifest, run) == []
    assert not (reports / "junit.xml").exists()
    (reports / "junit.xml").write_text('<testsuites name="exporter">')
    assert len(write_reports(manifest, run)) == 1, "from git, with old results"
    assert 'tests="1"' in (reports / "junit.xml").read_text()


def test_files_of_the_user_with_the_names_of_version_1_0_stay(
    project: tuple[Manifest, RunRecord, Path], tmp_path: Path
) -> None:
    manifest, run, reports = project
    for name in ("results.csv", "badge.json", "junit.xml", "badges/own.svg"):
        (reports / name).write_text("of a person")
    write_reports(manifest, run)
    for name in ("results.csv", "badge.json", "junit.xml", "badges/own.svg"):
        assert (reports / name).read_text() == "of a person"
    outside = tmp_path / "outside"
    (reports / "badges").rename(outside)
    (outside / "net.svg").write_text("<!-- Written by `exporter report` from the results -->\n")
    (reports / "badges").symlink_to(outside)
    (reports / "badge.svg").unlink()
    write_reports(manifest, run)
    assert (outside / "net.svg").exists()


@pytest.mark.parametrize("folder", ["models", "plugins/a"])
def test_pages_are_not_written_through_a_symlink(folder: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "reports" / folder).parent.mkdir(parents=True)
    (tmp_path / "reports" / folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ExporterError, match="is a symlink") as caught:
        write_files(tmp_path / "reports", {**FILES, "plugins/a/x.txt": "x"})
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_equal_page_is_not_written_and_a_symlink_is_replaced(
    tmp_path: Path,
) -> None:
    files = {"COMPATIBILITY.md": MARK + "same", "models/a.md": MARK + "same"}
    write_files(tmp_path, files)
    before = (tmp_path / "COMPATIBILITY.md").stat().st_ctime_ns
    page, elsewhere = tmp_path / "models/a.md", tmp_path / "elsewhere"
    page.rename(elsewhere)
    page.symlink_to(elsewhere)
    write_files(tmp_path, files)
    assert (tmp_path / "COMPATIBILITY.md").stat().st_ctime_ns == before
    assert not page.is_symlink()
    write_files(tmp_path, {**files, "COMPATIBILITY.md": MARK + "more"})
    assert (tmp_path / "COMPATIBILITY.md").read_text() == MARK + "more"


def test_files_of_removed_plugins_are_deleted(tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES, "plugins/a/x.bin": b"\x00", "plugins/b/y.txt": "text"})
    assert (tmp_path / "plugins/a/x.bin").read_bytes() == b"\x00"
    write_files(tmp_path, {**FILES, "plugins/b/y.txt": "text"})
    assert not (tmp_path / "plugins/a/x.bin").exists()
    assert (tmp_path / "plugins/b/y.txt").read_text() == "text"
