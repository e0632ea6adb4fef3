"""Results in the store are restored in another checkout, with the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.integration.project import read_cells, read_files, run_exporter

#: Cells with external data, and a red one.
CELLS = ("large/17/cpu", "large/18/cpu", "lacking/18/cpu")


#: Files that belong to one run.
OF_ONE_RUN = ("job.json", "work.json", "written.json")


def read_models(root: Path) -> dict[str, bytes]:
    """Return the files of the models, without the files that belong to one run."""
    return {
        name: data
        for name, data in read_files(root / "build").items()
        if name.startswith(("large/", "lacking/")) and not name.endswith(OF_ONE_RUN)
    }


def test_another_checkout_restores_cells(nets: Path, tmp_path: Path) -> None:
    other, store = tmp_path / "other", str(nets / "build/.store")
    shutil.copytree(nets, other, ignore=shutil.ignore_patterns("build", "reports"))
    for arguments, setting in (
        (("plan",), "off"),
        (("plan", "--no-store"), store),
        (("export", "--no-store", "--dry-run"), store),
    ):
        local = run_exporter(other, *arguments, *CELLS, EXPORTER_STORE=setting)
        assert local.stdout.splitlines()[0] == "3 cells to run, 0 to keep, 0 to skip"
    restored = run_exporter(other, "export", "--explain", *CELLS, EXPORTER_STORE=store, code=1)
    assert " runs: " not in restored.stdout
    assert "3 cells: 2 pass, 1 error, 3 of them restored from the store" in restored.stdout
    files = read_models(other)
    assert files.items() <= read_models(nets).items()
    assert {"large/17.onnx", "large/18.onnx", "large/records/18.cpu.json"} <= files.keys()
    assert len([name for name in files if name.endswith(".safetensors")]) == 1
    cells = read_cells(nets)
    assert read_cells(other) == {cell: cells[cell] for cell in CELLS}
    again = run_exporter(other, "export", *CELLS, EXPORTER_STORE=store)
    assert "restored" not in again.stdout
    assert not (other / "build/.store").exists()
