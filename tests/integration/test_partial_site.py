"""A site with cells without a result is written only on request."""

from __future__ import annotations

from pathlib import Path

from tests.integration.project import run_exporter
from tests.integration.results import MANIFEST, make_green_project


def test_a_site_needs_all_results(tmp_path: Path) -> None:
    make_green_project(tmp_path)
    run_exporter(tmp_path, "report", "--site", "complete", code=0)
    (tmp_path / "manifests/net.toml").write_text(MANIFEST.replace("[17, 18]", "[17, 18, 19]"))
    process = run_exporter(tmp_path, "report", "--site", "site", code=1)
    assert "1 cell without a result; run `exporter export` first, or pass --partial" in (
        process.stderr
    )
    assert not (tmp_path / "site").exists()
    run_exporter(tmp_path, "report", "--site", "site", "--partial", code=0)
    assert (tmp_path / "site/index.html").exists()
    run_exporter(tmp_path, "report", code=0)
