"""The benchmarks run in their smallest form, and their tables contain the measured figures."""

from __future__ import annotations

import json
import pkgutil
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import cold, divided, idle, large, steps
from benchmarks.__main__ import BENCHMARKS, with_section
from benchmarks.figure import Figure, Section, at_least, at_most
from benchmarks.measure import Failed, MemorySample, must, spend
from benchmarks.project import made_project, matrix_project
from benchmarks.stages import IRREDUCIBLE, own_seconds, shared_seconds, total
from benchmarks.touched import _touched
from exporter.manifest import load_project
from exporter.planning.plan import make_plan
from tests.integration.program_server import ROOT, describe_servers
from tests.unit.factory import make_record


def section(name: str, *figures: Figure) -> Section:
    return Section(name=name, about="about", figures=figures)


def test_an_aim_is_met_or_missed() -> None:
    assert at_most("x", 0.4, 0.4, "0.4 s", " s").met
    assert not at_most("x", 0.41, 0.4, "0.41 s", " s").met
    assert at_least("x", 8.0, 8.0, "8 times", " times").met
    missed = at_least("x", 7.9, 8.0, "7.9 times", " times")
    assert not missed.met
    lines = list(section("cold", missed).lines())
    assert "| x | at least 8 times | 7.9 times | **missed** |" in lines
    assert at_most("x", 0.1, 0.08, "10%", "%").aim == "at most 8%"


def test_a_section_replaces_only_the_one_of_its_name() -> None:
    first = with_section("", section("steps", Figure(what="a", measured="1 s")))
    both = with_section(first, section("cold", Figure(what="b", measured="2 s")))
    again = with_section(both, section("steps", Figure(what="c", measured="3 s")))
    assert [line for line in again.splitlines() if line.startswith("## ")] == [
        "## cold",
        "## steps",
    ]
    assert "| b |" in again
    assert "| c |" in again
    assert "| a |" not in again
    names = ["cold", "more", "divided", "idle", "touched", "watch", "steps", "shared"]
    assert list(BENCHMARKS) == [*names, "dask", "week", "package"]


@pytest.mark.parametrize("path", large.PHASES)
def test_a_phase_begins_with_a_function_of_the_worker(path: str) -> None:
    assert callable(pkgutil.resolve_name(f"exporter.{path}"))


def test_memory_is_divided_into_phases_and_drawn() -> None:
    samples = [MemorySample(float(each), each * 100, 50) for each in range(8)]
    phases = large.divide(samples, [(0.0, "export"), (2.5, "proof"), (5.5, "export")])
    assert [(each.name, each.start, each.anonymous) for each in phases] == [
        ("export", 0.0, 200),
        ("proof", 3.0, 500),
        ("export", 6.0, 700),
    ]
    rows = large.format_table(phases, 100)
    assert rows[2:] == ["| export | 3.0 | 7.00 | 0.50 |", "| proof | 2.0 | 5.00 | 0.50 |"]
    picture = "\n".join(large.draw(samples, phases, 100))
    root = ET.fromstring(picture)
    assert len(root.findall(".//{*}polyline")) == 2
    assert {"export", "proof"} <= {(each.text or "").strip() for each in root.iter()}


def test_mapped_files_are_no_anonymous_memory(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(60_000_000))
    program = (
        "import mmap, time; file = open('data', 'rb'); data = bytearray(90_000_000); "
        "pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); sum(pages[::4096]); "
        "time.sleep(0.5)"
    )
    spent = must(spend([sys.executable, "-c", program], tmp_path, every=0.01))
    assert 90e6 < max(each.anonymous for each in spent.samples) < 140e6
    assert 60e6 < max(each.mapped for each in spent.samples) < 90e6


def test_a_command_is_measured_with_its_child_processes(tmp_path: Path) -> None:
    program = "import subprocess, sys; data = bytearray(80_000_000); " + (
        "subprocess.run([sys.executable, '-c', 'sum(range(10_000_000))']); print('done')"
    )
    spent = must(spend([sys.executable, "-c", program], tmp_path, every=0.01), "done")
    assert spent.peak > 80_000_000
    assert spent.cpu > 0.1
    assert spent.wall > 0.1
    with pytest.raises(Failed, match="exit code 3"):
        must(spend([sys.executable, "-c", "raise SystemExit(3)"], tmp_path))


def test_an_aim_that_is_met_to_the_rounding_is_met() -> None:
    assert at_least("share", 0.796, 0.8, "80%", "%").met
    assert not at_least("share", 0.794, 0.8, "79%", "%").met
    assert at_most("wall", 12.04, 12.0, "12.0 s").met
    assert not at_most("wall", 1.006, 1.0, "1.01 s").met


def test_stages_that_cells_share_count_once() -> None:
    shared = {"source": 1.0, "reference": 2.0, "capture": 4.0}
    records = (
        make_record("a/18/cpu", seconds={**shared, "convert": 8.0, "parity": 16.0}),
        make_record("a/19/cpu", seconds={**shared, "convert": 32.0, "load": 64.0}),
    )
    assert shared_seconds(records) == 7.0
    assert own_seconds(records[1]) == 96.0
    assert total(records) == 7.0 + 24.0 + 96.0
    assert total(records, IRREDUCIBLE) == 7.0 + 8.0 + 96.0


def test_the_matrix_has_models_of_this_project(tmp_path: Path) -> None:
    matrix_project(tmp_path, cold.MODELS, "18..25")
    assert len(make_plan(load_project(tmp_path)).cells) == 64


def test_the_loop_must_finish() -> None:
    assert cold._says("alexnet/18 ok 3.21", "ok")
    assert not cold._says("alexnet/18 failed: x", "ok")
    assert not cold._says("[torch.onnx] Run decompositions... ok", "ok")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Return a command that runs the program in forks of a process that has imported it."""
    for name, value in {"PYTHONPATH": str(ROOT), **describe_servers()}.items():
        monkeypatch.setenv(name, value)
    return (sys.executable, "-m", "tests.integration.program_server", "run")


def test_the_no_op_benchmark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: tuple[str, ...]
) -> None:
    monkeypatch.setattr(idle, "SIZES", {1_000: 0.4})
    monkeypatch.setattr(idle, "EXPORT", (*served, "export"))
    result = idle.measured(tmp_path, quick=True)
    assert [figure.what for figure in result.figures] == [
        "10 cells, nothing to do",
        "10 cells, all looked at anew",
    ]


def test_the_benchmark_of_the_steps_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: tuple[str, ...]
) -> None:
    monkeypatch.setattr(steps, "SIZES", (100,))
    monkeypatch.setattr(steps, "EXPORTER", served)
    result = steps.measured(tmp_path, quick=True)
    assert [figure.what for figure in result.figures] == list(steps.COMMANDS)


def test_the_benchmark_of_divided_jobs_divides_a_job(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"opsets": [1, 2, 3, 4]}))
    divided._require_opsets(tmp_path, 4)
    with pytest.raises(Failed, match="made 4 of 8 opsets, and not 8"):
        divided._require_opsets(tmp_path, 8)
    assert divided._share("wall time", [2.0, 9.0, 3.0], [4.0]).measured == "75% (3.0 s and 4.0 s)"


def test_the_results_of_a_prepared_project_are_valid(tmp_path: Path) -> None:
    """Otherwise a benchmark would measure exports."""
    made_project(tmp_path, 2, "17..18")
    plan = must(spend([sys.executable, "-m", "exporter", "plan"], tmp_path), "0 cells to run, 4 to")
    assert plan.output.count("up to date") == 4


def test_only_cells_of_the_edited_source_run(tmp_path: Path) -> None:
    made_project(tmp_path, 2, "17..17")
    with (tmp_path / "manifests/net1.py").open("a") as source:
        source.write("# touched, too")
    with pytest.raises(Failed, match=r"these cells ran: .*net0/17/cpu.*net1/17/cpu"):
        _touched(tmp_path, 0)
