"""Each block of docs/tutorial.md is written or run in an empty folder, in its order."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.integration.project import ROOT, run_exporter

PAGE = (ROOT / "docs/tutorial.md").read_text("utf-8")
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def run_commands(root: Path, text: str) -> int:
    """Run the commands of a block; each has the lines of its output that follow it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    for part in parts:
        line, *expected = part.splitlines()
        command, _, comment = line.partition("  # exit code ")
        name, *arguments = shlex.split(command)
        assert name == "exporter"
        ran = run_exporter(root, *arguments)
        output = ran.stdout + ran.stderr
        assert ran.returncode == int(comment or 0), output
        for shown in expected:
            assert shown in output, line
    return len(parts)


@pytest.mark.timeout(600)
def test_the_tutorial_runs(tmp_path: Path) -> None:
    count = 0
    for language, title, text in BLOCK.findall(PAGE):
        if language == "console":
            count += run_commands(tmp_path, text)
            continue
        assert title, text
        path = tmp_path / title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        # The script of the introduction is an example of the past; its syntax is checked.
        checks = {"python": ast.parse, "toml": tomllib.loads, "yaml": yaml.safe_load}
        checks[language](text)
    assert count == 10
    assert (tmp_path / "build/encoder/18.onnx").is_file()


def test_a_block_that_differs_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_commands(tmp_path, "$ exporter guide E-crash\nnothing of this kind\n")
    with pytest.raises(AssertionError):
        run_commands(tmp_path, "$ exporter guide E-crash  # exit code 1\n")
