"""A user exports, accepts and gates models, from the first export to a blocked change."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from exporter.records.record import RunRecord
from tests.integration.project import make_project, read_cells, run_exporter, start_exporter


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with one model and its accepted results."""
    root = make_project(tmp_path_factory.mktemp("workflow") / "project", good="Good")
    for arguments in (["export"], ["baseline"], ["gate"]):
        run_exporter(root, *arguments, code=0)
    return root


def test_the_gate_blocks_a_broken_model(accepted: Path, tmp_path: Path) -> None:
    source = accepted / "manifests/models.py"
    before = source.read_text()
    source.write_text(before.replace("self.linear(x)", "self.linear(x) if len(x) == 3 else 0 * x"))
    try:
        stale = run_exporter(accepted, "gate", code=1)
        assert "models.py: Good.forward changed since it was exported" in stale.stderr
        assert run_exporter(accepted, "export").returncode == 1
        summary = tmp_path / "summary.md"
        gate = run_exporter(accepted, "gate", GITHUB_STEP_SUMMARY=str(summary), code=1)
        assert "good/16..17/cpu: newly red: pass -> " in gate.stdout
        assert summary.read_text() == (accepted / "build/gate.md").read_text()
        assert "good" in summary.read_text()
    finally:
        source.write_text(before)


def test_a_file_that_changed_after_its_proof_is_a_finding(accepted: Path) -> None:
    assert run_exporter(accepted, "export").returncode == 0
    path = accepted / "build/good/17.onnx"
    content = path.read_bytes()
    try:
        path.write_bytes(content + b"\0")
        for command, code in (("gate", 1), ("check", 1), ("report", 0)):
            process = run_exporter(accepted, command, code=code)
            message = "good/17.onnx is not the file that was proved"
            assert message in process.stdout + process.stderr, command
        path.unlink()  # results may be read without files
        assert run_exporter(accepted, "gate").returncode == 0
    finally:
        path.write_bytes(content)
    assert run_exporter(accepted, "gate").returncode == 0


def test_equal_records_give_equal_reports(accepted: Path) -> None:
    def pages() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in (accepted / "reports").rglob("*.*")}

    assert run_exporter(accepted, "export").returncode == 0
    first = pages()
    names = {Path(name).name for name in first}
    assert {"junit.xml", "results.csv", "matrix.svg", "badge.svg", "good.json"} <= names
    assert run_exporter(accepted, "export").returncode == 0
    assert pages() == first
    assert run_exporter(accepted, "report").returncode == 0
    assert pages() == first


def test_an_unreadable_baseline_and_missing_results_have_their_exit_codes(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good")
    assert run_exporter(root, "gate").returncode == 5
    assert run_exporter(root, "baseline").returncode == 5
    (root / "build").mkdir(exist_ok=True)
    (root / "build/results.json").write_text(RunRecord(tools={}, records=()).to_json())
    assert run_exporter(root, "baseline").returncode == 1
    (root / "reports/baseline").mkdir(parents=True)
    (root / "reports/baseline/good.json").write_text("{")
    damaged = run_exporter(root, "gate", code=5)
    assert "reports/baseline/good.json: is not a baseline of format 4" in damaged.stderr
    assert "Traceback" not in damaged.stderr
    # An export needs no baseline: it prints a warning and writes the tables without one.
    (root / "reports/baseline/good.json").write_text("<<<<<<< HEAD\n")
    export = run_exporter(root, "export", code=0)
    warning = "reports/baseline/good.json: contains a merge conflict; resolve it"
    assert warning in export.stdout + export.stderr
    assert (root / "reports/COMPATIBILITY.md").is_file()
    report = run_exporter(root, "report")
    assert (report.returncode, warning in report.stderr) == (0, True)
    assert run_exporter(root, "baseline").returncode == 5


def test_ctrl_c_ends_all_workers_and_keeps_finished_cells(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", good="Good", sleeps="Sleeps")
    manifest = root / "manifests/tiny.toml"
    manifest.write_text(manifest.read_text().replace("10s", "5m"))  # longer than the other export
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start_exporter(root, "export", "--jobs", "2", **pipes)
    deadline = time.monotonic() + 120
    while not (root / "build/good").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "kept" in errors
    assert "Traceback" not in errors
    assert set(read_cells(root)) == {"good/16/cpu", "good/17/cpu"}
    assert not list_workers(root)


def test_a_second_simultaneous_run_is_an_error(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", sleeps="Sleeps")
    assert run_exporter(root, "export", "--dry-run").returncode == 0  # starts the servers
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = start_exporter(root, "export", **silent)
    # The fork server starts before the run locks the folder: wait for both.
    deadline = time.monotonic() + 60
    lock = root / "build/.lock"
    while not (lock.exists() and list_workers(root, patience=0)) and time.monotonic() < deadline:
        time.sleep(0.05)
    second = run_exporter(root, "export", code=4)
    assert "another run has locked" in second.stderr
    # If the command is killed, its workers end too.
    assert list_workers(root, patience=0)
    first.kill()
    first.wait()
    assert not list_workers(root)


def list_workers(root: Path, patience: int = 50) -> list[int]:
    """Return the workers of the project; wait until they end, at most `patience` times 0.1 s."""
    for _ in range(patience + 1):
        pids = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command, is_inside = path.read_bytes(), path.with_name("cwd").readlink() == root
            except OSError:
                continue
            if b"exporter.worker" in command and is_inside:
                pids.append(int(path.parent.name))
        if not pids:
            return []
        time.sleep(0.1)
    return pids
