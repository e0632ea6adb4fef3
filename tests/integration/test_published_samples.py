"""Published samples: ties in the order of ONNX, steps of a rollout, an interrupted command."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from exporter.processes.lifetime import list_descendants
from tests.integration.project import ROOT, read_cells, run_exporter


def interrupt(root: Path, *arguments: str) -> None:
    """Interrupt a command while it has a child; no file and no child may remain."""
    scratch = root / "scratch"
    scratch.mkdir(exist_ok=True)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "exporter", *arguments]
    process = subprocess.Popen(
        command, cwd=root, env=environment, stderr=subprocess.PIPE, start_new_session=True
    )
    children: list[int] = []
    while not any(map(serves_a_call, children)):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
        children = list_descendants(process.pid)
    assert any(scratch.iterdir())
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert b"interrupted" in errors
    assert list(scratch.iterdir()) == []
    until = time.monotonic() + 30  # a child that had just begun ends by itself
    while any(map(serves_a_call, children)):
        assert time.monotonic() < until, "a child continues"
        time.sleep(0.05)


def serves_a_call(pid: int) -> bool:
    """Return whether a process is a running child of a command."""
    try:
        return b"child_call" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture(scope="module")
def dist(nets: Path) -> Path:
    """Return the published files of two models."""
    run_exporter(nets, "publish", "--initial", "top", "cell", "dist", code=0)
    verified = run_exporter(nets, "verify", "dist", "--json", code=0)
    assert '"check": "rollout"' in verified.stdout
    return nets / "dist"


@pytest.mark.parametrize("arguments", [("publish", "top", "again"), ("verify", "dist")])
def test_an_interrupted_command_leaves_nothing(dist: Path, arguments: tuple[str, ...]) -> None:
    interrupt(dist.parent, *arguments)
    assert not any(dist.parent.glob("again/.*"))


def test_ties_are_published_in_the_order_of_onnx(nets: Path, dist: Path) -> None:
    (parity,) = (c for c in read_cells(nets)["top/17/cpu"].checks if c.check == "parity")
    assert parity.metrics["tied_samples"]
    path = dist / "top/17/test_data_set_0/output_1.pb"
    session = onnxruntime.InferenceSession(dist / "top/17/model.onnx")
    x = numpy_helper.to_array(onnx.load_tensor(path.with_name("input_0.pb")))
    indices = numpy_helper.to_array(onnx.load_tensor(path))
    assert np.array_equal(session.run(["indices"], {"x": x})[0], indices)
    path.write_bytes(numpy_helper.from_array(np.flip(indices, axis=1).copy()).SerializeToString())
    wrong = run_exporter(nets, "verify", "dist")
    assert "files: fail: test_data_set_0/output_1.pb has another hash" in wrong.stderr


def test_the_steps_of_a_rollout_are_published_and_verified(nets: Path, dist: Path) -> None:
    step = dist / "cell/17/samples/rollout/step_3/output_1.pb"
    values = [
        numpy_helper.to_array(onnx.load_tensor(step.parents[1] / f"step_{number}/input_0.pb"))
        for number in range(4)
    ]
    assert [float(each.max()) for each in values] == [0.0, 0.5, 1.0, -1.0]
    card = (dist / "cell/17/README.md").read_text()
    assert "`x` changed in each step; the values are in `samples/rollout`" in card
    assert "those of PyTorch's own loop, `parts.py:run`" in card
    value = numpy_helper.to_array(onnx.load_tensor(step))
    changed = numpy_helper.from_array(value + np.float32(1)).SerializeToString()
    sums = dist / "cell/17/SHA256SUMS"
    old, new = hashlib.sha256(step.read_bytes()), hashlib.sha256(changed)
    sums.write_text(sums.read_text().replace(old.hexdigest(), new.hexdigest()))
    step.write_bytes(changed)
    wrong = run_exporter(nets, "verify", "dist", code=1)
    assert "the sample 'step 4' differs from its hash" in wrong.stderr
