"""Each red record has a stable code, and each code has a section with an example and a fix."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from onnx import TensorShapeProto

from exporter.checks.structure_checks import _compare_dimension
from exporter.cli.entry_point import exporter, run
from exporter.core.check_table import CHECKS, FAILURE_CODES
from exporter.manifest.syntax.releases import (
    RELEASES,
    ReleaseLimits,
    find_first_release,
    find_older_release,
)
from exporter.records.record import Blame, Culprit, MissingOperator, Stage, Status
from tests.unit.factory import make_record

DOCS = Path(__file__).parents[3] / "docs"
FIXED = TensorShapeProto.Dimension(dim_value=5)
NAMED = TensorShapeProto.Dimension(dim_param="rows")
BESSEL = MissingOperator(operator="aten::special_bessel_j0", count=1)


def make_blame(culprit: Culprit) -> Blame:
    return Blame(culprit=culprit, sample="main", evidence=())


def compare(dimension: TensorShapeProto.Dimension) -> str:
    return _compare_dimension("output 'y'", 0, dimension, "batch")


FAILURES: list[tuple[str, dict[str, Any]]] = [
    ("E-unexpected-pass", {"status": "xpass"}),
    ("E-killed", {"status": "killed", "stage": Stage.CONVERT}),
    ("E-timeout", {"status": "timeout", "stage": Stage.CAPTURE}),
    ("E-crash", {"status": "crash", "stage": Stage.LOAD}),
    ("E-entry", {"stage": Stage.SOURCE, "message": "manifests/a.toml:3: models.a.opsets: x"}),
    ("E-import", {"stage": Stage.SOURCE, "message": "ModuleNotFoundError: No module named 'x'"}),
    ("E-import", {"stage": Stage.SOURCE, "message": "SyntaxError: invalid syntax (a.py, line 1)"}),
    ("E-weights", {"stage": Stage.SOURCE, "message": "w.bin: the sha256 is 0, expected 1"}),
    ("E-source", {"stage": Stage.SOURCE, "message": "RuntimeError: mat1 and mat2"}),
    ("E-contract", {"status": "fail", "stage": Stage.SOURCE, "message": "output 'y' is [2]"}),
    ("E-capture", {"stage": Stage.CAPTURE, "message": "data-dependent"}),
    ("E-operator", {"stage": Stage.CONVERT, "missing": (BESSEL,)}),
    ("E-convert", {"stage": Stage.CONVERT, "message": "2 GB"}),
    ("E-chain", {"stage": Stage.CONVERT, "message": "the link 'a' is not green: a/17/cpu is fail"}),
    ("E-chain", {"check": "axes", "message": "h=3: the link 'a' is the first that is wrong: y"}),
    ("E-chain", {"check": "parity", "message": "each link is right on what it gets, and the"}),
    ("E-pass", {"stage": Stage.CONVERT, "message": "pass 1 of 2 (p.py:slim): raises ValueError"}),
    ("E-pass", {"check": "parity", "message": "pass 2 of 2 (p.py:slim) breaks the file: error"}),
    ("E-axis-fixed", {"check": "signature", "message": compare(FIXED)}),
    ("E-axis-name", {"check": "signature", "message": compare(NAMED)}),
    ("E-axis-name", {"check": "signature", "message": compare(TensorShapeProto.Dimension())}),
    ("E-input-ignored", {"check": "signature", "message": "the graph ignores input 'mask'"}),
    ("E-weight-names", {"check": "signature", "message": "no weight has the name 'w' (w): x"}),
    ("E-signature", {"check": "signature", "message": "inputs differ: the file has none"}),
    ("E-opset", {"check": "opset"}),
    ("E-wellformed", {"check": "wellformed"}),
    ("E-metadata", {"check": "metadata"}),
    ("E-labels", {"check": "labels"}),
    ("E-load", {"stage": Stage.LOAD}),
    ("E-random", {"status": "inconclusive", "check": "determinism"}),
    (
        "E-state",
        {
            "status": "inconclusive",
            "check": "determinism",
            "message": "PyTorch differs from itself: it keeps state in its buffers (rows): output",
            "blame": make_blame(Culprit.MODEL),
        },
    ),
    (
        "E-random",
        {
            "status": "inconclusive",
            "check": "determinism",
            "message": "PyTorch differs from itself: output 'y' differs by 1.0",
            "blame": make_blame(Culprit.MODEL),
        },
    ),
    ("E-placement", {"check": "placement"}),
    ("E-power", {"status": "inconclusive", "check": "power"}),
    ("E-unproved", {"status": "inconclusive", "check": "parity"}),
    ("E-tolerance", {"check": "parity", "blame": make_blame(Culprit.PRECISION)}),
    ("E-runtime", {"check": "axes", "blame": make_blame(Culprit.KERNEL)}),
    ("E-runtime", {"check": "axes", "blame": make_blame(Culprit.OPTIMIZER)}),
    ("E-state", {"check": "parity", "blame": make_blame(Culprit.MODEL)}),
    ("E-parity", {"check": "parity", "blame": make_blame(Culprit.EXPORTER)}),
    ("E-axes", {"check": "axes", "blame": make_blame(Culprit.EXPORTER)}),
    ("E-cases", {"check": "cases"}),
    ("E-values", {"check": "values"}),
    ("E-tables", {"check": "tables"}),
    ("E-metric", {"check": "metric"}),
    ("E-rollout", {"check": "rollout"}),
    ("E-caller", {"check": "caller"}),
    ("E-worker", {"stage": None}),
]


@pytest.mark.parametrize(("code", "fields"), FAILURES)
def test_a_red_record_has_a_code(code: str, fields: dict[str, Any]) -> None:
    fields = {"status": "error", **fields}
    if row := CHECKS.get(fields.get("check", "")):
        fields |= {"status": fields["status"].replace("error", "fail"), "stage": Stage(row.stage)}
    assert make_record("net/18/cpu", **fields).failure_code == code


def test_each_code_is_reached() -> None:
    assert {code for code, _ in FAILURES} == set(FAILURE_CODES)


@pytest.mark.parametrize("status", ["pass", "xfail", "skip", "unavailable"])
def test_other_records_have_no_code(status: str) -> None:
    fields = {"foreseen": "known", "stage": Stage.CONVERT} if status == "xfail" else {}
    assert make_record("net/18/cpu", Status(status), **fields).failure_code == ""


def read_sections() -> dict[str, str]:
    text = (DOCS / "failures.md").read_text("utf-8")
    parts = re.split(r"^## (\S+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_page_has_a_section_for_each_code() -> None:
    sections = read_sections()
    assert sections.keys() == FAILURE_CODES.keys()
    pattern = r"\n[^`\n][^`]*.*?\n```(toml|python)\n(.+?)```\n\nFix: \S.+\n"
    for code, text in sections.items():
        match = re.fullmatch(pattern, text.rstrip("\n") + "\n", re.DOTALL)
        assert match, f"{code}: write its cause, a block of toml or python, and a line `Fix: ...`"
        if match[1] == "toml":
            assert tomllib.loads(match[2]), code
        else:
            ast.parse(textwrap.dedent(match[2]))


def test_the_guide_prints_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["guide", "E-axis-fixed"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("E-axis-fixed\n\nAn axis")
    assert "Fix: " in shown
    assert "E-axis-name" not in shown
    assert run(["guide", "E-axis-fxed"]) == 3
    assert "did you mean 'E-axis-fixed'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("topic", "first", "last", "other"),
    [
        ("weights", "You keep checkpoints out of git", "--weights initial", "## The tables"),
        ("losses", "You drop an opset", "accepted_here", "## A renamed model"),
        ("gitlab", "writes this file, for three machines", "--approvals host", "## "),
    ],
)
def test_the_guide_prints_the_sections_that_messages_name(
    topic: str, first: str, last: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["guide", topic]) == 0
    shown = capsys.readouterr().out
    assert first in shown.partition("\n\n")[2].partition("\n")[0]
    assert last in shown
    assert f"\n{other}" not in shown
    wheel = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert {"docs/ci.md", "docs/gate.md"} <= {*wheel["targets"]["wheel"]["only-include"]}


def test_the_guide_is_one_page_of_existing_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["guide"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 200
    context = click.Context(exporter)
    lines = re.findall(r"(?:^|`)exporter ([a-z][^`\n]*)", text, re.MULTILINE)
    for name, *words in (line.split(" -- ")[0].split() for line in lines):
        command = exporter.get_command(context, name)
        assert command, name
        if isinstance(command, click.Group) and words[:1] == ["review"]:
            command = command.get_command(context, words[0])
            assert command
        options = {option for each in command.params for option in each.opts}
        assert {word for word in words if word.startswith("-")} <= options, (name, words)


def test_later_releases_load_all_that_earlier_ones_do() -> None:
    for earlier, later in pairwise(RELEASES):
        assert earlier.release < later.release
        assert (earlier.opset, earlier.ir_version) != (later.opset, later.ir_version)
        assert earlier.opset <= later.opset
        assert earlier.ir_version <= later.ir_version


@pytest.mark.parametrize(
    ("opset", "ir_version", "release"),
    [
        (7, 3, (0, 1)),
        (9, 4, (0, 4)),
        (13, 7, (1, 6)),
        (13, 8, (1, 9)),
        (18, 8, (1, 14)),
        (18, 10, (1, 18)),
        (21, 10, (1, 18)),
        (26, 13, (1, 25)),
        (27, 10, (1, 32)),
        (29, 10, None),
        (20, 99, None),
    ],
)
def test_the_first_release_loads_opset_and_ir_version(
    opset: int, ir_version: int, release: tuple[int, int] | None
) -> None:
    assert find_first_release(opset, ir_version) == release


def test_a_lower_ir_version_helps_only_if_the_opset_is_older() -> None:
    assert find_older_release(18, 10) == ReleaseLimits((1, 14), 18, 8)
    assert find_older_release(21, 10) is None
    assert find_older_release(13, 7) is None
    # No release loads IR version 99; the opset only needs 1.14.
    assert find_older_release(18, 99) == ReleaseLimits((1, 14), 18, 8)
    assert find_older_release(29, 10) is None
