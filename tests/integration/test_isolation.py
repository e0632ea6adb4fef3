"""Models that crash, exit, hang or raise become red, and all other cells complete."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.records.record import (
    Record,
    Stage,
    Status,
)
from tests.integration.project import format_entry, make_project, read_cells, run_exporter

GREEDY = """

class Greedy(Good):
    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            tensors = []
            while True:
                tensors.append(torch.ones(10_000_000))
        return super().forward(x)


class Refused(Good):
    def forward(self, x):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")


class Builds(Good):
    def __init__(self):
        super().__init__()
        self.blocks = [bytearray(10_000_000) for _ in range(1_000_000)]
"""


@dataclass(frozen=True)
class ExportRun:
    root: Path
    command: subprocess.CompletedProcess[str]
    records: dict[str, Record]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ExportRun:
    """Export all models once."""
    root = make_project(
        tmp_path_factory.mktemp("isolation") / "project",
        more_models=GREEDY,
        settings='[tool.exporter]\ndefaults.memory = "900MB"\n',
        sleeps="Sleeps",
        good="Good",
        silent="Silent",
        segfaults="SegfaultsOnce",
        exits="Exits",
        raises="Raises",
    )
    names = ("Greedy", "Refused", "Builds")
    entries = "".join(format_entry(name.lower(), f"models.py:{name}") for name in names)
    (root / "manifests/memory.toml").write_text(f"format = 1\n{entries}")
    command = run_exporter(root, "export", "--jobs", "2")
    return ExportRun(root, command, read_cells(root))


def find_line(root: Path, text: str) -> str:
    lines = (root / "manifests/models.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f"manifests/models.py:{number}"


def test_the_command_is_red_without_a_traceback(run: ExportRun) -> None:
    assert run.command.returncode == 1, run.command.stdout + run.command.stderr
    assert "Traceback" not in run.command.stdout + run.command.stderr
    assert "\x1b" not in run.command.stdout
    assert len(run.records) == 15
    assert (run.root / "reports/COMPATIBILITY.md").is_file()


@pytest.mark.parametrize("model", ["good", "silent"])
def test_a_good_model_is_green_even_if_it_closes_its_streams(run: ExportRun, model: str) -> None:
    for opset in (16, 17):
        record = run.records[f"{model}/{opset}/cpu"]
        assert record.status is Status.PASS, record.message
        assert (run.root / f"build/{model}/{opset}.onnx").is_file()


def test_a_segfault_fails_the_current_cell_and_the_other_cell_is_retried(run: ExportRun) -> None:
    crashed, retried = run.records["segfaults/16/cpu"], run.records["segfaults/17/cpu"]
    assert (crashed.status, crashed.stage) == (Status.CRASH, Stage.CONVERT)
    assert "SIGSEGV" in crashed.message
    assert "Segmentation fault" in crashed.detail
    assert crashed.lines == (find_line(run.root, "signal.SIGSEGV"),)
    assert retried.status is Status.PASS, retried.message
    assert "about to die" in (run.root / "build" / crashed.log).read_text()


def test_an_exit_with_code_0_is_a_crash(run: ExportRun) -> None:
    for opset in (16, 17):
        record = run.records[f"exits/{opset}/cpu"]
        assert (record.status, record.stage) == (Status.CRASH, Stage.SOURCE)
        assert "exited with code 0" in record.message


def test_a_model_that_sleeps_has_a_timeout(run: ExportRun) -> None:
    current, waiting = run.records["sleeps/16/cpu"], run.records["sleeps/17/cpu"]
    assert (current.status, waiting.status) == (Status.TIMEOUT, Status.TIMEOUT)
    assert current.stage is Stage.CONVERT
    assert current.lines == (find_line(run.root, "time.sleep(300)"),)
    assert "sleeps/16/cpu" in waiting.message


def test_an_exception_is_an_error_with_its_message(run: ExportRun) -> None:
    record = run.records["raises/16/cpu"]
    assert (record.status, record.stage) == (Status.ERROR, Stage.SOURCE)
    assert "no " in record.message
    assert "raises/16..17/cpu: error at source" in run.command.stdout


@pytest.mark.parametrize(
    ("model", "stage"), [("builds", "source"), ("greedy", "convert"), ("refused", "source")]
)
def test_a_model_above_the_memory_limit_is_killed(run: ExportRun, model: str, stage: str) -> None:
    record = run.records[f"{model}/17/cpu"]
    assert (record.status, record.stage) == ("killed", stage), record.message
    assert record.message.startswith("needs more than the 900MB that `memory` allows: ")


def test_every_red_cell_is_printed_and_has_a_log(run: ExportRun) -> None:
    for name, record in run.records.items():
        if record.status.is_red:
            model, opset, _ = name.split("/")
            shown = re.compile(rf"^{model}/(?:{opset}|16\.\.17)/cpu: ", re.MULTILINE)
            assert len(shown.findall(run.command.stdout)) == 1
            assert (run.root / "build" / record.log).is_file()


def test_the_work_folder_is_removed(run: ExportRun) -> None:
    assert not (run.root / "build/.work").exists()
