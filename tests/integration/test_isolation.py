"""Models that crash, exit, hang or raise leave red rows, and every other cell done."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.records.record import (
    Record,
    Stage,
    Status,
    read_run,
)
from tests.integration.project import make_project, run_exporter


@dataclass(frozen=True)
class Ran:
    root: Path
    command: subprocess.CompletedProcess[str]
    records: dict[str, Record]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One export of all of them."""
    root = make_project(
        tmp_path_factory.mktemp("isolation") / "project",
        sleeps="Sleeps",
        good="Good",
        silent="Silent",
        segfaults="SegfaultsOnce",
        exits="Exits",
        raises="Raises",
    )
    command = run_exporter(root, "export", "--jobs", "2")
    return Ran(root, command, read_run(root / "build/results.json").by_cell())


def test_the_command_says_red_without_a_traceback(ran: Ran) -> None:
    assert ran.command.returncode == 1, ran.command.stdout + ran.command.stderr
    assert "Traceback" not in ran.command.stdout + ran.command.stderr
    assert "\x1b" not in ran.command.stdout
    assert len(ran.records) == 12
    assert (ran.root / "reports/COMPATIBILITY.md").is_file()


def test_the_good_model_is_green_beside_all_the_others(ran: Ran) -> None:
    for opset in (16, 17):
        record = ran.records[f"good/{opset}/cpu"]
        assert record.status is Status.PASS, record.message
        assert (ran.root / f"build/good/{opset}.onnx").is_file()


def test_a_model_that_closes_its_streams_is_green(ran: Ran) -> None:
    for opset in (16, 17):
        record = ran.records[f"silent/{opset}/cpu"]
        assert record.status is Status.PASS, record.message


def test_a_segfault_costs_the_cell_at_work_and_the_rest_is_tried_again(ran: Ran) -> None:
    died, lived = ran.records["segfaults/16/cpu"], ran.records["segfaults/17/cpu"]
    assert (died.status, died.stage) == (Status.CRASH, Stage.CONVERT)
    assert "SIGSEGV" in died.message
    assert "Segmentation fault" in died.detail
    assert lived.status is Status.PASS, lived.message
    assert "about to die" in (ran.root / "build" / died.log).read_text()


def test_an_exit_with_code_0_is_no_pass(ran: Ran) -> None:
    for opset in (16, 17):
        record = ran.records[f"exits/{opset}/cpu"]
        assert (record.status, record.stage) == (Status.CRASH, Stage.SOURCE)
        assert "exited with code 0" in record.message


def test_a_model_that_sleeps_is_ended_and_named(ran: Ran) -> None:
    at_work, waiting = ran.records["sleeps/16/cpu"], ran.records["sleeps/17/cpu"]
    assert (at_work.status, waiting.status) == (Status.TIMEOUT, Status.TIMEOUT)
    assert at_work.stage is Stage.CONVERT
    assert "sleeps/16/cpu" in waiting.message


def test_an_exception_is_an_error_with_its_words_and_no_escape_on_the_terminal(ran: Ran) -> None:
    record = ran.records["raises/16/cpu"]
    assert (record.status, record.stage) == (Status.ERROR, Stage.SOURCE)
    assert "no " in record.message
    assert "raises/16/cpu: error at source" in ran.command.stdout


def test_every_red_cell_is_named_with_a_log_that_exists(ran: Ran) -> None:
    for name, record in ran.records.items():
        if record.status.is_red:
            assert f"{name}: " in ran.command.stdout
            assert (ran.root / "build" / record.log).is_file()


def test_nothing_private_is_left_in_the_build_folder(ran: Ran) -> None:
    assert not (ran.root / "build/.work").exists()
