"""An edit reruns only the cells that depend on it."""

from __future__ import annotations

from pathlib import Path

from tests.integration.project import format_entry, read_cells, run_exporter


def edit(project: Path, name: str, before: str, after: str) -> None:
    path = project / "manifests" / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def plan_lines(project: Path) -> list[str]:
    command = run_exporter(project, "plan", code=0)
    return [" ".join(line.split()) for line in command.stdout.splitlines()]


def test_an_edit_without_dependents_runs_no_cell(good: Path) -> None:
    edit(good, "good.toml", "opsets", 'description = "words"\nopsets')
    (good / "README.md").write_text("more words")
    assert plan_lines(good)[0] == "0 cells to run, 2 to keep, 0 to skip"


def test_a_changed_tolerance_rechecks_the_existing_file(good: Path) -> None:
    files = {path.name: path.read_bytes() for path in (good / "build/good").glob("*.onnx")}
    first = {cell: dict(record.seconds) for cell, record in read_cells(good).items()}
    edit(good, "good.toml", "opsets", "tolerance = { atol = 1e-3, rtol = 1e-3 }\nopsets")
    assert plan_lines(good)[1].endswith("the promises of its checks changed")
    run_exporter(good, "export", code=0)
    assert {p.name: p.read_bytes() for p in (good / "build/good").glob("*.onnx")} == files
    # The durations of the export are unchanged, because the file was not exported again.
    for cell, record in read_cells(good).items():
        assert {stage: record.seconds[stage] for stage in ("source", "convert")} == {
            stage: first[cell][stage] for stage in ("source", "convert")
        }
    assert plan_lines(good)[0] == "0 cells to run, 2 to keep, 0 to skip"
    # If the tolerance is too small, the cell is red and the diagnosis blames the precision.
    edit(good, "good.toml", "atol = 1e-3, rtol = 1e-3", "atol = 1e-30, rtol = 0.0")
    run_exporter(good, "export", code=1)
    red = read_cells(good)["good/17/cpu"]
    assert red.status == "fail"
    assert red.blame is not None
    assert red.blame.culprit == "precision"
    edit(good, "good.toml", "tolerance = { atol = 1e-30, rtol = 0.0 }\n", "")
    run_exporter(good, "export", code=0)


def test_an_added_opset_runs_only_its_own_cell(good: Path) -> None:
    before = {p.name: p.stat().st_ino for p in (good / "build/good").glob("*.onnx")}
    edit(good, "good.toml", "[16, 17]", "[15, 16, 17]")
    command = run_exporter(good, "export", "--explain", code=0)
    assert [line for line in command.stdout.splitlines() if " runs: " in line] == [
        "good/15/cpu runs: it has not been exported yet"
    ]
    after = {p.name: p.stat().st_ino for p in (good / "build/good").glob("*.onnx")}
    assert {name: after[name] for name in before} == before
    assert set(after) == {"15.onnx", "16.onnx", "17.onnx"}


def test_a_source_that_changes_during_the_export_is_exported_again(good: Path) -> None:
    source = good / "manifests/models.py"
    before = source.read_text()
    # The source edits its helper module when it is loaded.
    (good / "manifests/moving.py").write_text("VALUE = 1.0\n")
    self_edit = """
from pathlib import Path
import moving
_HERE = Path(__file__).parent
if (_HERE / "edit").exists():
    (_HERE / "edit").unlink()
    (_HERE / "moving.py").write_text("VALUE = 2.0\\n")
"""
    source.write_text(before + self_edit)
    (good / "manifests/edit").touch()
    first = run_exporter(good, "export", code=1)
    reason = "manifests/moving.py changed while it was exported"
    message = f"good/15/cpu and 2 more: no result, since {reason}; the next export rebuilds it"
    assert message in first.stdout.splitlines()
    assert read_cells(good) == {}
    assert plan_lines(good)[1].endswith(reason)
    assert run_exporter(good, "export").returncode == 0
    assert plan_lines(good)[0].startswith("0 cells to run")
    # The store has the results of the old source.
    source.write_text(before)
    (good / "manifests/moving.py").unlink()
    assert run_exporter(good, "export").returncode == 0


def test_changes_of_new_modules_and_of_late_imports_run_the_cells(good: Path) -> None:
    for name in ("helper.py", "other.py", "conftest.py", ".#models.py"):
        (good / "manifests" / name).write_text("FACTOR = 2.0\n")
    (good / "setup.py").touch()
    assert plan_lines(good)[0].startswith("0 cells to run")  # no import searched for them
    edit(
        good,
        "models.py",
        "        return self.linear(x)",
        "        from helper import FACTOR\n        return FACTOR * self.linear(x)",
    )
    assert plan_lines(good)[1].endswith("manifests/models.py: Good.forward changed")
    assert run_exporter(good, "export").returncode == 0
    assert plan_lines(good)[0].startswith("0 cells to run")
    (good / "manifests/helper.py").write_text("FACTOR = 3.0\n")
    assert plan_lines(good)[1].endswith("manifests/helper.py changed")
    tables = {path: path.read_bytes() for path in (good / "reports").rglob("*.*")}
    part = run_exporter(good, "export", "good/15")
    reason = "because 2 cells have no current result; run `exporter export`"
    assert f"tables: not written, {reason}" in part.stdout.splitlines(), part.stdout
    assert {path: path.read_bytes() for path in (good / "reports").rglob("*.*")} == tables
    (good / "manifests/helper").mkdir()
    (good / "manifests/helper/__init__.py").write_text("FACTOR = 3.0\n")
    assert plan_lines(good)[1].endswith("manifests/helper/__init__.py was added")


def test_a_renamed_entry_is_proved_again_with_its_file(good: Path) -> None:
    assert run_exporter(good, "export").returncode == 0
    old = {path.name: path for path in (good / "build/good").glob("*.onnx")}
    edit(good, "good.toml", "[models.good]", "[models.nice]")
    assert plan_lines(good)[1].endswith("its entry was good before")
    run_exporter(good, "export", code=0)
    for record in read_cells(good).values():
        assert record.artifact
        file = good / "build" / record.artifact.file
        # The names have the same length, and nothing else differs.
        assert file.read_bytes() == old[file.name].read_bytes().replace(b"good", b"nice")
        assert record.log == f"nice/logs/{record.cell.opset}.log"
    # Another entry with the former name keeps none of its files.
    other = format_entry("good", "models.py:Silent", opsets="[16, 17]")
    edit(good, "good.toml", "format = 1\n", f"format = 1\n{other}")
    count, *lines = plan_lines(good)
    assert count.startswith("2 cells to run")
    assert lines[0].endswith("its manifest entry changed")
    edit(good, "good.toml", other, "")
    edit(good, "good.toml", "[models.nice]", "[models.good]")
    assert plan_lines(good)[0].startswith("0 cells to run")
