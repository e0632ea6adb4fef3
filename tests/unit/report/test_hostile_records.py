"""No text becomes structure in files for programs: XML, pictures, CI logs.

Markdown and HTML have the same tests in `test_markdown.py` and `test_index_page.py`.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from junitparser import JUnitXml

from exporter.cli.output.terminal import print_error, print_line
from exporter.report.pages.matrix_picture import draw_matrix
from exporter.report.reports_folder import render_reports
from exporter.report.rows.cells import collect_cells
from exporter.report.site import render_site_files
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.pages.test_markdown import hostile_project

_HREF = "{http://www.w3.org/1999/xlink}href"
#: The commands that the runners of GitHub (ActionCommand.cs), Azure and TeamCity find in a log.
_COMMAND = re.compile(r"^\s*::|##\[|##vso\[|##teamcity\[", re.MULTILINE)


def tags(document: str) -> list[tuple[str, list[str]]]:
    """Return every element and the names of its attributes, as an XML parser finds them."""
    return [(node.tag, sorted(node.attrib)) for node in ET.fromstring(document).iter()]


def kinds(document: str) -> set[tuple[str, tuple[str, ...]]]:
    return {(tag, tuple(names)) for tag, names in tags(document)}


def render(text: str) -> dict[str, str]:
    project = hostile_project(text)
    files = {**render_reports(*project), **render_site_files(*project)}
    return {name: str(files[name]) for name in ("badge.svg", "junit.xml", "matrix.svg")}


_PLAIN = render("plain")


def test_there_are_many_texts() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 60


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_structure_in_a_file_for_programs(text: str) -> None:
    files = render(text)
    assert files.keys() == _PLAIN.keys()
    for name, plain in _PLAIN.items():
        assert tags(files[name]) == tags(plain)
    cases = [case for suite in JUnitXml.fromstring(files["junit.xml"].encode()) for case in suite]
    assert len(cases) == 4


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_of_a_model_becomes_structure_in_a_picture(text: str) -> None:
    manifest, run = hostile_project("plain")
    (cells,) = collect_cells(manifest, run).values()
    document, plain = draw_matrix({text: cells}), draw_matrix({"plain": cells})
    assert kinds(document) == kinds(plain)
    assert len(tags(document)) == len(tags(plain))
    for node in ET.fromstring(document).iter():
        assert node.tag.rpartition("}")[2] in {"svg", "title", "style", "rect", "text"}
        assert not {"href", _HREF, "style"}.intersection(node.attrib)
        assert not [name for name in node.attrib if name.startswith("on")]
    assert "url(" not in (ET.fromstring(document).findtext("{*}style") or "")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_a_command_of_a_ci_system(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    harmless = text.encode("utf-8", "replace").decode()
    print_line(harmless)
    print_line(f"    {harmless}")
    print_error(f"alexnet/18/cpu: {harmless}")
    shown = capsys.readouterr()
    for stream in (shown.out, shown.err):
        assert not _COMMAND.search(stream)
        assert "\x1b" not in stream


@pytest.mark.parametrize("text", ["aten::add", "off by 1e-3 :: more", "a # b ## c", "x: ::y"])
def test_a_text_without_a_command_is_unchanged(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_line(text)
    assert capsys.readouterr().out == f"{text}\n"
