"""A reproducer of a cell runs without this package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from exporter.records.record import Culprit
from tests.integration.project import read_cells, run_exporter
from tests.script_runner import run_script


def reproduce(project: Path, cell: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Write the reproducer and run it in another folder, without this package and the project."""
    run_exporter(project, "repro", cell, str(folder), code=0)
    for text in (folder / "repro.py").read_text(), (folder / "README.md").read_text():
        assert str(project) not in text
        assert "import exporter" not in text
    return run_script(folder / "repro.py")


def test_a_wrong_output_is_reproduced_with_both_values(nets: Path, tmp_path: Path) -> None:
    record = read_cells(nets)["baked/17/cpu"]
    assert record.blame is not None
    assert record.blame.culprit is Culprit.TRACE
    process = reproduce(nets, "baked/17/cpu", tmp_path / "baked")
    assert process.returncode == 1, process.stdout
    assert "WRONG: output y is off by" in process.stdout
    assert "output y: PyTorch float32 [7, 3]" in process.stdout
    assert "output y: the file float32 [7, 3]" in process.stdout
    readme = (tmp_path / "baked/README.md").read_text()
    assert 'source = "models.py:Baked"' in readme
    assert "[models.lacking]" not in readme
    assert "Culprit: trace" in readme
    assert "manifests/models.py:" in readme


def test_every_record_lists_the_operators_of_its_model(nets: Path) -> None:
    cells = ("scaled/17/cpu", "sound/18/cpu", "lacking/18/cpu")
    traced, captured, failed = (read_cells(nets)[cell].torch_operators for cell in cells)
    assert (traced["aten::linear"], captured["aten.linear.default"]) == (1, 1)
    names = [name for name in failed if name.startswith("aten.")]
    assert any("airy_ai" in name for name in names), "also if the conversion fails"


def test_a_capture_for_one_size_is_explained(nets: Path) -> None:
    record = read_cells(nets)["fixed/18/cpu"]
    assert record.stage == "capture"
    assert "the capture has this size only" in record.message
    assert "a static shape of 3 for dimension inputs['x'].shape[0]" in record.message


@pytest.mark.parametrize("cell", ["pairs/18/cpu", "scaled/17/cpu"])
def test_the_reproducer_of_a_green_cell_reports_no_failure(
    nets: Path, tmp_path: Path, cell: str
) -> None:
    process = reproduce(nets, cell, tmp_path / "green")
    assert process.returncode == 0, process.stdout
    assert "it does not reproduce" in process.stdout
    assert "WRONG" not in process.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pairs"], "'pairs' matches 2 cells; name one of them"),
        (["sond/18/cpu"], "did you mean 'sound'?"),
    ],
)
def test_an_argument_must_match_one_cell(nets: Path, arguments: list[str], message: str) -> None:
    command = run_exporter(nets, "repro", *arguments, code=3)
    assert message in command.stderr


def test_an_anonymous_reproducer_has_other_weights_inputs_and_names(
    nets: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "baked"
    command = run_exporter(
        nets, "repro", "baked/17/cpu", str(folder), "--anonymous", "--hash-names", code=0
    )
    assert "the failure occurs with other weights and inputs" in command.stdout
    process = run_script(folder / "repro.py")
    assert (process.returncode, "WRONG: output y" in process.stdout) == (1, True)
    texts = [path.read_text() for path in folder.rglob("*") if path.suffix in (".py", ".md")]
    words = ("Baked", "baked", "hidden_flag")
    assert not [word for word in words for text in texts if word in text]
    samples = {path.read_bytes() for path in (nets / "build/baked").rglob("input_*.pb")}
    noise = {path.read_bytes() for path in folder.rglob("input_*.pb")}
    assert noise
    assert not noise & samples


def test_an_anonymous_reproducer_is_checked(nets: Path, tmp_path: Path) -> None:
    arguments = ("repro", "chosen/17/cpu", str(tmp_path / "chosen"), "--anonymous")
    command = run_exporter(nets, *arguments)
    assert (command.returncode, "does not occur" in command.stdout) == (1, True), command.stderr
    command = run_exporter(
        nets, "repro", "reading/17/cpu", str(tmp_path / "r"), "--anonymous", code=4
    )
    assert "the script needs the weights, data or names" in command.stderr
    assert "words.txt" in command.stderr
    command = run_exporter(nets, "repro", "sound/18/cpu", "--hash-names")
    assert (command.returncode, "--hash-names needs --anonymous" in command.stderr) == (2, True)
