"""The process that asks torch: what becomes of its answer, and of its failures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import exporter.tools.operators.client as ours
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Manifest
from exporter.tools.operators.protocol import OperatorTable, SurveyRequest
from tests.unit.factory import TORCHSCRIPT, make_manifest, make_spec

TABLE = OperatorTable(tools={"torch": "2"}, torchscript=(7,), dynamo=(18,), rows=(), folded=0)
ENVIRONMENT: dict[str, str] = {}


def manifest(root: Path) -> Manifest:
    made = make_manifest(make_spec("net"))
    return made.model_copy(update={"project": made.project.model_copy(update={"root": str(root)})})


def question(root: Path, timeout: float = 60.0) -> SurveyRequest:
    spec = make_spec("net", timeout=timeout)
    return SurveyRequest(spec=spec, root=str(root), routes={17: TORCHSCRIPT})


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the program that is run in place of the real one."""

    def does(program: str) -> None:
        head = "import os, signal, sys, time\nrequest, out = sys.argv[1:]\n"
        monkeypatch.setattr(ours, "_COMMAND", (sys.executable, "-c", head + program))

    return does


WRITES = f"open(out, 'w').write({TABLE.to_json()!r})\n"


def test_a_table_is_made_once(tmp_path: Path, process: Any) -> None:
    process(WRITES)
    project = manifest(tmp_path)
    assert ours.stored_table(project) is None
    assert ours.make_table(project, ENVIRONMENT) == TABLE
    process("sys.exit('must not run')")
    assert ours.stored_table(project) == TABLE


def test_other_tools_make_another_table(
    tmp_path: Path, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(WRITES)
    project = manifest(tmp_path)
    ours.make_table(project, ENVIRONMENT)
    monkeypatch.setattr(ours, "package_state", lambda name: f"{name} of another time")
    assert ours.stored_table(project) is None
    ours.make_table(project, ENVIRONMENT)
    kept = list((tmp_path / "build" / ".operators").iterdir())
    assert len(kept) == 1, "the old one is gone"


def test_a_damaged_table_is_none(tmp_path: Path, process: Any) -> None:
    process(WRITES)
    project = manifest(tmp_path)
    ours.make_table(project, ENVIRONMENT)
    for path in (tmp_path / "build" / ".operators").iterdir():
        path.write_text(path.read_text()[:-10])
    assert ours.stored_table(project) is None


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("sys.stderr.write('torch 9 is not known'); sys.exit(4)", ExitCode.ENVIRONMENT, "torch 9"),
        ("raise ValueError('a bug')", ExitCode.BUG, "a bug"),
        ("sys.exit(0)", ExitCode.BUG, "cannot be made"),
    ],
)
def test_a_table_that_is_not_made_stops_the_command(
    program: str, code: ExitCode, said: str, tmp_path: Path, process: Any
) -> None:
    process(program)
    with pytest.raises(ExporterError, match=said) as raised:
        ours.make_table(manifest(tmp_path), ENVIRONMENT)
    assert raised.value.exit_code is code


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "its process was ended by signal 11"),
        ("os._exit(3)", "its process ended with 3"),
        ("sys.exit('Traceback\\nno way')", "its process ended with 1: no way"),
        ("time.sleep(60)", "not done after 1 seconds"),
    ],
)
def test_whatever_a_model_does_to_its_process_is_an_answer(
    program: str, problem: str, tmp_path: Path, process: Any
) -> None:
    process(program)
    answer = ours.survey(question(tmp_path, timeout=1.0), ENVIRONMENT)
    assert (answer.found, answer.problem) == ((), problem)


def test_an_answer_is_handed_on(tmp_path: Path, process: Any) -> None:
    process('open(out, \'w\').write(\'{"found": [{"exporter": "dynamo", "opset": 18}]}\')')
    (found,) = ours.survey(question(tmp_path), ENVIRONMENT).found
    assert (found.exporter, found.opset) == ("dynamo", 18)


def test_a_missing_torch_is_no_answer(tmp_path: Path, process: Any) -> None:
    process("sys.stderr.write('torch cannot be asked'); sys.exit(4)")
    with pytest.raises(ExporterError, match="torch cannot be asked") as raised:
        ours.survey(question(tmp_path), ENVIRONMENT)
    assert raised.value.exit_code is ExitCode.ENVIRONMENT
