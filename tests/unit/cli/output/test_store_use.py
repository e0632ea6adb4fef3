"""The use of the store is printed and written as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.cli.output.store_use import show_statistics
from exporter.pipeline.decisions import StoreStatistics
from tests.unit.factory import make_manifest


def show(tmp_path: Path, statistics: StoreStatistics | None) -> dict[str, float]:
    (tmp_path / "build").mkdir()
    show_statistics(make_manifest(root=str(tmp_path)).project, statistics)
    counts: dict[str, float] = json.loads((tmp_path / "build" / "store.json").read_text())
    return counts


def test_all_counts_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statistics = StoreStatistics(
        local_hits=2,
        remote_hits=3,
        misses=4,
        restored_bytes=5000,
        downloaded_bytes=7000,
        uploaded_cells=9,
        uploaded_bytes=11000,
        waited_seconds=1.26,
    )
    assert show(tmp_path, statistics) == statistics.model_dump()
    assert capsys.readouterr().out.splitlines() == [
        "store: 5 hits (3 remote), 4 misses, 5.00 kB restored",
        "remote store: 7.00 kB downloaded, 11.0 kB uploaded for 9 cells, waited 1.3 s",
    ]


def test_a_local_store_has_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(tmp_path, StoreStatistics(local_hits=1))["local_hits"] == 1
    assert capsys.readouterr().out == "store: 1 hits (0 remote), 0 misses, 0 B restored\n"


def test_without_a_store_all_counts_are_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(show(tmp_path, None).values()) == {0}
    assert capsys.readouterr().out == "store: off\n"
