"""The response of the process that imports torch is returned, or its failure is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.tools.operators import survey
from exporter.tools.operators.survey import SurveyRequest, run_survey
from tests.unit.factory import TORCHSCRIPT, make_spec

ENVIRONMENT: dict[str, str] = {}


def make_request(root: Path, timeout: float = 60.0) -> SurveyRequest:
    spec = make_spec("net", timeout=timeout)
    return SurveyRequest(spec=spec, root=str(root), routes={17: TORCHSCRIPT})


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the program of the child process."""

    def set_program(program: str) -> None:
        head = "import os, signal, sys, time\nrequest, out = sys.argv[1:]\n"
        (tmp_path / "stub_child.py").write_text(head + program, encoding="utf-8")
        monkeypatch.setattr(survey, "_CHILD", "stub_child")
        monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", str(tmp_path))

    return set_program


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "its process was terminated by SIGSEGV"),
        ("os._exit(3)", "its process exited with code 3"),
        ("sys.exit('Traceback\\nno way')", "its process exited with code 1: no way"),
        ("time.sleep(60)", "its process did not finish within 1 s"),
    ],
)
def test_a_failure_of_the_process_is_a_problem(
    program: str, problem: str, tmp_path: Path, process: Any
) -> None:
    process(program)
    response = run_survey(make_request(tmp_path, timeout=1.0), ENVIRONMENT)
    assert (response.gaps, response.problem) == ((), problem)


def test_a_response_is_returned(tmp_path: Path, process: Any) -> None:
    process('open(out, \'w\').write(\'{"gaps": [{"exporter": "dynamo", "opset": 18}]}\')')
    (gaps,) = run_survey(make_request(tmp_path), ENVIRONMENT).gaps
    assert (gaps.exporter, gaps.opset) == ("dynamo", 18)


def test_a_missing_torch_is_an_error(tmp_path: Path, process: Any) -> None:
    process("sys.stderr.write('torch cannot be imported'); sys.exit(4)")
    with pytest.raises(ExporterError, match="torch cannot be imported") as raised:
        run_survey(make_request(tmp_path), ENVIRONMENT)
    assert raised.value.exit_code is ExitCode.ENVIRONMENT
