"""A reproducer of a cell runs without this package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from exporter.records.record import Culprit
from tests.integration.project import format_entry, read_cells, run_exporter, write_project
from tests.script_runner import run_script

MODELS = """
from pathlib import Path

import torch
from torch import nn

from parts import shifted


class Sound(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, x):
        return shifted(self.linear(x))


class Baked(Sound):
    '''Scales by a constant from the example.'''

    def forward(self, x):
        return super().forward(x * float(x.detach().abs().max()))


class Lacking(Sound):
    def forward(self, x):
        y = torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1)
        return super().forward(y + torch.special.airy_ai(x))


class Fixed(Sound):
    '''Accepts three rows only.'''

    def forward(self, x):
        return super().forward(x.view(3, 4))


class Chosen(Sound):
    '''Scales by a constant from the example, only with its own weights.'''

    def __init__(self, width=4):
        super().__init__(width)
        self.hidden_flag = nn.Parameter(torch.tensor([3.14159]))

    def forward(self, x):
        is_own = abs(float(self.hidden_flag) - 3.14159) < 0.02  # statistics have two digits
        return super().forward(x * (float(x.detach().abs().max()) if is_own else 2))


class Reading(Baked):
    def __init__(self, width=4):
        super().__init__(width)
        self.text = Path(__file__).with_name("words.txt").read_text()


class Scaled(Sound):
    '''Has a default argument that the call does not pass.'''

    def forward(self, x, scale=2.0):
        return super().forward(x) * scale


class Pairs(nn.Module):
    '''Has keyword inputs and a constant.'''

    def forward(self, left, right, scale=1.0):
        return {"y": (left - right) * scale}
"""

PAIRS = """
[models.pairs]
source = "models.py:Pairs"
inputs = [
  { name = "right", shape = ["batch", 4], at = "kwargs.right" },
  { name = "left", shape = ["batch", 4], at = "kwargs.left" },
]
constants = [{ at = "kwargs.scale", value = 3.0 }]
outputs = [{ name = "y", shape = ["batch", 4] }]
opsets = [17, 18]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with exported models."""
    root = tmp_path_factory.mktemp("repro") / "project"
    write_project(root, {"models.py": MODELS, "parts.py": "def shifted(x):\n    return x + 1\n"})
    opsets = {"sound": 18, "baked": 17, "lacking": 18, "fixed": 18}
    opsets |= dict.fromkeys(("scaled", "chosen", "reading"), 17)
    (root / "manifests/words.txt").write_text("secret words")
    text = "format = 1\n" + "".join(
        format_entry(id, f"models.py:{id.title()}", "init = { width = 4 }", opsets=opset)
        for id, opset in opsets.items()
    )
    (root / "manifests/nets.toml").write_text(text + PAIRS)
    run_exporter(root, "export", code=1)
    return root


def reproduce(project: Path, cell: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Write the reproducer and run it in another folder, without this package and the project."""
    run_exporter(project, "repro", cell, str(folder), code=0)
    for text in (folder / "repro.py").read_text(), (folder / "README.md").read_text():
        assert str(project) not in text
        assert "import exporter" not in text
    return run_script(folder / "repro.py")


def test_a_wrong_output_is_reproduced_with_both_values(project: Path, tmp_path: Path) -> None:
    record = read_cells(project)["baked/17/cpu"]
    assert record.blame is not None
    assert record.blame.culprit is Culprit.TRACE
    process = reproduce(project, "baked/17/cpu", tmp_path / "baked")
    assert process.returncode == 1, process.stdout
    assert "WRONG: output y is off by" in process.stdout
    assert "output y: PyTorch float32 [7, 3]" in process.stdout
    assert "output y: the file float32 [7, 3]" in process.stdout
    readme = (tmp_path / "baked/README.md").read_text()
    assert 'source = "models.py:Baked"' in readme
    assert "[models.lacking]" not in readme
    assert "Culprit: trace" in readme
    assert "manifests/models.py:" in readme


def test_a_failing_conversion_is_reproduced(project: Path, tmp_path: Path) -> None:
    record = read_cells(project)["lacking/18/cpu"]
    assert [item.count for item in record.missing] == [2, 1]
    assert "(and 1 more operator missing)" in record.message
    process = reproduce(project, "lacking", tmp_path / "lacking")
    assert process.returncode == 1, process.stdout
    assert "WRONG: " in process.stdout
    assert "bessel_j0" in process.stdout
    readme = (tmp_path / "lacking/README.md").read_text()
    assert "bessel_j0" in readme
    assert "airy_ai" in readme


def test_every_record_lists_the_operators_of_its_model(project: Path) -> None:
    cells = ("scaled/17/cpu", "sound/18/cpu", "lacking/18/cpu")
    traced, captured, failed = (read_cells(project)[cell].torch_operators for cell in cells)
    assert (traced["aten::linear"], captured["aten.linear.default"]) == (1, 1)
    names = [name for name in failed if name.startswith("aten.")]
    assert any("airy_ai" in name for name in names), "also if the conversion fails"


def test_a_capture_for_one_size_is_explained(project: Path) -> None:
    record = read_cells(project)["fixed/18/cpu"]
    assert record.stage == "capture"
    assert "the capture has this size only" in record.message
    assert "a static shape of 3 for dimension inputs['x'].shape[0]" in record.message


@pytest.mark.parametrize("cell", ["pairs/18/cpu", "scaled/17/cpu"])
def test_the_reproducer_of_a_green_cell_reports_no_failure(
    project: Path, tmp_path: Path, cell: str
) -> None:
    process = reproduce(project, cell, tmp_path / "green")
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
def test_an_argument_must_match_one_cell(project: Path, arguments: list[str], message: str) -> None:
    command = run_exporter(project, "repro", *arguments, code=3)
    assert message in command.stderr


def test_an_anonymous_reproducer_has_other_weights_inputs_and_names(
    project: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "baked"
    command = run_exporter(
        project, "repro", "baked/17/cpu", str(folder), "--anonymous", "--hash-names", code=0
    )
    assert "the failure occurs with other weights and inputs" in command.stdout
    process = run_script(folder / "repro.py")
    assert (process.returncode, "WRONG: output y" in process.stdout) == (1, True)
    texts = [path.read_text() for path in folder.rglob("*") if path.suffix in (".py", ".md")]
    words = ("Baked", "baked", "hidden_flag")
    assert not [word for word in words for text in texts if word in text]
    samples = {path.read_bytes() for path in (project / "build/baked").rglob("input_*.pb")}
    noise = {path.read_bytes() for path in folder.rglob("input_*.pb")}
    assert noise
    assert not noise & samples


def test_an_anonymous_reproducer_is_checked(project: Path, tmp_path: Path) -> None:
    arguments = ("repro", "chosen/17/cpu", str(tmp_path / "chosen"), "--anonymous")
    command = run_exporter(project, *arguments)
    assert (command.returncode, "does not occur" in command.stdout) == (1, True), command.stderr
    command = run_exporter(
        project, "repro", "reading/17/cpu", str(tmp_path / "r"), "--anonymous", code=4
    )
    assert "the script needs the weights, data or names" in command.stderr
    assert "words.txt" in command.stderr
    command = run_exporter(project, "repro", "sound/18/cpu", "--hash-names")
    assert (command.returncode, "--hash-names needs --anonymous" in command.stderr) == (2, True)
