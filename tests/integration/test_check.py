"""`exporter check` prints nothing if tables and manifests agree, and names each problem."""

from __future__ import annotations

import re
import resource
import shutil
from pathlib import Path

from tests.integration.project import run_exporter, run_python, write_project
from tests.integration.results import MANIFEST, write_results


def change(project: Path, before: str, after: str) -> None:
    path = project / "manifests/net.toml"
    path.write_text(path.read_text().replace(before, after))


def run_check(project: Path) -> tuple[int, str]:
    process = run_exporter(project, "check")
    assert "Traceback" not in process.stderr
    return process.returncode, process.stderr


def test_a_valid_project_prints_nothing(project: Path) -> None:
    assert run_check(project) == (0, "")


def test_an_axis_that_is_twice_in_a_shape_is_noted(project: Path) -> None:
    change(project, 'shape = ["batch", 3]', 'shape = ["batch", "batch"]')
    process = run_exporter(project, "check")
    assert "note: manifests/net.toml:" in process.stdout
    assert "has the axis 'batch' twice, so only equal sizes are proved" in process.stdout


def test_tables_that_git_merged_wrongly_are_found(project: Path) -> None:
    (project / "build/reports.json").unlink()  # another machine wrote them
    assert run_check(project) == (0, "")
    table = project / "reports/COMPATIBILITY.md"
    text = table.read_text()
    (line,) = re.findall("<!-- Digests: .* -->\n", text)
    table.write_text(text.replace(line, line + line.replace("results ", "results 0")))
    message = "reports: COMPATIBILITY.md has 2 lines of digests, as after a merge"
    assert message in run_check(project)[1]
    table.write_text(text.replace("cells ", "cells 0"))
    assert "COMPATIBILITY.md has other cells than the manifests" in run_check(project)[1]
    table.write_text(text)
    assert run_check(project) == (0, "")


CHECK_SCRIPT = """
import sys
from exporter.cli.entry_point import run
code = run(["check"])
print(code, "jinja2" in sys.modules)
"""


def test_pages_are_rendered_again_only_after_a_change(project: Path) -> None:
    def run_script() -> list[str]:
        return run_python(project, "-c", CHECK_SCRIPT).stdout.split()[-2:]

    assert run_script() == ["0", "False"]
    change(project, "opsets", 'description = "A net"\nopsets')
    assert run_script() == ["1", "True"]


def test_a_thousand_cells_are_checked_in_a_second(tmp_path: Path) -> None:
    write_project(tmp_path, {"net.py": "class Net: ...\n"})
    entry = MANIFEST.partition("\n")[2].replace("[17, 18]", '"7..26"')
    entries = (entry.replace("models.net", f"models.net{index}") for index in range(50))
    (tmp_path / "manifests/net.toml").write_text("format = 1\n" + "".join(entries))
    write_results(tmp_path)
    for name in ("baseline", "report"):
        assert run_exporter(tmp_path, name).returncode == 0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = run_python(tmp_path, "-m", "exporter", "check")  # a child, whose seconds count
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (process.returncode, process.stdout) == (0, "50 models, 1000 cells: 0 problems\n"), (
        process.stderr
    )
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 1.5, "0.5 s on an idle machine"


def test_an_invalid_manifest_is_reported(project: Path) -> None:
    change(project, "source", "sauce")
    code, errors = run_check(project)
    assert code == 2
    assert "manifests/net.toml:3: models.net" in errors


def test_a_changed_entry_makes_the_tables_stale(project: Path) -> None:
    change(project, '["batch", 4]', '["batch", 5]')
    code, errors = run_check(project)
    assert code == 1
    assert "net/17..18/cpu: the tables are stale: its manifest entry changed since" in errors


def test_added_and_removed_opsets_are_reported(project: Path) -> None:
    change(project, "[17, 18]", "[18, 19]")
    code, errors = run_check(project)
    assert code == 1
    assert "net/19/cpu: is not in the baseline; run `exporter export`" in errors
    assert "net/17/cpu: is in the baseline but in no manifest" in errors


def test_a_changed_description_makes_only_its_page_stale(project: Path) -> None:
    change(project, "opsets", 'description = "A net"\nopsets')
    code, errors = run_check(project)
    assert code == 1
    assert "reports/models/net.md: is stale; run `exporter report`" in errors
    assert run_exporter(project, "report").returncode == 0
    assert run_check(project) == (0, "")


def test_tables_of_another_machine_are_not_compared_with_local_results(project: Path) -> None:
    change(project, '["batch", 4]', '["batch", 5]')
    page = project / "reports/COMPATIBILITY.md"
    page.write_text(page.read_text() + "\nFrom another machine.\n")
    assert run_check(project) == (0, "")
    next((project / "reports/baseline").iterdir()).write_text("{}")
    assert run_check(project)[0] == 5


def test_a_project_without_baseline_and_results_passes(project: Path) -> None:
    shutil.rmtree(project / "reports/baseline")
    (project / "build/results.json").unlink()
    assert run_check(project) == (0, "")
