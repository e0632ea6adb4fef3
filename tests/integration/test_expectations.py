"""`exporter expectations` prints the failures of a red export for the manifests."""

from __future__ import annotations

from pathlib import Path

from exporter.records.record import read_run
from tests.integration.project import make_project, run_exporter


def test_the_printed_expectations_turn_failures_into_expected_failures(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", raises="Raises")
    manifest = root / "manifests/tiny.toml"
    assert run_exporter(root, "export").returncode == 1

    printed = run_exporter(root, "expectations")
    assert printed.returncode == 1, printed.stderr
    assert "--reason TEXT" in printed.stderr
    printed = run_exporter(root, "expectations", "--reason", "it has no way")
    place, *lines = printed.stdout.strip().splitlines()
    assert place.startswith("# manifests/tiny.toml:")
    assert place.endswith(": [models.raises]")
    assert lines[1].startswith('  { opset = "16..17", stage = "source", match = "RuntimeError: no ')

    text = manifest.read_text().replace("[models.raises]", "\n".join(("[models.raises]", *lines)))
    manifest.write_text(text)
    assert run_exporter(root, "export").returncode == 0
    records = read_run(root / "build/results.json").records
    assert {record.status for record in records} == {"xfail"}
    again = run_exporter(root, "expectations")
    assert (again.returncode, again.stdout) == (0, "the expectations match the results\n")
