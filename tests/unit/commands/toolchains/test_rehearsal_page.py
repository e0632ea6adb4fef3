"""The result of a rehearsal and of a bisect as text, as markdown and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from exporter.commands.toolchains import command, rehearsal_run
from exporter.commands.toolchains.rehearsal_run import (
    RehearsalOptions,
    RehearsalResult,
    ReleaseChange,
)
from exporter.commands.toolchains.upgrade_comparison import (
    compare_upgrade,
    format_rehearsal_json,
    render_rehearsal,
    summarize_outcomes,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import DEFAULT_GATE
from exporter.planning import Selection
from exporter.records.baseline import parse_cell
from exporter.records.record import RunRecord, Status
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec
from tests.unit.manifest.projects import ENTRY, make_project

HOSTILE = "a | b <img src=x> `c`\n# no heading"
BEFORE = make_run(
    *(make_record(f"net/{opset}/cpu") for opset in (17, 18)),
    make_record("other/18/cpu", Status.FAIL),
    tools={"onnxscript": "0.7.2"},
)
AFTER = make_run(
    make_record("net/17/cpu", artifact=make_artifact("net", 17, sha256="1", operators={"Mul": 1})),
    make_record("net/18/cpu", Status.ERROR, message=HOSTILE),
    make_record("other/18/cpu"),
    tools={"onnxscript": "0.8.0"},
)
CELLS = BEFORE.by_cell().keys()
COMPARISON = compare_upgrade(BEFORE, AFTER, CELLS, DEFAULT_GATE)


def test_the_page_lists_tools_regressions_improvements_and_files() -> None:
    page = render_rehearsal(["onnxscript>=0.8"], COMPARISON)
    assert "| onnxscript | 0.7.2 | 0.8.0 |" in page
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings == [
        "# Rehearsal",
        "## Regressions",
        "## Improvements",
        "## Files with other operators",
    ]
    assert "<img" not in page
    assert "3 cells compared with the results in place, 1 worse." in page


def test_the_json_has_every_finding_and_file() -> None:
    report = json.loads(format_rehearsal_json(["onnxscript>=0.8"], COMPARISON))
    assert report["requirements"] == ["onnxscript>=0.8"]
    assert (report["cells"], report["regressions"], report["files"]) == (3, 1, 2)
    kinds = {each["cell"]: (each["kind"], each["is_regression"]) for each in report["findings"]}
    assert kinds == {
        "net/18/cpu": ("newly_red", True),
        "other/18/cpu": ("fixed", False),
    }
    assert report["changed_files"] == [
        {"cell": "net/17/cpu", "operators": "-1 Conv, +1 Mul, -1 Relu"}
    ]


def test_a_rehearsal_without_a_difference_has_no_sections() -> None:
    page = render_rehearsal(["onnx"], compare_upgrade(BEFORE, BEFORE, CELLS, DEFAULT_GATE))
    assert "##" not in page


def test_an_unexpected_pass_is_a_pass_of_the_other_exporter() -> None:
    after = make_run(make_record("net/17/cpu", Status.XPASS), make_record("net/18/cpu", "xfail"))
    comparison = compare_upgrade(BEFORE, after, after.by_cell().keys(), DEFAULT_GATE)
    assert summarize_outcomes(comparison, "dynamo").startswith("1 of 2 cells pass by dynamo")


def test_the_page_of_another_exporter_has_each_cell() -> None:
    page = render_rehearsal([], COMPARISON, exporter="dynamo")
    assert "2 of 3 cells pass by dynamo, 0 of them with a newer ONNX Runtime; 1 fail" in page
    assert "| net/17/cpu | pass |  |" in page.replace("`", "")
    assert "Requirements" not in page


CHANGE = ReleaseChange(
    cell=parse_cell("net/18/cpu"),
    package="scale",
    last="1.0",
    first="3.0",
    before="pass",
    after="error at source",
    message="no scale since version 3",
    is_repaired=False,
)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["onnx"], "onnxscript: 0.7.2 -> 0.8.0\nnet/18/cpu: newly red: pass -> error at convert"),
        (["onnx"], "3 cells compared, 1 regression\n"),
        (["onnx", "--markdown"], "# Rehearsal\n"),
        (
            ["--exporter", "dynamo", "--json"],
            '{\n  "format": 1,\n  "requirements": [],\n  "exporter": "dynamo"',
        ),
        (["--exporter", "dynamo"], "2 of 3 cells pass by dynamo"),
        (
            ["scale>=1", "--bisect"],
            "net/18/cpu: scale 1.0 pass -> 3.0 error at source\n    no scale since version 3\n",
        ),
        (["scale>=1", "--bisect", "--json"], '"last": "1.0",\n  "first": "3.0"'),
    ],
)
def test_each_form_of_the_result_is_printed(
    arguments: list[str], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path, {"manifests/net.toml": f"format = 1\n[models.net]\n{ENTRY}"})
    result = RehearsalResult(run=AFTER, comparison=COMPARISON, without_result=0)
    monkeypatch.setattr(command, "run_rehearsal", lambda *_: result)
    monkeypatch.setattr(command, "bisect_releases", lambda *_: (CHANGE,))
    ran = CliRunner().invoke(command.rehearse, [*arguments, "--root", str(tmp_path)])
    assert shown in ran.stdout, ran.output


def bisect(
    monkeypatch: pytest.MonkeyPatch, first_red: float, missing: float = 0.0
) -> tuple[list[float], ReleaseChange]:
    """Search in the releases 1.0 to 9.0; return those that were exported, and the change."""
    exported = []

    def export(_: object, options: RehearsalOptions, *others: object) -> RunRecord:
        release = float(options.requirements[0].removeprefix("scale=="))
        exported.append(release)
        if release == missing:
            raise ExporterError(ExitCode.ENVIRONMENT, "no such release")
        return make_run(make_record("net/18/cpu", "fail" if release >= first_red else "pass"))

    releases = [f"{number}.0" for number in range(1, 10)]
    monkeypatch.setattr(rehearsal_run, "_list_releases", lambda *_: releases)
    monkeypatch.setattr(rehearsal_run, "export_with_packages", export)
    options = RehearsalOptions(requirements=("scale>=1",), selection=Selection())
    manifest = make_manifest(make_spec("net", opsets=(18,)))
    lines: list[str] = []
    (change,) = rehearsal_run.bisect_releases(manifest, options, {}, lines.append)
    assert (f"scale {missing} is skipped: no such release" in lines) is (missing in exported)
    return exported, change


@pytest.mark.parametrize("first", range(2, 10))
@pytest.mark.parametrize("missing", [0.0, 5.0])
def test_a_bisect_finds_the_first_release_that_differs(
    first: int, missing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported, change = bisect(monkeypatch, first, missing)
    installed = [float(number) for number in range(1, 10) if number != missing]
    index = next(index for index, release in enumerate(installed) if release >= first)
    assert (change.last, change.first) == (f"{installed[index - 1]}", f"{installed[index]}")
    assert (change.before, change.after) == ("pass", "fail at parity")
    assert len(exported) == len(set(exported)) <= 6


@pytest.mark.parametrize(
    ("first", "missing", "message"),
    [
        (0.0, 0.0, "no selected cell differs between 1.0 and 9.0"),
        (3.0, 9.0, "change the range so that this release is outside"),
    ],
)
def test_a_bisect_without_an_answer_gives_the_reason(
    first: float, missing: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExporterError, match=message):
        bisect(monkeypatch, first, missing)
