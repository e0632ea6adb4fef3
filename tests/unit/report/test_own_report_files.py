"""A report replaces and deletes only files that a report wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.report.pages.markdown import MARK
from exporter.report.reports_folder import render_reports, require_own_files, write_files
from exporter.report.site import render_site, render_site_files
from tests.unit.factory import make_manifest, make_run, make_spec

FILES = {"COMPATIBILITY.md": MARK + "table\n", "models/alexnet.md": MARK + "page\n"}
PAGE = '<!doctype html>\n<meta charset="utf-8">\n'


@pytest.mark.parametrize(
    "name",
    ["COMPATIBILITY.md", "index.html", "junit.xml", "badge.svg", "matrix.svg"],
)
def test_a_file_of_the_user_is_not_replaced(tmp_path: Path, name: str) -> None:
    manifest, run = make_manifest(make_spec("a")), make_run()
    files = {**render_reports(manifest, run), **render_site_files(manifest, run)}
    (tmp_path / name).write_text(PAGE)
    with pytest.raises(ExporterError, match=f"{name}: was not written by `exporter rep") as caught:
        write_files(tmp_path, files)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == PAGE
    (tmp_path / name).write_text("")
    for _ in range(2):
        write_files(tmp_path, files)
    files = {**files, name: str(files[name]) + "\n"}
    write_files(tmp_path, files)
    assert (tmp_path / name).read_text() == files[name]


def test_all_files_of_the_user_are_named(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name in ("models/a.md", "COMPATIBILITY.md"):
        (tmp_path / name).write_text("# of a person\n")
    with pytest.raises(ExporterError) as caught:
        write_files(tmp_path, {"models/a.md": MARK, "COMPATIBILITY.md": MARK, "other.md": MARK})
    assert len(caught.value.problems) == 2


def test_an_index_of_a_template_without_a_mark_is_replaced(tmp_path: Path) -> None:
    for text in ("one", "two"):
        write_files(tmp_path, {"COMPATIBILITY.md": MARK, "index.html": PAGE + text})
    assert (tmp_path / "index.html").read_text() == PAGE + "two"


def test_files_of_the_user_in_the_folder_of_a_plugin_stay(tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES, "plugins/a/x.txt": "x", "plugins/a/y.txt": "y"})
    (tmp_path / "plugins/a/notes.md").write_text("precious")
    (tmp_path / "plugins/b").mkdir()
    (tmp_path / "plugins/b/notes.md").write_text("precious")
    (tmp_path / "plugins/b/.written").write_text("../a/notes.md\n../../COMPATIBILITY.md\n")
    write_files(tmp_path, {**FILES, "plugins/a/y.txt": "y"})
    assert {path.name for path in (tmp_path / "plugins/a").iterdir()} == {
        ".written",
        "notes.md",
        "y.txt",
    }
    assert (tmp_path / "plugins/b/notes.md").exists()
    write_files(tmp_path, FILES)
    assert [path.name for path in (tmp_path / "plugins/a").iterdir()] == ["notes.md"]
    assert (tmp_path / "COMPATIBILITY.md").exists() is ("COMPATIBILITY.md" in FILES)


def test_a_page_of_a_site_has_a_sign(tmp_path: Path) -> None:
    site = render_site({"index.html": MARK, "COMPATIBILITY.md": "# a\n"}, "")
    for name, content in site.items():
        (tmp_path / name).write_text(str(content))
    require_own_files(tmp_path, site)
    (tmp_path / "COMPATIBILITY.html").write_text(PAGE)
    with pytest.raises(ExporterError, match="was not written by `exporter report`"):
        require_own_files(tmp_path, ["COMPATIBILITY.html"])
