"""The tutorial, the README and the interface of Python do what they say."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from exporter import api
from exporter.records.record import Status
from tests.integration.program_server import describe_servers
from tests.integration.project import ROOT, make_project, read_cells, run_exporter
from tests.integration.test_gate_output import write_uniform_results

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


def read_block(language: str) -> str:
    """Return the first code block of the README in the language."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(rf"^```{language}\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert match
    return match.group(1)


def test_the_example_is_green_with_both_exporters(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.exporter]\n")
    (tmp_path / "manifests" / "models").mkdir(parents=True)
    (tmp_path / "manifests" / "models" / "mine.py").write_text(read_block("python"))
    (tmp_path / "manifests" / "mine.toml").write_text(read_block("toml"))
    command = run_exporter(tmp_path, "export", "classifier", "--opset", "9", "--opset", "21")
    assert command.returncode == 0, command.stdout + command.stderr
    records = read_cells(tmp_path)
    assert {name: record.status for name, record in records.items()} == {
        "classifier/9/cpu": Status.PASS,
        "classifier/21/cpu": Status.PASS,
    }


#: Lets the example use the server of workers, so that it does not start its own.
USE_SERVERS = "from tests.integration.program_server import pytest_configure as use; use()"


def read_example() -> str:
    match = re.search(
        r"## Example\n.*?```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL
    )
    assert match
    return match[1]


def test_the_example_exports_accepts_and_gates(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good", bad="Raises")
    process = subprocess.run(
        [sys.executable, "-c", f"{USE_SERVERS}\n{read_example()}"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT), **describe_servers()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines[0] == "2 cells to run"
    assert sorted(lines[1:3]) == ["good/16/cpu pass", "good/17/cpu pass"]
    assert lines[3] == "green"
    # One cell is accepted, so the other cells have findings.
    assert {line.split()[0] for line in lines[4:]} >= {"good/16/cpu"}
    assert "good/17/cpu" not in {line.split()[0] for line in lines[4:]}
    assert (root / "reports/COMPATIBILITY.md").is_file()


def test_an_unknown_cell_is_not_accepted(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good")
    write_uniform_results(root, Status.PASS)
    acceptance = api.prepare_acceptance(api.load_project(root))
    with pytest.raises(KeyError, match="good/99/cpu: is in neither the manifests, the results"):
        api.accept(acceptance, cells={api.CellId(model="good", opset=99, device="cpu")})
    assert not (root / "reports/baseline").exists()


def test_all_names_of_the_interface_exist() -> None:
    assert all(hasattr(api, name) for name in api.__all__)
    documented = set(re.findall(r"^\| `(\w+)\(", (ROOT / "docs/api.md").read_text(), re.MULTILINE))
    methods = {name for name in documented if name.startswith("on_")}
    assert len(methods) == 5
    assert documented - methods <= set(api.__all__)
