"""Nothing is done twice: what an edit makes run, through the command a user types."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.records.record import Record, read_run
from tests.integration.project import make_project, run_exporter


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was exported once."""
    root = make_project(tmp_path_factory.mktemp("incremental") / "project", good="Good")
    assert run_exporter(root, "export").returncode == 0
    return root


def edit(project: Path, name: str, before: str, after: str) -> None:
    path = project / "manifests" / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def planned(project: Path) -> list[str]:
    shown = run_exporter(project, "plan")
    assert shown.returncode == 0, shown.stderr
    return [" ".join(line.split()) for line in shown.stdout.splitlines()]


def made(project: Path) -> dict[str, Record]:
    return read_run(project / "build/results.json").by_cell()


def test_a_second_export_runs_nothing_and_says_the_same(project: Path) -> None:
    before = made(project)
    again = run_exporter(project, "export", "--explain")
    assert again.returncode == 0, again.stdout + again.stderr
    assert " runs: " not in again.stdout
    assert "2 cells: 2 pass" in again.stdout
    assert made(project) == before
    assert planned(project)[-1] == "0 cells to run, 2 to keep, 0 to skip"


def test_an_edit_that_nothing_depends_on_runs_nothing(project: Path) -> None:
    edit(project, "tiny.toml", "timeout", 'description = "words"\ntimeout')
    (project / "README.md").write_text("more words")
    assert planned(project)[-1] == "0 cells to run, 2 to keep, 0 to skip"


def test_another_tolerance_checks_the_file_that_is_there(project: Path) -> None:
    files = {path.name: path.read_bytes() for path in (project / "build/good").glob("*.onnx")}
    first = {cell: dict(record.seconds) for cell, record in made(project).items()}
    edit(project, "tiny.toml", "timeout", "tolerance = { atol = 1e-3, rtol = 1e-3 }\ntimeout")
    assert planned(project)[0].endswith("its tolerances changed")
    changed = run_exporter(project, "export")
    assert changed.returncode == 0, changed.stdout + changed.stderr
    assert {p.name: p.read_bytes() for p in (project / "build/good").glob("*.onnx")} == files
    # What making the file took is what it took then: it was not made again.
    for cell, record in made(project).items():
        assert {stage: record.seconds[stage] for stage in ("source", "convert")} == {
            stage: first[cell][stage] for stage in ("source", "convert")
        }
    assert planned(project)[-1] == "0 cells to run, 2 to keep, 0 to skip"
    # A tolerance that nothing meets is red, with the reason that only the model can tell.
    edit(project, "tiny.toml", "atol = 1e-3, rtol = 1e-3", "atol = 1e-30, rtol = 0.0")
    refused = run_exporter(project, "export")
    assert refused.returncode == 1
    red = made(project)["good/17/cpu"]
    assert red.status == "fail"
    assert red.blame is not None
    assert red.blame.culprit == "precision"
    edit(project, "tiny.toml", "tolerance = { atol = 1e-30, rtol = 0.0 }\n", "")
    healed = run_exporter(project, "export")
    assert healed.returncode == 0, healed.stdout


def test_pytorchs_outputs_that_are_not_its_own_prove_nothing(project: Path) -> None:
    assert run_exporter(project, "export").returncode == 0
    for path in (project / "build/good").glob("test_data_set_*/output_0.pb"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 0x40
        path.write_bytes(data)
    edit(project, "tiny.toml", "timeout", "tolerance = { atol = 1e-4, rtol = 1e-4 }\ntimeout")
    changed = run_exporter(project, "export")
    assert changed.returncode == 0, changed.stdout
    assert "good/17/cpu" in made(project)


def test_one_more_opset_leaves_the_others_alone(project: Path) -> None:
    before = {p.name: p.stat().st_ino for p in (project / "build/good").glob("*.onnx")}
    edit(project, "tiny.toml", "[16, 17]", "[15, 16, 17]")
    command = run_exporter(project, "export", "--explain")
    assert command.returncode == 0, command.stdout
    assert [line for line in command.stdout.splitlines() if " runs: " in line] == [
        "good/15/cpu runs: it has not been exported yet"
    ]
    after = {p.name: p.stat().st_ino for p in (project / "build/good").glob("*.onnx")}
    assert {name: after[name] for name in before} == before
    assert set(after) == {"15.onnx", "16.onnx", "17.onnx"}


def test_what_changes_while_it_is_exported_is_exported_again(project: Path) -> None:
    source = project / "manifests/models.py"
    before = source.read_text()
    # The helper is another one as soon as it is loaded.
    (project / "manifests/moving.py").write_text("VALUE = 1.0\n")
    meanwhile = """
from pathlib import Path
import moving
_HERE = Path(__file__).parent
if (_HERE / "edit").exists():
    (_HERE / "edit").unlink()
    (_HERE / "moving.py").write_text("VALUE = 2.0\\n")
"""
    source.write_text(before + meanwhile)
    (project / "manifests/edit").touch()
    first = run_exporter(project, "export")
    assert first.returncode == 1
    why = "manifests/moving.py changed while it was exported"
    said = f"good/15/cpu and 2 more: no result, since {why}; the next export rebuilds it"
    assert said in first.stdout.splitlines()
    assert made(project) == {}
    assert planned(project)[0].endswith(why)
    assert run_exporter(project, "export").returncode == 0
    assert planned(project)[-1].startswith("0 cells to run")
    source.write_text(before)
    (project / "manifests/moving.py").unlink()
    assert run_exporter(project, "export").returncode == 0


def test_a_source_a_neighbour_and_a_helper_that_is_imported_late_are_seen(project: Path) -> None:
    (project / "manifests/helper.py").write_text("FACTOR = 2.0\n")
    edit(
        project,
        "models.py",
        "        return self.linear(x)",
        "        from helper import FACTOR\n        return FACTOR * self.linear(x)",
    )
    assert planned(project)[0].endswith("manifests has other modules")
    assert run_exporter(project, "export").returncode == 0
    assert planned(project)[-1].startswith("0 cells to run")
    (project / "manifests/helper.py").write_text("FACTOR = 3.0\n")
    assert planned(project)[0].endswith("manifests/helper.py changed")
    assert run_exporter(project, "export").returncode == 0
