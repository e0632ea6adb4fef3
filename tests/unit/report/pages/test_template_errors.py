"""An error in a template of the project is a problem with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.report.pages.templates import render


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
