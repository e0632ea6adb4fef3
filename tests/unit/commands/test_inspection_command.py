"""`exporter list`, and the table of `--inputs`, which needs no PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from exporter.cli.entry_point import run
from exporter.commands.inspection_command import schema
from tests.unit.manifest.projects import make_project

_NET = """format = 1

[models.net]
source = "models/vision.py:AlexNet"
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = "13..15"
capture = "script"
inputs = [
  { name = "x", shape = ["batch", 3] },
  { name = "k{i}", at = "kwargs.past[{i}]", shape = [3], repeat = { i = 2 } },
  { name = "n", at = "args[2]", shape = [], dtype = "int64", fill = { value = 3 }, scalar = true },
]
constants = [{ at = "args[1]" }]
containers = [{ at = "kwargs.past", type = "list" }]

[models.made]
source = "models/vision.py:AlexNet"
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = 15
inputs_from = "models/vision.py:make"
inputs = [{ name = "x", shape = ["batch", 3] }]
"""


def run_list(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    make_project(root, {"manifests/net.toml": _NET})
    assert run(["list", *words, "--root", str(root)]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_inputs_have_the_order_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_list(tmp_path, capsys, "net", "--inputs") == [
        ["net"],
        ["INPUT", "GOES", "TO", "DTYPE", "SHAPE", "VALUES"],
        ["x", "args[0]", "float32", "[batch,", "3]", "normal"],
        ["k0", "kwargs.past[0]", "float32", "[3]", "normal"],
        ["k1", "kwargs.past[1]", "float32", "[3]", "normal"],
        ["n", "args[2]", "int64", "a", "number", "value", "3"],
        ["args[1]", "always", "None"],
        ["kwargs.past", "a", "list"],
    ]


def test_inputs_from_a_function_have_no_position_in_the_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run_list(tmp_path, capsys, "made", "--inputs")
    assert [
        "x",
        "tensor",
        "0",
        "of",
        "the",
        "call",
        "float32",
        "[batch,",
        "3]",
        "models/vision.py:make",
    ] in rows


def test_models_and_cells_are_listed_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run_list(tmp_path, capsys)
    assert rows[0] == ["2", "models,", "4", "cells"]


COMMITTED = Path(__file__).resolve().parents[3] / "docs" / "manifest.schema.json"


def test_the_schema_is_that_of_the_documentation() -> None:
    result = CliRunner().invoke(schema, standalone_mode=False)
    assert result.return_value == 0
    assert result.output == COMMITTED.read_text(encoding="utf-8")


def test_a_plan_shows_no_cell_that_nobody_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _NET.replace('opsets = "13..15"', "opsets = [999]")
    make_project(tmp_path, {"manifests/net.toml": text})
    for command in ("plan", "list"):
        assert run([command, "--root", str(tmp_path)]) == 0
        count, *rows = capsys.readouterr().out.splitlines()
        assert "1 cell" in count  # of the other entry
        (row,) = (row for row in rows if row.startswith("net"))
        assert "invalid" in row
        assert "18" not in row
        assert "cpu" not in row
