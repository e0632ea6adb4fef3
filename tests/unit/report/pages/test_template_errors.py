"""Templates: an error in one of the project has its line, and filters format values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.report.pages.templates import read_template_file, render


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ [].pop() }}", "IndexError: pop from empty list"),
        ("{{ files.a.b }}", "has no attribute"),
        ("{{ range(9)|random(3) }}", "takes"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError: maximum recursion"),
        ("{{ {}['a']['b'] }}", ""),
        ("{% if %}", "Expected an expression"),
    ],
)
def test_an_error_of_a_template_has_its_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "catalog.md.jinja").write_text(f"first\n{text}\n")
    with pytest.raises(ExporterError, match="the template cannot be rendered") as caught:
        render("catalog.md", tmp_path, files=[])
    assert caught.value.exit_code is ExitCode.MANIFEST
    (found,) = caught.value.problems
    assert problem in found.message
    assert found.location is not None
    assert found.location.line == 2


def test_a_template_is_read_in_the_repository_only(tmp_path: Path) -> None:
    folder, secret = tmp_path / "project/templates", tmp_path / "secret"
    folder.mkdir(parents=True)
    (tmp_path / "project/.git").mkdir()
    secret.write_text("password")
    (folder / "shared").write_text("{{ files|length }} of ours")
    path = folder / "catalog.md.jinja"
    path.symlink_to("shared")
    assert render("catalog.md", folder, files=[]) == "0 of ours"
    for target in (secret, "/dev/zero", "/proc/self/environ"):
        path.unlink()
        path.symlink_to(target)
        for read in (
            lambda: render("catalog.md", folder, files=[]),
            lambda: read_template_file(path.name, folder),
        ):
            with pytest.raises(ExporterError, match="is a symlink out of the rep") as caught:
                read()
            assert caught.value.exit_code is ExitCode.MANIFEST
            assert str(path) in str(caught.value)
    path.unlink()
    path.write_text("{% include '../../secret' %}")
    with pytest.raises(ExporterError, match="secret"):
        render("catalog.md", folder, files=[])


def test_a_template_that_is_a_pipe_ends_with_a_message(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "catalog.md.jinja")
    with pytest.raises(ExporterError, match="cannot be read: is not a regular file"):
        render("catalog.md", tmp_path, files=[])
    (tmp_path / "catalog.md.jinja").unlink()
    (tmp_path / "catalog.md.jinja").symlink_to("/dev/zero")
    with pytest.raises(ExporterError, match="cannot be read: is not a regular file"):
        render("catalog.md", tmp_path, files=[])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("244 MB", "244&nbsp;MB"),
        ("61 100 840", "61&nbsp;100&nbsp;840"),
        ("≤ 1e-4", "≤&nbsp;1e&#8209;4"),
        ("1.5 ms, 2 ms", "1.5&nbsp;ms, 2&nbsp;ms"),
        ("12 MB (-25%)", "12&nbsp;MB (-25%)"),
        ("samples 3", "samples 3"),
        ("2 samples of 10 sizes", "2 samples of 10 sizes"),
        ("<b> 3 MB|", "&#60;b&#62; 3&nbsp;MB&#124;"),
    ],
)
def test_no_line_breaks_inside_of_a_number(tmp_path: Path, value: str, shown: str) -> None:
    (tmp_path / "catalog.md.jinja").write_text("{{ files|whole }}")
    assert render("catalog.md", tmp_path, files=value) == shown
