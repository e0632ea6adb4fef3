"""Each version reads the manifests, baseline, results, folders and store of all earlier ones."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode
from exporter.records.record import Status
from exporter.store.store_entry import parse_entry
from tests.integration.project import run_exporter

ARCHIVES = sorted(Path(__file__).parent.glob("*.zip"))
#: The commands that read the files, and a line of their output.
COMMANDS = {
    ("check",): "0 problems",
    ("explain", "net/18"): "net.toml:6",
    ("diff", "reports/baseline", "build/results.json"): "1 cell, no difference",
    ("verify", "published"): "1 proved, 0 red",
    ("gc", "--dry-run"): "store: nothing to remove; ",
}


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.stem)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_the_commands_read_the_files_of_an_earlier_version(
    arguments: tuple[str, ...], project: Path
) -> None:
    result = run_exporter(project, *arguments)
    assert result.returncode == 0, result.stderr
    assert COMMANDS[arguments] in result.stdout


def test_the_gate_compares_with_an_earlier_baseline(project: Path) -> None:
    """Another version of the program makes results stale, so the cell may have none."""
    result = run_exporter(project, "gate", "--json")
    document = json.loads(result.stdout)
    assert result.returncode == (1 if document["findings"] else 0), result.stderr
    assert {each["kind"] for each in document["findings"]} <= {"missing"}


def test_an_entry_of_an_earlier_store_is_read(project: Path) -> None:
    """An export restores it if everything is as it was, and exports the cell otherwise."""
    (path,) = (project / "store/entries").rglob("*.json")
    entry = parse_entry(path.read_bytes())
    assert (str(entry.record.cell), entry.record.status) == ("net/18/cpu", Status.PASS)
    plan = run_exporter(project, "plan", "--json")
    assert plan.returncode == 0, plan.stderr


@pytest.mark.parametrize(
    ("file", "command", "code"),
    [
        ("reports/baseline/net.json", "gate", ExitCode.UNREADABLE),
        ("build/results.json", "diff reports/baseline build/results.json", ExitCode.UNREADABLE),
        ("manifests/net.toml", "check", ExitCode.MANIFEST),
    ],
)
def test_a_file_of_a_later_format_is_refused(
    file: str, command: str, code: ExitCode, project: Path
) -> None:
    path = project / file
    before = path.read_text("utf-8")
    path.write_text(
        before.replace('"format": ', '"format": 9').replace("format = 1", "format = 91"), "utf-8"
    )
    try:
        result = run_exporter(project, *command.split())
    finally:
        path.write_text(before, "utf-8")
    assert result.returncode == code
    assert ("format" in result.stderr) or ("of this version" in result.stderr)
    assert file in result.stderr
    assert "Traceback" not in result.stderr
