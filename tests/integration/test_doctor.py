"""`exporter doctor` reports on a real environment, and on an environment without torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnxruntime
import pytest

from exporter.manifest import load_settings
from exporter.records.record import Status
from exporter.virtual_environments import STAMP, find_interpreter
from tests.distributions import write_distribution
from tests.integration.project import (
    MODELS,
    ROOT,
    format_entry,
    make_project,
    read_cells,
    run_exporter,
    write_project,
)

DEVICES = """
[tool.exporter]
defaults.devices = ["cpu", "cuda", "reference"]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("doctor") / "project"
    return make_project(root, settings=DEVICES, good="Good")


def test_a_valid_environment_has_no_problem_and_a_short_report(project: Path) -> None:
    command = run_exporter(project, "doctor", code=0)
    lines = command.stdout.splitlines()
    assert len(lines) < 25
    assert lines[-1].startswith("0 problems, ")
    text = " ".join(command.stdout.split())
    assert "ok device cpu CPUExecutionProvider works" in text
    assert "ok device reference onnx.reference works" in text
    assert "ok workers the fork server has torch imported" in text
    assert "ok instruments each reports a known example of what it searches" in text
    assert "one capture serves all opsets" in text
    assert "ok manifests 1 model, 6 cells" in text
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        problem = "2 cells unavailable: this ONNX Runtime has no CUDAExecutionProvider"
        assert f"note device cuda {problem}" in text


def test_a_silent_instrument_is_a_problem(project: Path, tmp_path: Path) -> None:
    """Python imports `sitecustomize` first: here, a traced branch is no warning of the tracer."""
    text = "import sys\nif 'child_call' in ' '.join(sys.orig_argv):\n"
    text += "    import torch.jit._trace\n    torch.jit._trace.TracerWarning = DeprecationWarning\n"
    (tmp_path / "sitecustomize.py").write_text(text)
    command = run_exporter(project, "doctor", PYTHONPATH=f"{tmp_path}:{ROOT}", code=1)
    output = " ".join(command.stdout.split())
    assert "problem instruments branches that a trace keeps were not searched, because" in output


def test_a_torch_that_cannot_be_imported_is_a_problem(project: Path, tmp_path: Path) -> None:
    """PYTHONPATH has a broken torch before the installed torch."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('libcudart.so.12 is missing')\n")
    (tmp_path / "torchaudio.py").write_text('raise OSError("undefined symbol")\n')
    write_distribution(tmp_path, "torchaudio", "2.13.0")
    command = run_exporter(project, "doctor", PYTHONPATH=f"{tmp_path}:{ROOT}", code=1)
    assert "cannot be imported: ImportError: libcudart.so.12 is missing" in command.stdout
    assert "torchaudio    2.13.0 cannot be imported: OSError: undefined symbol" in command.stdout
    assert "fork server" not in command.stdout
    assert "ok       device cpu" in command.stdout, "a file can be checked without torch"
    assert "Traceback" not in command.stdout + command.stderr


def test_the_json_output_has_the_problem_of_a_manifest(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good")
    (root / "manifests/tiny.toml").write_text("format = 2\n")
    command = run_exporter(root, "doctor", "--json", code=1)
    findings = {each["subject"]: each for each in json.loads(command.stdout)["findings"]}
    assert findings["torch"]["level"] == "ok"
    manifests = findings["manifests"]
    assert manifests["level"] == "problem"
    assert manifests["message"].startswith("manifests/tiny.toml:1: format")


SETTINGS = """
[tool.exporter.environments.own]
requirements = ["onnxruntime==0.0.1"]

[tool.exporter.environments.bad]
requirements = ["onnxruntime==0.0.2"]
python = "no-such-python"

[tool.exporter.devices.own]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
environment = "own"

[tool.exporter.devices.bad]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
environment = "bad"
"""
ENTRY = format_entry("net", "models.py:Good", 'devices = ["cpu", "own", "bad"]')


def install(root: Path, version: str) -> None:
    """Write an environment with a Python that has the packages of this one."""
    (environment,) = [each for each in load_settings(root).environments if each.name == "own"]
    folder = load_settings(root).environments_folder / environment.definition.key
    interpreter = find_interpreter(folder)
    interpreter.parent.mkdir(parents=True, exist_ok=True)
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    stamp = {"requirements": environment.requirements, "packages": {"onnxruntime": version}}
    (folder / STAMP).write_text(json.dumps(stamp))


def test_an_export_uses_the_environments_of_its_devices(tmp_path: Path) -> None:
    write_project(tmp_path, {"models.py": MODELS, "net.toml": f"format = 1\n{ENTRY}"}, SETTINGS)
    install(tmp_path, "0.0.1")
    run_exporter(tmp_path, "export", "--jobs", "1", code=0)
    records = read_cells(tmp_path)
    proved, plain = records["net/17/own"], records["net/17/cpu"]
    assert (proved.status, proved.runtime) == (Status.PASS, "onnxruntime 0.0.1")
    assert (plain.status, plain.runtime) == (Status.PASS, "")
    assert proved.sources == plain.sources, "files of the environment are no dependencies"
    assert proved.packages == plain.packages
    assert not proved.untracked
    failed = records["net/17/bad"]
    assert failed.status is Status.UNAVAILABLE
    assert failed.message.startswith("pyproject.toml:5: the environment bad cannot be created: ")
    assert "'no-such-python' does not exist" in failed.message

    assert "onnxruntime of own" not in run_exporter(tmp_path, "plan").stdout
    install(tmp_path, "0.0.2")
    assert "onnxruntime of own 0.0.1 -> 0.0.2" in run_exporter(tmp_path, "plan").stdout
