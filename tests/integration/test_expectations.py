"""`exporter expectations` adds the failures of a red export to the manifests."""

from __future__ import annotations

from pathlib import Path

from exporter.records.record import read_run
from tests.integration.project import make_project, run_exporter


def test_the_written_expectations_turn_failures_into_expected_failures(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project", raises="Raises")
    manifest = root / "manifests/tiny.toml"
    before = manifest.read_text()
    assert run_exporter(root, "export").returncode == 1

    preview = run_exporter(root, "expectations")
    assert preview.returncode == 1, preview.stderr
    assert "--- a/manifests/tiny.toml\n+++ b/manifests/tiny.toml\n" in preview.stdout
    assert '+  { opset = "16..17", stage = "source", match = "RuntimeError: no ' in preview.stdout
    assert manifest.read_text() == before, "without --write the manifest is unchanged"

    refused = run_exporter(root, "expectations", "--write")
    assert (refused.returncode, manifest.read_text()) == (1, before)
    assert "1 new expectation without a reason" in refused.stderr

    written = run_exporter(root, "expectations", "--write", "--reason", "it has no way")
    assert written.returncode == 0, written.stderr
    assert 'reason = "it has no way"' in manifest.read_text()

    assert run_exporter(root, "export").returncode == 0
    records = read_run(root / "build/results.json").records
    assert {record.status for record in records} == {"xfail"}
    again = run_exporter(root, "expectations")
    assert (again.returncode, again.stdout) == (0, "the expectations match the results\n")
