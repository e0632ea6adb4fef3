"""Finished files are proved like exported ones: right ones pass, wrong ones are red."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest

from exporter.cache.fingerprint import THOROUGH
from exporter.records.record import Culprit, Record, Status
from tests.integration.project import MODELS as SHARED_MODELS
from tests.integration.project import (
    ROOT,
    format_entry,
    read_cells,
    run_exporter,
    write_project,
)
from tests.script_runner import run_script

MODELS = """
import torch
from torch import nn


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 20)

    def forward(self, ids):
        return self.table(ids)


class Shifted(Table):
    def forward(self, ids):
        return super().forward(ids) + 1e-3
"""

MANIFEST = """
format = 1

[models.right]
source = "models.py:Table"
artifact = "files/net-{opset}.onnx"
inputs = [{ name = "ids", shape = ["n"], dtype = "int64", fill = { randint = [0, 30] } }]
outputs = [{ name = "rows", shape = ["n", 20] }]
opsets = [16, 17]

[models.wrong]
extends = "right"
source = "models.py:Shifted"

[models.other]
extends = "right"
seed = 1
opsets = 16

[models.damaged]
extends = "right"
artifact = "files/damaged.onnx"
opsets = 17
"""

EXPORT = """
import os
import sys
import onnx
import torch

os.chdir(os.path.dirname(__file__))
sys.path.insert(0, "manifests")
from models import Table

torch.manual_seed(0)
net = Table().eval()
for opset in (16, 17):
    path = f"manifests/files/net-{opset}.onnx"
    torch.onnx.export(
        net, (torch.arange(3),), path, input_names=["ids"], output_names=["rows"],
        dynamic_axes={"ids": {0: "n"}, "rows": {0: "n"}}, opset_version=opset, dynamo=False,
    )
model = onnx.load("manifests/files/net-17.onnx")
onnx.save(
    model, "manifests/files/net-17.onnx", save_as_external_data=True, location="net.data",
    size_threshold=0,
)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project after its export; the file of opset 17 has external data."""
    root = tmp_path_factory.mktemp("artifact") / "project"
    write_project(root, {"models.py": MODELS, "nets.toml": MANIFEST})
    (root / "manifests/files").mkdir()
    (root / "export.py").write_text(EXPORT)
    assert run_script(root / "export.py").returncode == 0
    (root / "manifests/files/damaged.onnx").write_text("no ONNX file")
    run_exporter(root, "export", code=1)
    return root


def test_right_files_pass_and_wrong_ones_are_red(project: Path) -> None:
    cells = read_cells(project)
    statuses = {name: cell.status for name, cell in cells.items()}
    assert statuses == {
        "right/16/cpu": Status.PASS,
        "right/17/cpu": Status.PASS,
        "wrong/16/cpu": Status.FAIL,
        "wrong/17/cpu": Status.FAIL,
        "other/16/cpu": Status.FAIL,
        "damaged/17/cpu": Status.ERROR,
    }
    (advice,) = cells["other/16/cpu"].advice
    page = (ROOT / "docs/recipes.md").read_text("utf-8").partition("## Files that another")[2]
    assert advice.startswith(page.partition("```text\n")[2].partition("\n```")[0] + " ")
    assert cells["damaged/17/cpu"].message.startswith("artifact: damaged.onnx: is not an ONNX file")
    blame = cells["wrong/16/cpu"].blame
    assert blame is not None
    assert blame.culprit is Culprit.FILE
    assert not cells["wrong/16/cpu"].advice


def test_the_file_is_copied_byte_for_byte_without_external_data(project: Path) -> None:
    source, built = project / "manifests/files", project / "build/right"
    assert (built / "16.onnx").read_bytes() == (source / "net-16.onnx").read_bytes()
    (note,) = (n for n in read_cells(project)["right/16/cpu"].notes if n.startswith("the file is"))
    assert note.startswith("the file is manifests/files/net-16.onnx, written by pytorch 2.")


def test_external_data_gets_the_name_of_its_hash(project: Path) -> None:
    artifact = read_cells(project)["right/17/cpu"].artifact
    assert artifact is not None
    (name,) = artifact.external_data
    path = project / "build/right" / name
    assert path.read_bytes() == (project / "manifests/files/net.data").read_bytes()
    onnx.checker.check_model(project / "build/right/17.onnx")


def test_only_the_cell_of_a_changed_file_is_stale(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    shutil.copytree(project, root)
    assert "0 cells to run" in run_exporter(root, "plan", "right").stdout
    with (root / "manifests/files/net-16.onnx").open("ab") as file:
        file.write(b"\0")
    plan = run_exporter(root, "plan", "right").stdout
    assert "manifests/files/net-16.onnx changed" in plan
    assert "1 cell to run, 1 to keep" in plan
    shutil.copytree(project / "manifests", root / "manifests", dirs_exist_ok=True)
    (root / "manifests/files/net.data").write_bytes(b"\1" * 2400)
    assert "1 cell to run, 1 to keep" in run_exporter(root, "plan", "right").stdout


def test_tables_and_commands_name_the_finished_file(project: Path, tmp_path: Path) -> None:
    assert "finished file" in run_exporter(project, "plan", "right/16").stdout
    assert "files/net-{opset}.onnx" in run_exporter(project, "explain", "right/16/cpu").stdout
    repro = run_exporter(project, "repro", "wrong/16/cpu", code=3)
    assert "PyTorch's exporter did not create the file" in repro.stderr
    run_exporter(project, "publish", "--initial", "right", str(tmp_path / "dist"), code=0)
    run_exporter(tmp_path, "verify", "dist", code=0)


def test_a_file_is_proved_against_an_entry_without_a_change_of_the_project(project: Path) -> None:
    before = sorted((project / "build").rglob("*"))
    path = "manifests/files/net-16.onnx"
    verified = run_exporter(
        project, "verify", "--entry", "right", path, "manifests/files/damaged.onnx", code=1
    )
    assert f"pass          {path} on cpu: " in verified.stdout
    assert "damaged.onnx: is not an ONNX file" in verified.stdout
    wrong = run_exporter(project, "verify", "--entry", "wrong/16", path, code=1)
    assert "parity: fail: output 'rows'" in wrong.stderr
    assert sorted((project / "build").rglob("*")) == before


CALL = """

def call(sizes):
    return (torch.randn(sizes["batch"], 4),), {}
"""
#: A recheck of two entries needs data that their export stored.
ENTRIES = (
    format_entry("good", opsets="[16, 17]"),
    format_entry("code", "models.py:Good", 'inputs_from = "models.py:call"'),
    format_entry("weights", "models.py:Good", "options = { export_params = false }"),
)


def set_tolerance(project: Path, atol: str) -> None:
    """Set the tolerance of all models."""
    manifest = project / "manifests/tiny.toml"
    lines = [line for line in manifest.read_text().splitlines() if "tolerance" not in line]
    lines.insert(lines.index("[defaults]") + 1, f"tolerance = {{ atol = {atol}, rtol = 1e-3 }}")
    manifest.write_text("\n".join(lines))


def read_good_cells(project: Path) -> list[Record]:
    cells = [record for name, record in read_cells(project).items() if name.startswith("good/")]
    assert len(cells) == 2
    return cells


def count_samples(project: Path) -> int:
    return len(list((project / "build/good").glob("test_data_set_*")))


def export_green(project: Path, *arguments: str) -> None:
    run_exporter(project, "export", *arguments, code=0)


@pytest.fixture(scope="module")
def thorough(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project after an export; `good` is thorough, with another tolerance."""
    root = tmp_path_factory.mktemp("thorough") / "project"
    manifest = f"format = 1\n[defaults]\n{''.join(ENTRIES)}"
    write_project(root, {"models.py": SHARED_MODELS + CALL, "tiny.toml": manifest})
    export_green(root)
    assert not any(record.thorough for record in read_cells(root).values())
    set_tolerance(root, "1e-3")
    export_green(root, "--thorough", "good")
    return root


@pytest.fixture(scope="module")
def rechecked(thorough: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project after a recheck with a third tolerance."""
    root = tmp_path_factory.mktemp("rechecked") / "project"
    shutil.copytree(thorough, root)
    set_tolerance(root, "1e-2")
    assert "the promises of its checks changed" in run_exporter(root, "plan").stdout
    export_green(root)
    return root


def test_weight_inputs_are_kept_for_a_recheck(rechecked: Path) -> None:
    weights = rechecked / "build/weights/weights"
    assert {path.name for path in weights.iterdir()} == {"weight_0.pb", "weight_1.pb"}


def test_the_contract_of_a_call_from_code_is_kept_for_a_recheck(rechecked: Path) -> None:
    assert (rechecked / "build/code/contract.json").is_file()


def test_a_thorough_run_after_a_changed_tolerance_is_thorough(thorough: Path) -> None:
    for record in read_good_cells(thorough):
        assert record.thorough
        assert record.fingerprint[THOROUGH] == "yes"


def test_a_recheck_keeps_the_thorough_samples(thorough: Path, rechecked: Path) -> None:
    assert all(record.thorough for record in read_good_cells(rechecked))
    assert count_samples(rechecked) == count_samples(thorough)


def test_only_cells_with_all_samples_are_thorough(rechecked: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(rechecked, tmp_path / "project"))
    # The usual samples replace the thorough samples, also for the cell that was not rerun.
    export_green(project, "good/16", "--force")
    set_tolerance(project, "1e-4")
    export_green(project, "good")
    assert not any(record.thorough for record in read_good_cells(project))
