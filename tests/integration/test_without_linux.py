"""The flow without fork, seccomp, `/proc`, prctl and memory limits, as on macOS."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.core.system import SWITCH
from tests.integration.project import (
    MODELS,
    ROOT,
    format_entry,
    read_cells,
    run_exporter,
    run_python,
    start_exporter,
)
from tests.integration.test_watch import Watch

#: Each worker imports PyTorch again: a minute on two quiet cores.
pytestmark = pytest.mark.timeout(900)

ENVIRONMENT = {SWITCH: "1", "EXPORTER_STORE": "off"}
NETS = f"""{MODELS}

class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 3, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]
"""
SCRIPT = """
import torch
from nets import Good

torch.onnx.export(
    Good(), (torch.rand(2, 4),), "good.onnx", input_names=["x"], output_names=["y"],
    dynamic_axes={"x": {0: "batch"}}, opset_version=17, dynamo=False,
)
"""
PROOF = """
import torch
from exporter.testing import prove
from nets import Good

if __name__ == "__main__":
    prove(Good(), {"x": torch.rand(2, 4)}, axes={"x": {0: "batch"}}, opsets=[17])
    print("proved")
"""


def run(root: Path, *arguments: str, program: str = "-m exporter") -> tuple[int, str]:
    """Return the exit code and the output of a command without the parts of Linux."""
    ran = run_python(root, *program.split(), *arguments, **ENVIRONMENT)
    return ran.returncode, ran.stdout + ran.stderr


def read_verdicts(root: Path) -> dict[str, tuple[object, ...]]:
    return {
        cell: (record.status, record.failure_code, record.message, record.failed_checks)
        for cell, record in read_cells(root).items()
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with the entry of a script and a red one, exported."""
    root = tmp_path_factory.mktemp("project")
    for name, text in (("nets.py", NETS), ("export.py", SCRIPT), ("proof.py", PROOF)):
        (root / name).write_text(text)
    assert run(root, "init")[0] == 0
    shutil.rmtree(root / "manifests")
    code, output = run(root, "record", "--yes", "--", sys.executable, "export.py")
    assert (code, "good/17/cpu: pass" in output) == (0, True), output
    shapes = dict.fromkeys("xy", '"batch", "length", 3')
    fixed = format_entry("fixed", "../nets.py:Fixed", opsets=18, **shapes)
    (root / "manifests/fixed.toml").write_text(f"format = 1\n{fixed}")
    code, output = run(root, "export")
    assert (code, "2 cells: 1 pass, 1 fail" in output) == (1, True), output
    return root


def test_the_verdicts_are_those_with_linux(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(project, root, ignore=shutil.ignore_patterns("build"))
    assert run_exporter(root, "export", "--no-store").returncode == 1
    with_linux = read_verdicts(root)
    assert read_verdicts(project) == with_linux
    assert {each[0] for each in with_linux.values()} == {"pass", "fail"}
    files = [(folder / "build/good/17.onnx").read_bytes() for folder in (project, root)]
    assert files[0] == files[1]


@pytest.mark.campaign
def test_a_change_is_exported_again_and_gated(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(project, root)
    nets = root / "nets.py"
    for command in ("baseline", "gate"):
        code, output = run(root, command)
        assert code == 0, output
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with start_exporter(root, "export", "--watch", "good", env=ENVIRONMENT, **streams) as process:
        watched = Watch(process)
        try:
            watched.wait_for()
            nets.write_text(NETS.replace("self.linear(x)", "self.linear(x)[:, :2]"))
            assert "1 cell: 1 fail" in watched.wait_for()
            assert watched.end() == 130
        finally:
            process.kill()
    code, output = run(root, "gate")
    assert (code, "newly red" in output) == (1, True), output


@pytest.mark.campaign
def test_a_proved_file_is_published_and_verified(project: Path) -> None:
    assert run(project, "report")[0] == 0
    assert (project / "reports/COMPATIBILITY.md").is_file()
    code, output = run(project, "publish", "good", "dist", "--initial")
    assert code == 0, output
    code, output = run(project, "verify", "dist")
    assert (code, "1 proved, 0 red" in output) == (0, True), output


@pytest.mark.campaign
def test_a_module_is_proved_in_a_program(project: Path) -> None:
    assert run(project, program="proof.py") == (0, "proved\n")


def test_windows_has_one_sentence() -> None:
    program = "import sys; sys.platform = 'win32'; from exporter.cli import main; main()"
    ran = run_python(ROOT, "-c", program)
    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr.count("\n") == 1
    assert "WSL" in ran.stderr
