"""The files of a toolchain are rows of their own."""

from __future__ import annotations

from exporter.report.rows.artifacts import count_operators, group_files
from exporter.report.rows.cells import collect_cells
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec


def test_files_of_toolchains_are_not_mixed() -> None:
    manifest = make_manifest(make_spec("net", opsets=(18, 20), devices=("cpu", "cuda", "cpu@old")))
    other = {"nodes": 7, "operators": {"Cast": 1}}
    run = make_run(
        *(make_record(f"net/{opset}/{device}") for opset in (18, 20) for device in ("cpu", "cuda")),
        make_record("net/18/cpu@old", artifact=make_artifact("net", 18, **other)),
        make_record("net/20/cpu@old"),
    )
    cells = collect_cells(manifest, run)["net"]
    assert [row["opsets"] for row in group_files(cells)] == ["18, 20; 20 @old", "18 @old"]
    assert count_operators(cells)["opsets"][-1] == "18 @old"
