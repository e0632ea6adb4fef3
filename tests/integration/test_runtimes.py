"""Other runtimes pass right files and fail wrong files; absent runtimes are unavailable."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from exporter.records.record import Record, Status
from tests.integration.project import read_cells, run_exporter
from tests.script_runner import run_script


@pytest.fixture(scope="module")
def records(nets: Path) -> dict[str, Record]:
    return read_cells(nets)


def test_a_backend_proves_a_right_file_and_fails_a_wrong_one(records: dict[str, Record]) -> None:
    sound, baked = records["elsewhere/17/ort-backend"], records["baked-elsewhere/17/ort-backend"]
    assert (sound.status, sound.message) == (Status.PASS, "")
    placement = next(item for item in sound.checks if item.check == "placement")
    assert placement.message.startswith("onnxruntime.backend reports that it runs on CPU")
    assert (baked.status, baked.stage) == (Status.FAIL, "parity")
    assert baked.blame is not None


def test_a_missing_provider_is_final_and_another_absent_device_is_checked_again(
    nets: Path, records: dict[str, Record]
) -> None:
    cells = ("elsewhere/17/no-provider", "elsewhere/17/intel-gpu")
    missing, other = (records[cell] for cell in cells)
    assert (missing.status, missing.is_final) == (Status.UNAVAILABLE, True)
    assert (other.status, other.is_final) == (Status.UNAVAILABLE, False)
    has_gpu = Path("/dev/dri").exists()  # it then may start later
    assert other.absent == (() if has_gpu else ("/dev/dri", "/dev/dxg"))
    plan = json.loads(run_exporter(nets, "plan", *cells, "--json").stdout)
    assert [cell["action"] for cell in plan["cells"]] == ["keep", "recheck" if has_gpu else "keep"]
    run_exporter(nets, "export", cells[1])
    assert read_cells(nets)[cells[1]].seconds["convert"] == other.seconds["convert"]
    # A device that the manifest names later proves the existing file.
    manifest = nets / "manifests/nets.toml"
    text = manifest.read_text()
    manifest.write_text(
        text.replace('"openvino", "intel-gpu"]', '"openvino", "intel-gpu", "cpu"]', 1)
    )
    file = nets / "build/elsewhere/17.onnx"
    before = (file.read_bytes(), records["elsewhere/17/ort-backend"].seconds["convert"])
    plan = json.loads(run_exporter(nets, "plan", "elsewhere/17/cpu", "--json").stdout)
    assert plan["cells"][0]["action"] == "recheck"
    assert run_exporter(nets, "export", "elsewhere/17/cpu").returncode == 0
    new = read_cells(nets)["elsewhere/17/cpu"]
    assert new.status is Status.PASS
    assert (file.read_bytes(), new.seconds["convert"]) == before
    assert new.proved_on == ""
    manifest.write_text(text)


@pytest.mark.skipif(find_spec("openvino") is None, reason="an optional runtime")
def test_openvino_proves_a_right_file_and_fails_a_wrong_one(records: dict[str, Record]) -> None:
    sound, baked = records["elsewhere/17/openvino"], records["baked-elsewhere/17/openvino"]
    assert (sound.status, sound.message) == (Status.PASS, "")
    assert {"placement", "parity", "axes", "values"} <= {item.check for item in sound.checks}
    assert (baked.status, baked.stage) == (Status.FAIL, "parity")
    assert baked.blame is not None


@pytest.mark.parametrize(
    "device",
    [
        "ort-backend",
        pytest.param(
            "openvino",
            marks=pytest.mark.skipif(find_spec("openvino") is None, reason="an optional runtime"),
        ),
    ],
)
@pytest.mark.parametrize(("model", "code"), [("elsewhere", 0), ("baked-elsewhere", 1)])
def test_a_reproducer_runs_the_file_on_the_device_of_the_cell(
    nets: Path, tmp_path: Path, device: str, model: str, code: int
) -> None:
    run_exporter(nets, "repro", f"{model}/17/{device}", str(tmp_path / "repro"), code=0)
    process = run_script(tmp_path / "repro/repro.py")
    assert process.returncode == code, process.stdout
    assert ("WRONG: output y is off by" in process.stdout) is (code == 1)
    text = (tmp_path / "repro" / "repro.py").read_text(encoding="utf-8")
    assert ("onnxruntime.backend" if device == "ort-backend" else "import openvino") in text
    package = "onnxruntime" if device == "ort-backend" else "openvino"
    readme = (tmp_path / "repro" / "README.md").read_text(encoding="utf-8")
    assert f"It needs only torch, onnx and {package}." in readme
