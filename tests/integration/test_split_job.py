"""Two workers that share the opsets of a model give the files and records of one worker."""

from __future__ import annotations

import json
from pathlib import Path

from exporter.records.record import Record, read_run
from tests.integration.project import make_project, run_exporter

#: A job is split only if this saves a second, so each conversion sleeps.
CODE = """

class Layers(nn.Module):
    '''Has normalization that is folded, and more than 1 MiB of weights, which are shared.'''

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(16, 20000), nn.GELU(), nn.Linear(20000, 3)),
        )

    def forward(self, x):
        return self.layers(x)


def convert_slowly(x):
    from onnxscript import opset18

    time.sleep(0.5)
    return opset18.Relu(x)
"""
TRANSLATION = 'name = "aten.relu.default", translation = "models.py:convert_slowly"'


def make_layers_project(root: Path) -> None:
    make_project(root, layers="Layers")
    source, manifest = root / "manifests/models.py", root / "manifests/tiny.toml"
    source.write_text(source.read_text() + CODE)
    entry = manifest.read_text().replace("[16, 17]", '"18..23"')
    manifest.write_text(f"{entry}custom_ops = [{{ {TRANSLATION} }}]\n")


def read_records(root: Path) -> dict[str, Record]:
    """Return the records without their durations."""
    records = read_run(root / "build/results.json").records
    untimed = (
        record.model_copy(
            update={
                "seconds": {},
                "checks": tuple(c.model_copy(update={"seconds": 0.0}) for c in record.checks),
            }
        )
        for record in records
    )
    return {str(record.cell): record for record in untimed}


def read_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "build/layers").glob("*.[od]*")}


def list_job_opsets(root: Path) -> list[int]:
    job = json.loads((root / "build/layers/job.json").read_text())
    return [opset["opset"] for opset in job["opsets"]]


def test_two_workers_give_the_same_files_and_records_as_one(tmp_path: Path) -> None:
    make_layers_project(tmp_path)
    command = ("export", "--no-store", "--jobs", "2")
    first = run_exporter(tmp_path, *command)
    assert first.returncode == 0, first.stdout + first.stderr
    assert len(list_job_opsets(tmp_path)) == 6
    records, files = read_records(tmp_path), read_files(tmp_path)
    assert len(files) == 7
    again = run_exporter(tmp_path, *command, "--force")
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(list_job_opsets(tmp_path)) == 3
    assert read_files(tmp_path) == files
    assert read_records(tmp_path) == records
    assert "[6/6] layers: 6 pass" in again.stdout
    assert (
        run_exporter(tmp_path, "plan").stdout.splitlines()[0]
        == "0 cells to run, 6 to keep, 0 to skip"
    )
