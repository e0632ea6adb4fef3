"""Annotations of a GitHub job: at the right line, escaped, within GitHub's limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from exporter.cli.entry_point import run
from exporter.cli.output.github import (
    Annotation,
    append_to_step_summary,
    format_commands,
    shorten_page,
)
from exporter.core.errors import ExitCode, Location

ROOT = Path("/work/checkout/project")
WORKSPACE = Path("/work/checkout")


def annotation(
    message: str = "off", level: Literal["error", "warning"] = "error", title: str = "net/18/cpu"
) -> Annotation:
    location = Location(file="manifests/nets.toml", line=14)
    return Annotation(level=level, title=title, message=message, location=location)


def lines(*annotations: Annotation) -> list[str]:
    return list(format_commands(annotations, ROOT, WORKSPACE))


def test_the_annotation_is_at_the_line_of_the_entry_in_the_checkout() -> None:
    assert lines(annotation()) == [
        "::error title=net/18/cpu,file=project/manifests/nets.toml,line=14::off"
    ]
    bare = Annotation(level="warning", title="gone", message="it is")
    assert lines(bare) == ["::warning title=gone::it is"]


def test_text_cannot_end_a_property_or_begin_another_command() -> None:
    (line,) = lines(annotation("100%\n::error::forged", title="a,line=1::b%0A"))
    assert line.count("\n") == 0
    assert line == (
        "::error title=a%2Cline=1%3A%3Ab%250A,file=project/manifests/nets.toml,line=14"
        "::100%25 ::error::forged"
    )


def test_the_tenth_of_more_annotations_counts_the_rest() -> None:
    ten = [annotation(str(index)) for index in range(10)]
    assert len(lines(*ten)) == 10
    many = lines(*ten, *[annotation("more")] * 5, annotation("soft", "warning"))
    errors = [line for line in many if line.startswith("::error")]
    assert len(errors) == 10
    assert errors[-1] == "::error title=And 6 more::GitHub shows 10; the summary has all"
    assert len(many) == 11


def test_a_page_is_cut_at_a_line_by_bytes() -> None:
    page = "".join(f"| ✅ {index} |\n" for index in range(1000))
    assert shorten_page(page, 100_000) == page
    cut = shorten_page(page, 5000)
    assert len(cut.encode()) <= 5000
    first, _, rest = cut.partition("\n\n… ")
    assert page.startswith(first + "\n")
    count = int(rest.split()[0])
    assert first.count("\n") + 1 + count == 1000


@pytest.mark.parametrize("kind", ["folder", "missing", "pipe", "file"])
def test_a_summary_that_cannot_be_written_changes_no_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    path = tmp_path / "summary"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "missing":
        path = tmp_path / "no/summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/net.toml").write_text("format = ")
    code = run(["check", "--root", str(tmp_path)])
    assert code == ExitCode.MANIFEST
    output = capsys.readouterr().err
    assert ("GITHUB_STEP_SUMMARY: cannot be written" in output) is (kind != "file")
    append_to_step_summary("\udcff")
