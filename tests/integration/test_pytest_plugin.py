"""`pytest --exporter` and `prove` have the verdicts of `exporter export`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.program_server import describe_servers
from tests.integration.project import ROOT, make_project, read_cells, run_exporter

#: Seconds of a run of pytest, less than the limit of a test.
_LIMIT = 200
TESTS = """
import sys

import pytest
import torch
from torch import nn

from exporter.testing import prove


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, scale=1, mask=None):
        y = self.linear(x)
        return {"y": y if mask is None else y * mask, "sum": y.sum(1)}


OFFSET = 0.0


class Changed(nn.Module):
    def forward(self, x):
        return x * 2 + OFFSET


class Branch(nn.Module):
    def forward(self, x):
        return x + 1 if x.mean() > 0 else x - 1


class Range(nn.Module):
    def forward(self, x):
        assert x.min() >= 0
        return x.sqrt()


class Fixed(nn.Module):
    def forward(self, x):
        return x + torch.zeros(int(x.shape[0]), 4)


def test_sound():
    batch = torch.export.Dim("batch", max=64)
    inputs = {"x": torch.zeros(2, 4), "mask": torch.ones(2, 3)}
    prove(Encoder(), inputs, axes={"x": {0: "batch"}, "mask": {0: batch}}, opsets=[18])


def test_wrong():
    prove(Fixed(), [torch.randn(2, 4)], axes={"x": {0: "batch"}}, opsets=17)


@pytest.mark.parametrize("change", ["global", "class"])
def test_changed(change, monkeypatch):
    if change == "global":
        monkeypatch.setattr(sys.modules[__name__], "OFFSET", 1.0)
    else:
        monkeypatch.setattr(Changed, "forward", lambda self, x: (x * 2).relu())
    prove(Changed(), [torch.randn(2, 4)], axes={"x": {0: "batch"}}, opsets=17)


def test_branch():
    prove(Branch(), [torch.rand(2, 4) + 1], opsets=17)


def test_range():
    prove(Range(), [torch.rand(2, 4)], axes={"x": {0: "batch"}}, opsets=17)


def test_unavailable():
    prove(Changed(), [torch.ones(2, 4)], devices=["cpu", "cuda"])


def test_local():
    class Local(nn.Module):
        def forward(self, x):
            return x

    prove(Local(), [torch.randn(2, 4)])


def test_name():
    prove(Encoder(), {"z": torch.zeros(2, 4)})


def test_count():
    prove(Encoder(), [torch.zeros(2, 4)] * 4)


def test_number():
    prove(Encoder(), {"x": torch.zeros(2, 4), "scale": 2})
"""


def run_pytest(root: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest with the servers of the tests, unless it is to import nothing."""
    plugins = ("-p", "exporter.pytest_plugin", "-p", "xdist.plugin", "-p", "no:cacheprovider")
    servers = describe_servers() if arguments else {}
    plugins += ("-p", "tests.integration.program_server") if servers else ()
    # Otherwise it removes folders of earlier runs of the tests, for minutes if they are large.
    folder = TemporaryDirectory(prefix="inner-")
    options = (f"--basetemp={folder.name}/tests", "-q", "-rA")
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *plugins, *options, *arguments],
        cwd=root,
        env={
            # On CI, pytest repeats whole messages in its summary.
            **{key: os.environ[key] for key in os.environ if key not in ("CI", "BUILD_NUMBER")},
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **servers,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    with folder, process:
        try:
            shown, _ = process.communicate(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # pytest then prints the stack of each thread
            pytest.fail(f"pytest did not end within {_LIMIT} s:\n{process.communicate()[0]}")
    return process.returncode, shown


def test_prove_raises_the_findings_of_an_export(tmp_path: Path) -> None:
    (tmp_path / "test_nets.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("")
    code, shown = run_pytest(tmp_path, "test_nets.py")
    assert code == 1
    assert "2 passed" in shown, shown
    assert "9 failed" in shown, shown
    changed = (
        "AssertionError: prove: the module computes other values in this process than in a new"
    )
    assert shown.count(f"{changed} one, which imports its classes: declared, ") == 2, shown
    assert re.search(r"AssertionError: module/17/cpu: fail at parity \(.*values\): ", shown), shown
    assert "AssertionError: module/18/cuda: unavailable: " in shown, shown
    assert re.search(
        r"AssertionError: module/17/cpu: fail at parity \(axes\): (?s:.{0,600}?)batch=", shown
    )
    assert "code: E-axes, explained by `exporter guide E-axes`" in shown
    assert re.search(r"the trace made constants at test_nets.py:\d+", shown)
    assert re.search(r"ValueError: prove: Local cannot be imported: .*; define it", shown)
    assert "ValueError: prove: forward has no parameter 'z'; name one of x, scale, mask" in shown
    assert "ValueError: prove: 4 inputs for the 3 named parameters of forward; " in shown
    assert "ValueError: prove: input 'scale' is no tensor; " in shown
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) in (
        [],
        ["__pycache__"],
    )


def test_each_cell_is_an_item(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good", bad="Raises")
    manifest = root / "manifests/tiny.toml"
    manifest.write_text(
        manifest.read_text().replace(
            "[models.bad]", 'skip = [{ opset = 16, reason = "too old" }]\n[models.bad]'
        )
    )
    (root / "test_own.py").write_text("def test_own(): pass\n")
    code, shown = run_pytest(root, "--exporter", "-n", "2", "test_own.py")
    assert code == 1
    assert "2 failed, 2 passed, 1 skipped" in shown, shown
    assert "PASSED test_own.py::test_own" in shown
    assert "PASSED pyproject.toml::good/17/cpu" in shown
    assert "FAILED pyproject.toml::bad/16/cpu - " in shown
    assert re.search(r"bad/16/cpu: error at source: \S+models.py:\d+: .*no way", shown), shown
    assert "warning" not in shown
    assert "skip: too old" in shown
    assert "Traceback" not in shown
    seen = {cell: record.status for cell, record in read_cells(root).items()}
    assert not (root / "reports").exists()
    assert run_exporter(root, "export", "--force", "--no-store").returncode == 1
    assert seen == {cell: record.status for cell, record in read_cells(root).items()}

    code, shown = run_pytest(root, "--exporter", "-k", "good and 17", "pyproject.toml")
    assert (code, "1 passed" in shown, "4 deselected" in shown) == (0, True, False), shown
    code, shown = run_pytest(root, "test_own.py")
    assert "1 passed" in shown
    assert "cpu" not in shown
    manifest.write_text("[")
    code, shown = run_pytest(root, "--exporter")
    assert "tiny.toml:1: " in shown
    assert code == 2


def test_other_runs_of_pytest_import_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import sys\n\n"
        "def test_own():\n"
        "    heavy = {'torch', 'pydantic', 'click', 'exporter.manifest'}\n"
        "    assert heavy.isdisjoint(sys.modules)\n"
    )
    assert run_pytest(tmp_path)[0] == 0


def test_the_wheel_registers_the_plugin() -> None:
    assert 'exporter = "exporter.pytest_plugin"' in (ROOT / "pyproject.toml").read_text()
