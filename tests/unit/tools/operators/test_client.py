"""The response of the process that imports torch is stored and returned, or its failure is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Manifest
from exporter.tools.operators import client
from exporter.tools.operators.protocol import OperatorTable, SurveyRequest
from tests.unit.factory import TORCHSCRIPT, make_manifest, make_spec

TABLE = OperatorTable(tools={"torch": "2"}, torchscript=(7,), dynamo=(18,), rows=(), folded=0)
ENVIRONMENT: dict[str, str] = {}


def manifest(root: Path) -> Manifest:
    default = make_manifest(make_spec("net"))
    return default.model_copy(
        update={"project": default.project.model_copy(update={"root": str(root)})}
    )


def make_request(root: Path, timeout: float = 60.0) -> SurveyRequest:
    spec = make_spec("net", timeout=timeout)
    return SurveyRequest(spec=spec, root=str(root), routes={17: TORCHSCRIPT})


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the program of the child process."""

    def set_program(program: str) -> None:
        head = "import os, signal, sys, time\nrequest, out = sys.argv[1:]\n"
        (tmp_path / "stub_child.py").write_text(head + program, encoding="utf-8")
        monkeypatch.setattr(client, "_CHILD", "stub_child")
        monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", str(tmp_path))

    return set_program


WRITES = f"open(out, 'w').write({TABLE.to_json()!r})\n"


def test_a_table_is_built_once(tmp_path: Path, process: Any) -> None:
    process(WRITES)
    project = manifest(tmp_path)
    assert client.read_stored_table(project) is None
    assert client.build_table(project, ENVIRONMENT) == TABLE
    process("sys.exit('must not run')")
    assert client.read_stored_table(project) == TABLE


def test_other_tools_have_another_table(
    tmp_path: Path, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(WRITES)
    project = manifest(tmp_path)
    client.build_table(project, ENVIRONMENT)
    monkeypatch.setattr(client, "read_package_state", lambda name: f"{name} changed")
    assert client.read_stored_table(project) is None
    client.build_table(project, ENVIRONMENT)
    stored = list((tmp_path / "build" / ".operators").iterdir())
    assert len(stored) == 1, "the old table is removed"


def test_a_damaged_table_is_none(tmp_path: Path, process: Any) -> None:
    process(WRITES)
    project = manifest(tmp_path)
    client.build_table(project, ENVIRONMENT)
    for path in (tmp_path / "build" / ".operators").iterdir():
        path.write_text(path.read_text()[:-10])
    assert client.read_stored_table(project) is None


@pytest.mark.parametrize(
    ("program", "code", "message"),
    [
        ("sys.stderr.write('torch 9 is not known'); sys.exit(4)", ExitCode.ENVIRONMENT, "torch 9"),
        ("raise ValueError('a bug')", ExitCode.BUG, "a bug"),
        ("sys.exit(0)", ExitCode.BUG, "cannot be built"),
    ],
)
def test_a_failed_table_stops_the_command(
    program: str, code: ExitCode, message: str, tmp_path: Path, process: Any
) -> None:
    process(program)
    with pytest.raises(ExporterError, match=message) as raised:
        client.build_table(manifest(tmp_path), ENVIRONMENT)
    assert raised.value.exit_code is code


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
    response = client.run_survey(make_request(tmp_path, timeout=1.0), ENVIRONMENT)
    assert (response.gaps, response.problem) == ((), problem)


def test_a_response_is_returned(tmp_path: Path, process: Any) -> None:
    process('open(out, \'w\').write(\'{"gaps": [{"exporter": "dynamo", "opset": 18}]}\')')
    (gaps,) = client.run_survey(make_request(tmp_path), ENVIRONMENT).gaps
    assert (gaps.exporter, gaps.opset) == ("dynamo", 18)


def test_a_missing_torch_is_an_error(tmp_path: Path, process: Any) -> None:
    process("sys.stderr.write('torch cannot be imported'); sys.exit(4)")
    with pytest.raises(ExporterError, match="torch cannot be imported") as raised:
        client.run_survey(make_request(tmp_path), ENVIRONMENT)
    assert raised.value.exit_code is ExitCode.ENVIRONMENT
