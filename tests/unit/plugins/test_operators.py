"""The response of the process that imports torch is returned, or its failure is."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.plugins.ops import operators
from exporter.plugins.ops.operators import SurveyResponse, run_survey
from tests.unit.factory import TORCHSCRIPT, make_spec


def run(
    body: str, folder: Path, patches: pytest.MonkeyPatch, timeout: float = 60.0
) -> SurveyResponse:
    """Survey a model by a function with this body."""
    head = "import os, signal, sys, time\n\ndef find(spec: dict, root: str, routes: dict):\n    "
    (folder / "stub_child.py").write_text(head + body, encoding="utf-8")
    patches.setattr(operators, "_FUNCTION", "stub_child:find")
    spec = make_spec("net", timeout=timeout)
    environment = {"PYTHONPATH": str(folder)}
    return run_survey(spec, folder, {17: TORCHSCRIPT}, environment)


@pytest.mark.parametrize(
    ("body", "timeout", "problem"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", 60.0, "its process was terminated by SIGSEGV"),
        ("import torch_9", 60.0, "its process exited with code 1: ModuleNotFoundError: No module"),
        ("time.sleep(60)", 1.0, "its process did not finish within 1 s"),
    ],
)
def test_a_failure_of_the_process_is_a_problem(
    body: str, timeout: float, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = run(body, tmp_path, monkeypatch, timeout)
    assert response.gaps == ()
    assert response.problem.startswith(problem)


def test_a_response_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "return {'gaps': [{'exporter': 'dynamo', 'opset': int(next(iter(routes)))}]}"
    (gaps,) = run(body, tmp_path, monkeypatch).gaps
    assert (gaps.exporter, gaps.opset) == ("dynamo", 17)
